"""Layers written so that XLA makes few and fast GPU kernels of them. Slow on CPU; training needs XLA.

Activations lie as `[channels, height, width, images]`. Pointwise convolutions are then products of a small matrix with
a wide one, the sums of batch norm run along memory, and so does every shifted image of a depthwise convolution. What
each of these gave is in docs/performance.md.
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

SMALL = 64  # pixels of an image up to which a depthwise convolution is a product of matrices, in units of 16
WIDE = 6_000_000  # numbers of an activation from which batch norm had better not read it again


class Product(NamedTuple):
    """A convolution not yet computed: the batch norm that follows every convolution knows how."""

    x: Tensor
    kernel: Tensor  # [inputs, outputs]

    def computed(self) -> Tensor:
        inputs, *rest = self.x.shape
        y = tf.matmul(tf.cast(self.kernel, self.x.dtype), tf.reshape(self.x, (inputs, -1)), transpose_a=True)
        return tf.reshape(y, (-1, *rest))


class Shaped(Compute):
    """Applies layers to a batch `[channels, height, width, images]`."""

    def images(self, images: Tensor) -> Tensor:
        return barrier(tf.transpose(images, (3, 1, 2, 0)))  # else augmented anew for each of the stem's nine weights

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1, **how: bool) -> Tensor:
        if how.get("bias") or (how.get("symmetric") and stride > 1):  # no network that gains by these layers has them
            plain = super().convolution
            return _turned(lambda images: plain(name, images, filters, size, stride, **how), x)
        parts = windows(x, size, stride)
        rows = parts[0] if size == 1 else tf.concat(parts, 0)  # a patch of the image per column
        product = Product(rows, tf.reshape(self.weights[f"{name}/kernel"], (-1, filters)))
        wide = filters > 2 * rows.shape[0] and filters * math.prod(rows.shape[1:]) >= WIDE
        return product if wide and self.training and x.dtype != tf.float16 else product.computed()

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        pixels = x.shape[1] * x.shape[2]
        form = multiplied if pixels <= SMALL and pixels % 16 == 0 else shifted
        return form(x, self.weights[f"{name}/kernel"], stride)

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
    """Apply a layer of `Compute`, which takes `[images, height, width, channels]`."""
    return tf.transpose(layer(tf.transpose(x, (3, 1, 2, 0))), (3, 1, 2, 0))
