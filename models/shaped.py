"""Layers written so that XLA turns them into few and fast GPU kernels. Slow on CPU; training needs XLA.

Activations are stored as `[channels, height, width, images]`. A pointwise convolution is then the product of a small
matrix with a wide one, and the sums of batch norm and the windows of depthwise convolutions read memory in order. What
each of these gained is in docs/performance.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from models.batch_norm import each, normalised, widened
from models.depthwise import multiplied, shifted, windows
from models.fusion import barrier
from models.layers import Compute, Tensor, activated
from models.outline import Activation

SMALL = 64  # up to so many pixels (a multiple of 16) a depthwise convolution is faster as a product of matrices
WIDE = 6_000_000  # from so many numbers on, batch norm is faster if it does not read an activation for its moments


class Product(NamedTuple):
    """A convolution y = Wᵀx that is not computed yet, so that the batch norm after it can take its moments from x."""

    x: Tensor
    kernel: Tensor  # [inputs, outputs]

    def computed(self) -> Tensor:
        """Return Wᵀx as `[outputs, height, width, images]`."""
        inputs, *rest = self.x.shape
        y = tf.matmul(tf.cast(self.kernel, self.x.dtype), tf.reshape(self.x, (inputs, -1)), transpose_a=True)
        return tf.reshape(y, (-1, *rest))


class Shaped(Compute):
    """The interpreter of an architecture that applies its layers to a batch `[channels, height, width, images]`."""

    def images(self, images: Tensor) -> Tensor:
        return barrier(tf.transpose(images, (3, 1, 2, 0)))  # else XLA augments once per weight of the stem

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1, **how: bool) -> Tensor:
        if how.get("bias") or (how.get("symmetric") and stride > 1):  # only networks that these layers make no faster
            plain = super().convolution
            return _turned(lambda images: plain(name, images, filters, size, stride, **how), x)
        parts = windows(x, size, stride)
        rows = parts[0] if size == 1 else tf.concat(parts, 0)  # im2col: one patch of an image per column
        product = Product(rows, tf.reshape(self.weights[f"{name}/kernel"], (-1, filters)))
        wide = filters > 2 * rows.shape[0] and filters * math.prod(rows.shape[1:]) >= WIDE
        return product if wide and self.training and x.dtype != tf.float16 else product.computed()

    def filtered(self, x: Tensor, kernel: Tensor, stride: int) -> Tensor:
        pixels = x.shape[1] * x.shape[2]
        form = multiplied if pixels <= SMALL and pixels % 16 == 0 else shifted
        return form(x, kernel, stride)

    def channels(self, x: Tensor) -> int:
        return int(x.shape[0])

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        gamma, beta, mean, variance = (
            self.weights[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if not self.training:
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            y = tf.cast(x, tf.float32) * each(scale) + each(beta - mean * scale)
            return activated(tf.cast(y, x.dtype), activation)
        if isinstance(x, Product):
            inputs = self._parts(x.x, axis=3)
            parts = [widened(part, x.kernel, gamma, beta, epsilon, activation) for part in inputs]
        else:
            parts = [normalised(part, gamma, beta, mean, epsilon, activation) for part in self._parts(x, axis=3)]
        self._leave(name, [(mean, variance) for _, mean, variance in parts])
        return self._whole([y for y, _, _ in parts], axis=3)

    def max_pool(self, x: Tensor, size: int, stride: int) -> Tensor:
        return _turned(lambda images: super(Shaped, self).max_pool(images, size, stride), x)

    def pool(self, x: Tensor) -> Tensor:
        return tf.transpose(tf.reduce_mean(tf.cast(x, tf.float32), (1, 2)))


def _turned(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return `layer(x)` for a layer of `Compute`, which takes and returns `[images, height, width, channels]`."""
    return tf.transpose(layer(tf.transpose(x, (3, 1, 2, 0))), (3, 1, 2, 0))
