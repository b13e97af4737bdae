"""Depthwise convolutions of activations `[channels, height, width, images]`, in two forms, gradients written out.

`shifted`: nine shifted images times one weight each, which XLA fuses with what is around them.
`multiplied`: for small images the convolution of a channel as a matrix of pixels × pixels, a product of the library.
Products and sums of `shifted` are float32, those of `multiplied` what the matrix units do.
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
    """Pixels of black before and after, as "SAME" has them."""
    missing = max((-(-pixels // stride) - 1) * stride + size - pixels, 0)
    return missing // 2, missing - missing // 2


def windows(x: Tensor, size: int, stride: int) -> list[Tensor]:
    """The images as each weight of a `size` × `size` kernel sees them."""
    padded = tf.pad(x, [[0, 0], *(margins(size, stride, n) for n in x.shape[1:3]), [0, 0]])
    return _moved(padded, size, [(-(-n // stride) - 1) * stride + 1 for n in x.shape[1:3]], stride)


def _moved(x: Tensor, size: int, pixels: Sequence[int], stride: int = 1) -> list[Tensor]:
    """What `size` × `size` windows of so many pixels show, each moved by one against the last."""
    high, wide = pixels
    return [
        tf.strided_slice(x, (0, i, j, 0), (x.shape[0], i + high, j + wide, x.shape[3]), (1, stride, stride, 1))
        for i in range(size)
        for j in range(size)
    ]


def shifted(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """y = Σₖ wₖ · windowₖ(x), over the weights k of `kernel` `[size, size, channels, 1]`.

    ∂L/∂wₖ = Σ windowₖ(x) · g        ∂L/∂x = Σₖ wₖ · windowₖ⁻¹(g),   the windows of the spread gradient, reversed
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
    """A gradient with zeros for the pixels that a stride left out, and margins such that every shift of it fits."""
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
    """y = M x in every channel, M = Σₖ wₖ Pₖ; Pₖ has ones where weight k stands. `kernel`: `[size, size, channels, 1]`.

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
    """1 where a weight stands in the matrix of a convolution, `[weights, outputs × pixels]`."""

    def along(pixels: int) -> Any:  # [weight, output, pixel]
        before, outputs = margins(size, stride, pixels)[0], np.arange(-(-pixels // stride))
        weights = np.arange(size)[:, None, None]
        return np.arange(pixels) == outputs[:, None] * stride + weights - before

    placed = np.einsum("kop,mqr->kmoqpr", along(height), along(width))
    return np.asarray(placed.reshape(size * size, -1), np.float32)
