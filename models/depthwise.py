"""Depthwise convolutions of activations `[channels, height, width, images]` in two forms, with hand-written gradients.

`shifted`: the sum of size² shifted images, each times one weight, which XLA fuses with the operations around it.
`multiplied`: for small images; per channel one matrix product, output pixels × input pixels, by the library.
`shifted` multiplies and adds in float32, `multiplied` in the precision of the matrix units.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from models.batch_norm import each
from models.fusion import barrier, sums

Tensor = Any


def margins(size: int, stride: int, pixels: int) -> tuple[int, int]:
    """Return the number of zeros that "SAME" padding puts before and after an axis of `pixels` pixels."""
    missing = max((-(-pixels // stride) - 1) * stride + size - pixels, 0)
    return missing // 2, missing - missing // 2


def windows(x: Tensor, size: int, stride: int) -> list[Tensor]:
    """Return the pixels that each of a kernel's size² weights multiplies, as arrays shaped like the output."""
    padded = tf.pad(x, [[0, 0], *(margins(size, stride, n) for n in x.shape[1:3]), [0, 0]])
    return _moved(padded, size, [(-(-n // stride) - 1) * stride + 1 for n in x.shape[1:3]], stride)


def _moved(x: Tensor, size: int, pixels: Sequence[int], stride: int = 1) -> list[Tensor]:
    """Return the size² windows of `pixels` (height, width) in `x` that start at (i, j) for i, j < size, row by row."""
    high, wide = pixels
    return [
        tf.strided_slice(x, (0, i, j, 0), (x.shape[0], i + high, j + wide, x.shape[3]), (1, stride, stride, 1))
        for i in range(size)
        for j in range(size)
    ]


def shifted(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """Return y = Σₖ wₖ · windowₖ(x), the depthwise convolution with `kernel` `[size, size, channels, 1]`.

    ∂L/∂wₖ = Σ windowₖ(x) · g        ∂L/∂x = Σₖ wₖ · windowₖ⁻¹(g), windows of `_spread` g, in reverse order
    """
    size, pixels = kernel.shape[0], x.shape[1:3]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def convolved(x: Tensor, kernel: Tensor):  # type: ignore[no-untyped-def]
        weights = tf.unstack(tf.reshape(kernel, (size * size, -1)))
        x = barrier(x)
        seen = windows(x, size, stride)

        def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
            gradient = barrier(gradient)
            returned = _moved(_spread(gradient, size, stride, pixels), size, pixels)[::-1]
            # with stride 1 both gradients read the same windows of the gradient, in one pass
            whole, parts = (x, returned) if stride == 1 else (gradient, seen)
            whole = tf.cast(whole, tf.float32)
            products = sums([tf.cast(part, tf.float32) * whole for part in parts])
            return tf.cast(_weighted(returned, weights), x.dtype), tf.reshape(tf.stack(products), kernel.shape)

        return barrier(tf.cast(_weighted(seen, weights), x.dtype)), backward

    return convolved(x, kernel)


def _weighted(parts: list[Tensor], weights: list[Tensor]) -> Tensor:
    return sum(tf.cast(part, tf.float32) * each(weight) for part, weight in zip(parts, weights, strict=True))


def _spread(gradient: Tensor, size: int, stride: int, pixels: Sequence[int]) -> Tensor:
    """Return the gradient with zeros at the pixels that the stride skipped, padded so that every window of it fits."""
    pads = [[0, 0]]
    for axis, n in zip((1, 2), pixels, strict=True):
        length = (gradient.shape[axis] - 1) * stride + 1
        if stride > 1:
            gradient = tf.stack([gradient, *[tf.zeros_like(gradient)] * (stride - 1)], axis + 1)
            gradient = tf.reshape(gradient, (*gradient.shape[:axis], -1, *gradient.shape[axis + 2 :]))
            gradient = gradient[:, :length] if axis == 1 else gradient[:, :, :length]
        before = margins(size, stride, n)[0]
        pads.append([size - 1 - before, n + before - length])
    return tf.pad(gradient, [*pads, [0, 0]])


def multiplied(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """Return the depthwise convolution y = M x per channel, M = Σₖ wₖ Pₖ, for a `kernel` `[size, size, channels, 1]`.

    Pₖ `[output pixels, input pixels]` is 1 where weight k connects the two, else 0 (`_places`).

    ∂L/∂x = Mᵀ g        ∂L/∂wₖ = ⟨Pₖ, g xᵀ⟩
    """
    size, (channels, height, width, images) = kernel.shape[0], x.shape
    high, wide = -(-height // stride), -(-width // stride)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def convolved(x: Tensor, kernel: Tensor):  # type: ignore[no-untyped-def]
        places = tf.constant(_places(size, stride, height, width), x.dtype)
        weights = tf.cast(tf.reshape(kernel, (size * size, channels)), x.dtype)
        matrices = tf.matmul(weights, places, transpose_a=True)
        matrices = barrier(tf.reshape(matrices, (channels, high * wide, height * width)))
        pixels = tf.reshape(x, (channels, height * width, images))

        def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
            gradient = barrier(tf.reshape(gradient, (channels, high * wide, images)))
            across = tf.reshape(tf.matmul(gradient, pixels, transpose_b=True), (channels, -1))
            back = tf.reshape(tf.matmul(matrices, gradient, transpose_a=True), x.shape)
            products = tf.cast(tf.matmul(places, across, transpose_b=True), tf.float32)
            return back, tf.reshape(products, kernel.shape)

        return tf.reshape(tf.matmul(matrices, pixels), (channels, high, wide, images)), backward

    return convolved(x, kernel)


@cache
def _places(size: int, stride: int, height: int, width: int) -> np.ndarray:
    """Return the matrices Pₖ as `[size², output pixels × input pixels]`: 1 where weight k connects two pixels."""

    def along(pixels: int) -> Any:  # [weight, output, pixel]
        before, outputs = margins(size, stride, pixels)[0], np.arange(-(-pixels // stride))
        weights = np.arange(size)[:, None, None]
        return np.arange(pixels) == outputs[:, None] * stride + weights - before

    placed = np.einsum("kop,mqr->kmoqpr", along(height), along(width))
    return np.asarray(placed.reshape(size * size, -1), np.float32)
