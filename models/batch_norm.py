"""Batch norm of activations `[channels, height, width, images]`, gradients written out.

`normalised` takes any activations. `widened` takes the product of few channels with a wide kernel, and never looks at
the wide side more often than it must: mean and variance of a product follow from the moments of its input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from models.fusion import kept, sums
from models.outline import Activation

Tensor = Any
TOP = {"": None, "relu": float("inf"), "relu6": 6.0}


def each(vector: Tensor) -> Tensor:
    """A number per channel, to go with activations."""
    return tf.reshape(vector, (-1, 1, 1, 1))


def normalised(
    x: Tensor, gamma: Tensor, beta: Tensor, near: Tensor, epsilon: float, activation: Activation
) -> tuple[Tensor, Tensor, Tensor]:
    """`x` normalised per channel and activated, and the mean and variance it was normalised by.

    The sums are of distances from `near`, the moving mean: mean of squares less square of the mean loses nothing then,
    and one pass over `x` gives both. In the gradient the activation's input is computed again, not kept.
    """
    count = float(x.shape[1] * x.shape[2] * x.shape[3])
    top = TOP[activation]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: Tensor, gamma: Tensor, beta: Tensor):  # type: ignore[no-untyped-def]
        distance = tf.cast(x, tf.float32) - each(near)
        off, square = (total / count for total in sums([distance, tf.square(distance)]))
        variance = tf.maximum(square - tf.square(off), 0.0)
        mean = off + near
        inverse = tf.math.rsqrt(variance + epsilon)
        scale = gamma * inverse
        wide, factor = tf.cast(kept(x), tf.float32), each(scale)
        y = wide * factor + each(beta - mean * scale)

        def gradient(pull: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            passes = None if top is None else (y > 0.0) & (y < top)

            def through(pull: Tensor) -> Tensor:
                pull = tf.cast(pull, tf.float32)
                return pull if passes is None else tf.where(passes, pull, 0.0)

            passed = through(pull)
            total, along = sums([passed, passed * (wide - each(mean))])
            along *= inverse
            slope = -scale * inverse * along / count
            rest = -scale * total / count - slope * mean
            back = through(kept(pull)) * factor + wide * each(slope) + each(rest)
            return tf.cast(back, x.dtype), along, total

        return (tf.cast(_cut(y, top), x.dtype), mean, variance), gradient

    y, mean, variance = run(x, gamma, beta)
    return y, mean, variance


def widened(
    x: Tensor, kernel: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, activation: Activation
) -> tuple[Tensor, Tensor, Tensor]:
    """`normalised` of the product of `kernel` `[inputs, outputs]` with `x`.

    A row of ones beside the inputs makes products of everything. Rows times rows are all moments, from which follow
    mean and variance of every output. The normalised kernel, with its shift for the ones, times rows is the output.
    Rows times gradient gives the sums of batch norm's gradient and that of the kernel; what batch norm takes off the
    gradient of `x` is again a small kernel times rows. Ones stand twice, the second for what a shift loses when it is
    rounded. Sums are float32, as those of `normalised`. What comes off the gradient of `x` is too small for float16.
    """
    inputs, *shape = x.shape
    count, top, half = float(np.prod(shape)), TOP[activation], x.dtype

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: Tensor, kernel: Tensor, gamma: Tensor, beta: Tensor):  # type: ignore[no-untyped-def]
        rows = kept(tf.concat([tf.reshape(x, (inputs, -1)), tf.ones((2, int(count)), half)], 0))
        exact = tf.cast(rows, tf.float32)
        moments = tf.matmul(exact, exact, transpose_b=True) / count
        centre = moments[:inputs, inputs, None]
        seen = tf.matmul(moments[:inputs, :inputs] - centre * tf.transpose(centre), kernel)  # covariance × kernel
        mean = tf.reduce_sum(centre * kernel, 0)
        variance = tf.maximum(tf.reduce_sum(kernel * seen, 0), 0.0)
        inverse = tf.math.rsqrt(variance + epsilon)
        scale = gamma * inverse
        scaled = _with_shift(kernel * scale, beta - mean * scale, centre, half)
        y = kept(_cut(tf.matmul(scaled, rows, transpose_a=True), top))

        def gradient(pull: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            pull = tf.reshape(pull, y.shape)
            pull = kept(pull if top is None else tf.where((y > 0) & (y < top), pull, tf.zeros_like(pull)))
            across = tf.matmul(exact, tf.cast(pull, tf.float32), transpose_b=True)
            across, total = across[:inputs] - centre * across[inputs], across[inputs]
            along = tf.reduce_sum(kernel * across, 0) * inverse
            slope = -scale * inverse * along / count
            rest = -scale * total / count - slope * mean
            small = tf.matmul(tf.concat([kernel * slope, rest[None]], 0), kernel, transpose_b=True)
            back = tf.matmul(scaled[:inputs], pull)
            back += tf.matmul(_with_shift(small[:inputs], small[inputs], centre, half), rows, transpose_a=True)
            return tf.reshape(back, x.shape), scale * (across - inverse * along * seen), along, total

        return (tf.reshape(y, (-1, *shape)), mean, variance), gradient

    y, mean, variance = run(x, kernel, gamma, beta)
    return y, mean, variance


def _cut(y: Tensor, top: float | None) -> Tensor:
    if top is None:
        return y
    y = tf.nn.relu(y)
    return y if top == float("inf") else tf.minimum(y, tf.cast(top, y.dtype))


def _with_shift(kernel: Tensor, shift: Tensor, centre: Tensor, half: Any) -> Tensor:
    """The kernel for rows that end in two rows of ones. The shift takes back what rounding moves at the `centre`."""
    rounded = kept(tf.cast(kernel, half))  # else XLA takes the numbers before they were rounded for those after
    shift += tf.reduce_sum((kernel - tf.cast(rounded, tf.float32)) * centre, 0)
    most = kept(tf.cast(shift, half))
    rest = tf.cast(shift - tf.cast(most, tf.float32), half)
    return tf.concat([rounded, most[None], rest[None]], 0)
