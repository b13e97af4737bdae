"""The same layers, written so that XLA makes few and fast GPU kernels of them. Slow on CPU; needs XLA to train.

Activations lie as `[channels, height, width, images]`. Pointwise convolutions are then products of a small matrix with
a wide one, the sums of batch norm run along memory, and so does every shifted image of a depthwise convolution. What
each of these gave is in docs/performance.md.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from models.batch_norm import EACH, normalised, widened
from models.depthwise import multiplied, shifted, windows
from models.fusion import kept
from models.layers import Compute, Tensor, activated
from models.outline import Activation

SMALL = 64  # pixels of an image up to which a depthwise convolution is a product of matrices
WIDE = 6_000_000  # numbers of an activation from which batch norm had better not read it again
FRAME = 1


class Product(NamedTuple):
    """A pointwise convolution not yet computed: the batch norm after it knows how."""

    x: Tensor
    kernel: Tensor  # [inputs, outputs]

    def computed(self) -> Tensor:
        inputs, *rest = self.x.shape
        y = tf.matmul(tf.cast(self.kernel, self.x.dtype), tf.reshape(self.x, (inputs, -1)), transpose_a=True)
        return tf.reshape(y, (-1, *rest))


class Framed(NamedTuple):
    """Activations in a frame of zeros, as a depthwise convolution likes them."""

    whole: Tensor

    def inside(self) -> Tensor:
        return self.whole[:, FRAME:-FRAME, FRAME:-FRAME]


def plain(x: Tensor | Product | Framed) -> Tensor:
    return x.computed() if isinstance(x, Product) else x.inside() if isinstance(x, Framed) else x


class Shaped(Compute):
    """Applies layers to a batch `[channels, height, width, images]`."""

    def images(self, images: Tensor) -> Tensor:
        turned = tf.transpose(images, (3, 1, 2, 0))
        # flat, so that it is turned in memory here and not wherever it is read, nine times
        return tf.reshape(kept(tf.reshape(turned, (turned.shape[0], -1))), turned.shape)

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1) -> Tensor:
        parts = windows(plain(x), size, stride)
        rows = parts[0] if size == 1 else tf.concat(parts, 0)  # a patch of the image per column
        product = Product(rows, tf.reshape(self.weights[f"{name}/kernel"], (-1, filters)))
        wide = filters > 2 * rows.shape[0] and filters * rows[0].shape.num_elements() >= WIDE
        return product if wide and self.training else product.computed()

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        kernel = self.weights[f"{name}/kernel"]
        if isinstance(x, Framed):
            return shifted(x.whole, kernel, stride, FRAME)
        x = plain(x)
        return multiplied(x, kernel, stride) if _small(x) else shifted(x, kernel, stride, frame=0)

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        gamma, beta, mean, variance = (
            self.weights[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if not self.training:
            x = plain(x)
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            y = tf.cast(x, tf.float32) * scale[EACH] + (beta - mean * scale)[EACH]
            return activated(tf.cast(y, x.dtype), activation)
        if isinstance(x, Product):
            frame = 0 if _small(x.x) else FRAME
            y, mean, variance = widened(x.x, x.kernel, gamma, beta, epsilon, activation, frame)
            y = Framed(y) if frame else y
        else:
            y, mean, variance = normalised(plain(x), gamma, beta, mean, epsilon, activation)
        self.found[f"{name}/moving_mean"], self.found[f"{name}/moving_variance"] = mean, variance
        return y

    def relu(self, x: Tensor) -> Tensor:
        return super().relu(plain(x))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return plain(x) + plain(y)

    def pool(self, x: Tensor) -> Tensor:
        return tf.transpose(tf.reduce_mean(tf.cast(plain(x), tf.float32), (1, 2)))


def _small(x: Tensor) -> bool:
    return bool(x.shape[1] * x.shape[2] <= SMALL)
