"""The same layers, written so that XLA makes few and fast GPU kernels of them. Slow on CPU, and without XLA.

Activations lie as `[channels, images, height, width]`. Pointwise convolutions are then products of a small matrix with
a wide one, the sums of batch norm run along memory, and depthwise convolutions are nine shifted images times one weight
per row, which XLA fuses with what is around them. Gradients are written out where that saves passes over activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import tensorflow as tf

from models.layers import Compute, Tensor, activated
from models.outline import Activation

EACH = (slice(None), None, None, None)  # a vector of channels, to go with activations
OVER = (1, 2, 3)  # everything but channels
TOP = {"": None, "relu": float("inf"), "relu6": 6.0}


class Shaped(Compute):
    """Applies layers to a batch `[channels, images, height, width]`."""

    def images(self, images: Tensor) -> Tensor:
        return tf.transpose(images, (3, 0, 1, 2))

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1) -> Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        parts = shifted(x, size, stride)
        rows = parts[0] if size == 1 else tf.concat(parts, 0)  # a patch of the image per column
        y = tf.matmul(tf.reshape(kernel, (-1, filters)), tf.reshape(rows, (rows.shape[0], -1)), transpose_a=True)
        return tf.reshape(y, (filters, *rows.shape[1:]))

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        return depthwise(x, self.weights[f"{name}/kernel"], stride)

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        gamma, beta, mean, variance = (
            self.weights[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if not self.training:
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            y = tf.cast(x, tf.float32) * scale[EACH] + (beta - mean * scale)[EACH]
            return activated(tf.cast(y, x.dtype), activation)
        y, mean, variance = normalised(x, gamma, beta, mean, epsilon, activation)
        self.found[f"{name}/moving_mean"], self.found[f"{name}/moving_variance"] = mean, variance
        return y

    def pool(self, x: Tensor) -> Tensor:
        return tf.transpose(tf.reduce_mean(tf.cast(x, tf.float32), (2, 3)))


def margins(size: int, stride: int, pixels: int) -> tuple[int, int]:
    """Pixels of black before and after, as "SAME" has them."""
    missing = max((-(-pixels // stride) - 1) * stride + size - pixels, 0)
    return missing // 2, missing - missing // 2


def shifted(x: Tensor, size: int, stride: int) -> list[Tensor]:
    """The images as each weight of a `size` × `size` kernel sees them."""
    padded = tf.pad(x, [[0, 0], [0, 0], *(margins(size, stride, n) for n in x.shape[2:])])
    return _windows(padded, size, [(-(-n // stride) - 1) * stride + 1 for n in x.shape[2:]], stride)


def _windows(x: Tensor, size: int, pixels: Sequence[int], stride: int = 1) -> list[Tensor]:
    """What `size` × `size` windows of so many pixels show, each moved by one against the last."""
    return [x[:, :, i : i + pixels[0] : stride, j : j + pixels[1] : stride] for i in range(size) for j in range(size)]


def depthwise(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """A depthwise convolution; `kernel` is `[size, size, channels, 1]`, products and sums are float32."""
    size, shape = kernel.shape[0], x.shape

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def convolved(x: Tensor, kernel: Tensor):  # type: ignore[no-untyped-def]
        weights = tf.reshape(kernel, (size * size, -1))

        def gradient(pull: Tensor) -> tuple[Tensor, Tensor]:
            wide = tf.cast(pull, tf.float32)
            parts = [tf.reduce_sum(tf.cast(part, tf.float32) * wide, OVER) for part in shifted(x, size, stride)]
            spread = _spread(pull, size, stride, shape[2:])
            back = _weighted(_windows(spread, size, shape[2:]), weights[::-1])
            return tf.cast(back, x.dtype), tf.reshape(tf.stack(parts), kernel.shape)

        return tf.cast(_weighted(shifted(x, size, stride), weights), x.dtype), gradient

    return convolved(x, kernel)


def _weighted(parts: list[Tensor], weights: Tensor) -> Tensor:
    return sum(tf.cast(part, tf.float32) * weights[i][EACH] for i, part in enumerate(parts))


def _spread(pull: Tensor, size: int, stride: int, pixels: Sequence[int]) -> Tensor:
    """A gradient with zeros for the pixels that a stride left out, and margins such that every shift of it fits."""
    pads = [[0, 0], [0, 0]]
    for axis, n in zip((2, 3), pixels, strict=True):
        length = (pull.shape[axis] - 1) * stride + 1
        if stride > 1:
            pull = tf.stack([pull, *[tf.zeros_like(pull)] * (stride - 1)], axis + 1)
            pull = tf.reshape(pull, (*pull.shape[:axis], -1, *pull.shape[axis + 2 :]))
            pull = pull[:, :, :length] if axis == 2 else pull[:, :, :, :length]
        before = margins(size, stride, n)[0]
        pads.append([size - 1 - before, n + before - length])
    return tf.pad(pull, pads)


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
        wide = tf.cast(x, tf.float32)
        distance = wide - near[EACH]
        off = tf.reduce_sum(distance, OVER) / count
        variance = tf.maximum(tf.reduce_sum(tf.square(distance), OVER) / count - tf.square(off), 0.0)
        mean = off + near
        inverse = tf.math.rsqrt(variance + epsilon)
        scale = gamma * inverse
        affine = partial(_affine, scale=scale, shift=beta - mean * scale)

        def gradient(pull: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            wide, pull = tf.cast(x, tf.float32), tf.cast(pull, tf.float32)
            if top is not None:
                y = affine(wide)
                pull = tf.where((y > 0.0) & (y < top), pull, 0.0)
            total = tf.reduce_sum(pull, OVER)
            along = tf.reduce_sum(pull * (wide - mean[EACH]), OVER) * inverse
            slope = -scale * inverse * along / count
            back = pull * scale[EACH] + wide * slope[EACH] + (-scale * total / count - slope * mean)[EACH]
            return tf.cast(back, x.dtype), along, total

        y = affine(wide)
        y = y if top is None else tf.clip_by_value(y, 0.0, top) if top < float("inf") else tf.nn.relu(y)
        return (tf.cast(y, x.dtype), mean, variance), gradient

    y, mean, variance = run(x, gamma, beta)
    return y, mean, variance


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return x * scale[EACH] + shift[EACH]
