"""Depthwise convolutions of activations `[channels, height, width, images]`, in two forms, gradients written out.

`shifted`: nine shifted images times one weight each, which XLA fuses with what is around them. An image that comes in
a frame of zeros is read without a question whether there is a pixel.
`multiplied`: for small images the convolution of a channel as a matrix of pixels × pixels, a product of the library.
Products and sums of `shifted` are float32, those of `multiplied` what the matrix units do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from models.batch_norm import EACH
from models.fusion import kept, sums

Tensor = Any


def margins(size: int, stride: int, pixels: int) -> tuple[int, int]:
    """Pixels of black before and after, as "SAME" has them."""
    missing = max((-(-pixels // stride) - 1) * stride + size - pixels, 0)
    return missing // 2, missing - missing // 2


def windows(x: Tensor, size: int, stride: int, frame: int = 0) -> list[Tensor]:
    """The images as each weight of a `size` × `size` kernel sees them, inside a frame of so many pixels of zeros."""
    pads, firsts, lasts = [[0, 0]], [], []
    for framed in x.shape[1:3]:
        pixels = framed - 2 * frame
        before, after = (margin - frame for margin in margins(size, stride, pixels))
        pads.append([max(before, 0), max(after, 0)])
        firsts.append(max(-before, 0))
        lasts.append((-(-pixels // stride) - 1) * stride + 1)
    padded = tf.pad(x, [*pads, [0, 0]]) if any(map(any, pads)) else x
    (top, left), (high, wide) = firsts, lasts
    return [
        padded[:, top + i : top + i + high : stride, left + j : left + j + wide : stride]
        for i in range(size)
        for j in range(size)
    ]


def shifted(x: Tensor, kernel: Tensor, stride: int, frame: int) -> Tensor:
    """`kernel` is `[size, size, channels, 1]`; the images stand in a frame of so many pixels of zeros."""
    size, shape = kernel.shape[0], x.shape

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def convolved(x: Tensor, kernel: Tensor):  # type: ignore[no-untyped-def]
        weights = tf.reshape(kernel, (size * size, -1))
        x = kept(x)
        seen = windows(x, size, stride, frame)

        def gradient(pull: Tensor) -> tuple[Tensor, Tensor]:
            pull = kept(pull)
            classes = _returned(pull, size, stride, frame, shape[1:3])
            if stride == 1:  # what the pixels get back is read for both gradients, in one pass
                (parts,), whole = classes.values(), x
            else:
                parts, whole = dict(enumerate(seen)), pull
            whole = tf.cast(whole, tf.float32)
            products = sums([tf.cast(parts[k], tf.float32) * whole for k in range(size * size)])
            back = _interleaved({at: _weighted(parts, weights) for at, parts in classes.items()}, stride, shape)
            return tf.cast(back, x.dtype), tf.reshape(tf.stack(products), kernel.shape)

        return kept(tf.cast(_weighted(dict(enumerate(seen)), weights), x.dtype)), gradient

    return convolved(x, kernel)


def _weighted(parts: dict[int, Tensor], weights: Tensor) -> Tensor:
    return sum(tf.cast(part, tf.float32) * weights[k][EACH] for k, part in parts.items())


def _returned(
    pull: Tensor, size: int, stride: int, frame: int, lengths: Sequence[int]
) -> dict[tuple[int, int], dict[int, Tensor]]:
    """What each weight brings back to the pixels of each class: those that lie alike to the stride."""
    axes, pads = [], [[0, 0]]
    for length, outputs in zip(lengths, pull.shape[1:3], strict=True):
        before = margins(size, stride, length - 2 * frame)[0] - frame
        # output o read with weight k the pixel o × stride + k - before
        offsets = [
            {k: (place + before - k) // stride for k in range(size) if (place + before - k) % stride == 0}
            for place in range(stride)
        ]
        every = [offset for each in offsets for offset in each.values()]
        front, count = max(0, -min(every)), -(-length // stride)
        pads.append([front, max(0, count + max(every) - outputs)])
        axes.append([{k: slice(front + o, front + o + count) for k, o in each.items()} for each in offsets])
    padded = tf.pad(pull, [*pads, [0, 0]])
    return {
        (i, j): {
            k * size + m: padded[:, rows, columns]
            for k, rows in axes[0][i].items()
            for m, columns in axes[1][j].items()
        }
        for i in range(stride)
        for j in range(stride)
    }


def _interleaved(classes: dict[tuple[int, int], Tensor], stride: int, shape: Sequence[int]) -> Tensor:
    """The pixels of all classes where they belong."""
    if stride == 1:
        return classes[0, 0]
    rows = [tf.stack([classes[i, j] for j in range(stride)], 3) for i in range(stride)]
    whole = tf.stack(rows, 2)  # [channels, height ÷ stride, stride, width ÷ stride, stride, images]
    channels, high, _, wide, _, images = whole.shape
    return tf.reshape(whole, (channels, high * stride, wide * stride, images))[:, : shape[1], : shape[2]]


def multiplied(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """`kernel` is `[size, size, channels, 1]`."""
    size, (channels, height, width, images) = kernel.shape[0], x.shape
    high, wide = -(-height // stride), -(-width // stride)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def convolved(x: Tensor, kernel: Tensor):  # type: ignore[no-untyped-def]
        places = tf.constant(_places(size, stride, height, width), x.dtype)
        weights = tf.cast(tf.reshape(kernel, (size * size, channels)), x.dtype)
        matrices = tf.matmul(weights, places, transpose_a=True)
        matrices = kept(tf.reshape(matrices, (channels, high * wide, height * width)))
        pixels = tf.reshape(x, (channels, height * width, images))

        def gradient(pull: Tensor) -> tuple[Tensor, Tensor]:
            pull = kept(tf.reshape(pull, (channels, high * wide, images)))
            across = tf.reshape(tf.matmul(pull, pixels, transpose_b=True), (channels, -1))
            back = tf.reshape(tf.matmul(matrices, pull, transpose_a=True), x.shape)
            products = tf.cast(tf.matmul(places, across, transpose_b=True), tf.float32)
            return back, tf.reshape(products, kernel.shape)

        return tf.reshape(tf.matmul(matrices, pixels), (channels, high, wide, images)), gradient

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
