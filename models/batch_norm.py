"""Batch norm of activations `[channels, height, width, images]`, with hand-written gradients.

`normalised` takes any activations. `widened` takes a product of few input channels with a kernel of many outputs. It
reads the large output as rarely as possible: mean and variance of a product follow from the moments of its input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from models.fusion import barrier, sums
from models.outline import Activation

Tensor = Any
TOP = {"": None, "relu": float("inf"), "relu6": 6.0}


def each(vector: Tensor) -> Tensor:
    """Return a vector with one number per channel as `[channels, 1, 1, 1]`, so that it broadcasts over activations."""
    return tf.reshape(vector, (-1, 1, 1, 1))


def normalised(
    x: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, epsilon: float, activation: Activation
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `x` normalised per channel and activated, and the mean and variance `[channels]` that normalised it.

        d = x − moving mean        mean = E[d] + moving mean        variance = E[d²] − E[d]²
        y = activation(γ (x − mean) / σ + β),   σ = √(variance + ε)

    Measured from the moving mean, E[d²] − E[d]² does not cancel, and one pass over `x` gives both sums. With
    g = ∂L/∂y where the activation passes the gradient on (else 0), n numbers per channel and x̂ = (x − mean) / σ:

        ∂L/∂β = Σ g      ∂L/∂γ = Σ g x̂      ∂L/∂x = γ/σ · (g − Σ g / n − x̂ Σ g x̂ / n)

    The backward pass computes the activation's input again instead of storing it.
    """
    count = float(x.shape[1] * x.shape[2] * x.shape[3])
    top = TOP[activation]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: Tensor, gamma: Tensor, beta: Tensor):  # type: ignore[no-untyped-def]
        distance = tf.cast(x, tf.float32) - each(moving_mean)
        off, square = (total / count for total in sums([distance, tf.square(distance)]))
        variance = tf.maximum(square - tf.square(off), 0.0)
        mean = off + moving_mean
        inverse = tf.math.rsqrt(variance + epsilon)
        scale = gamma * inverse
        wide, factor = tf.cast(barrier(x), tf.float32), each(scale)
        y = wide * factor + each(beta - mean * scale)

        def backward(gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            passes = None if top is None else (y > 0.0) & (y < top)

            def through(gradient: Tensor) -> Tensor:
                gradient = tf.cast(gradient, tf.float32)
                return gradient if passes is None else tf.where(passes, gradient, 0.0)

            passed = through(gradient)
            total, along = sums([passed, passed * (wide - each(mean))])
            along *= inverse
            slope = -scale * inverse * along / count
            rest = -scale * total / count - slope * mean
            back = through(barrier(gradient)) * factor + wide * each(slope) + each(rest)
            return tf.cast(back, x.dtype), along, total

        return (tf.cast(_cut(y, top), x.dtype), mean, variance), backward

    y, mean, variance = run(x, gamma, beta)
    return y, mean, variance


def widened(
    x: Tensor, kernel: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, activation: Activation
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `normalised` of y = Wᵀx, without reading the large y for its moments; `kernel` is W `[inputs, outputs]`.

        mean(y) = Wᵀ E[x]        variance(y) = diag(Wᵀ C W),   C = E[xxᵀ] − E[x] E[x]ᵀ

    `rows` are the inputs with ones below them: rows · rowsᵀ gives all moments in one product, and the normalised
    kernel, with its shift in the place of the ones, times rows gives the output. In the gradient, rows · gᵀ gives Σ g,
    Σ g x̂ and ∂L/∂W; what batch norm subtracts from ∂L/∂x is again a small kernel times rows. There are two rows of
    ones: the second carries what the shift loses when it is rounded to half precision. Sums are float32, as in
    `normalised`. float16 is not supported: what is subtracted from ∂L/∂x is too small for it.
    """
    inputs, *shape = x.shape
    count, top, half = float(np.prod(shape)), TOP[activation], x.dtype

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: Tensor, kernel: Tensor, gamma: Tensor, beta: Tensor):  # type: ignore[no-untyped-def]
        rows = barrier(tf.concat([tf.reshape(x, (inputs, -1)), tf.ones((2, int(count)), half)], 0))
        exact = tf.cast(rows, tf.float32)
        moments = tf.matmul(exact, exact, transpose_b=True) / count
        centre = moments[:inputs, inputs, None]
        seen = tf.matmul(moments[:inputs, :inputs] - centre * tf.transpose(centre), kernel)  # covariance × kernel
        mean = tf.reduce_sum(centre * kernel, 0)
        variance = tf.maximum(tf.reduce_sum(kernel * seen, 0), 0.0)
        inverse = tf.math.rsqrt(variance + epsilon)
        scale = gamma * inverse
        scaled = _with_shift(kernel * scale, beta - mean * scale, centre, half)
        y = barrier(_cut(tf.matmul(scaled, rows, transpose_a=True), top))

        def backward(gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            gradient = tf.reshape(gradient, y.shape)
            gradient = barrier(
                gradient if top is None else tf.where((y > 0) & (y < top), gradient, tf.zeros_like(gradient))
            )
            across = tf.matmul(exact, tf.cast(gradient, tf.float32), transpose_b=True)
            across, total = across[:inputs] - centre * across[inputs], across[inputs]
            along = tf.reduce_sum(kernel * across, 0) * inverse
            slope = -scale * inverse * along / count
            rest = -scale * total / count - slope * mean
            small = tf.matmul(tf.concat([kernel * slope, rest[None]], 0), kernel, transpose_b=True)
            back = tf.matmul(scaled[:inputs], gradient)
            back += tf.matmul(_with_shift(small[:inputs], small[inputs], centre, half), rows, transpose_a=True)
            return tf.reshape(back, x.shape), scale * (across - inverse * along * seen), along, total

        return (tf.reshape(y, (-1, *shape)), mean, variance), backward

    y, mean, variance = run(x, kernel, gamma, beta)
    return y, mean, variance


def _cut(y: Tensor, top: float | None) -> Tensor:
    """Return `y` clipped to [0, top], or unchanged if `top` is None (no activation)."""
    if top is None:
        return y
    y = tf.nn.relu(y)
    return y if top == float("inf") else tf.minimum(y, tf.cast(top, y.dtype))


def _with_shift(kernel: Tensor, shift: Tensor, centre: Tensor, half: Any) -> Tensor:
    """Return the kernel `[inputs + 2, outputs]` for rows that end in two rows of ones, which carry the shift.

    The shift includes a correction for rounding the kernel to half precision, exact at the mean input (`centre`).
    """
    rounded = barrier(tf.cast(kernel, half))  # without the barrier XLA removes the rounding
    shift += tf.reduce_sum((kernel - tf.cast(rounded, tf.float32)) * centre, 0)
    most = barrier(tf.cast(shift, half))
    rest = tf.cast(shift - tf.cast(most, tf.float32), half)
    return tf.concat([rounded, most[None], rest[None]], 0)
