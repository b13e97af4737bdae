"""The arithmetic of inference, rewritten exactly and without retraining so that XNNPACK can run it sparse.

XNNPACK runs a network sparse only if every layer works channel by channel, and two of our layers do not:

- TensorFlow's "SAME" pads a stride of 2 on one side only. Rotated by 180°, that is a padding of 1 on both sides whose
  last row is never read: so images and kernels are rotated by 180°, which changes no output.
- A first convolution with stride 1 has no sparse form. It equals: enlarge the image twice, pick every second pixel by a
  convolution of stride 2 whose kernel is one 1 (9 copies of each channel), shift each copy by a depthwise kernel
  that is one 1, and sum them with the kernel of the first convolution, reshaped to 1 × 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from models.layers import Compute, Tensor, padded
from models.network import Network, Weights


class Mobile(Compute):
    """The interpreter of an architecture, rotated by 180°, that uses only layers which XNNPACK runs sparse."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights, training=False)
        self.first = True

    def images(self, images: Tensor) -> Tensor:
        # XNNPACK's first layer takes three channels: a grey image is repeated, and the kernel reads the first of them
        images = tf.repeat(images, 3, axis=3) if images.shape[3] == 1 else images
        return tf.reverse(images, [1, 2])

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1, **how: bool) -> Tensor:
        assert not how, "no network of depthwise layers has biases or symmetric padding"
        kernel = tf.reverse(self.weights[f"{name}/kernel"], [0, 1])
        if self.first:
            self.first = False
            kernel = tf.pad(kernel, [[0, 0], [0, 0], [0, 3 - kernel.shape[2]], [0, 0]])
            if stride == 1:
                return _entered(x, kernel)
        x, padding = (padded(x, size), "VALID") if stride > 1 else (x, "SAME")
        return tf.nn.conv2d(x, kernel, stride, padding)

    def filtered(self, x: Tensor, kernel: Tensor, stride: int) -> Tensor:
        x, padding = (padded(x, kernel.shape[0]), "VALID") if stride > 1 else (x, "SAME")
        return tf.nn.depthwise_conv2d(x, tf.reverse(kernel, [0, 1]), (1, stride, stride, 1), padding)


def _entered(x: Tensor, kernel: Tensor) -> Tensor:
    """Return conv2d(x, kernel), stride 1, `kernel` `[3, 3, 3, filters]`, by layers that XNNPACK takes as first ones."""
    pick = np.zeros((3, 3, 3, 27), np.float32)
    shift = np.zeros((3, 3, 27, 1), np.float32)
    for copy in range(27):
        place, channel = divmod(copy, 3)
        pick[1, 1, channel, copy] = 1
        shift[place // 3, place % 3, copy, 0] = 1
    x = tf.image.resize(x, (2 * x.shape[1], 2 * x.shape[2]), "nearest")
    x = tf.nn.conv2d(padded(x, 3), pick, 2, "VALID")
    x = tf.nn.depthwise_conv2d(x, shift, (1, 1, 1, 1), "SAME")
    return tf.nn.conv2d(x, tf.reshape(kernel, (1, 1, 27, kernel.shape[3])), 1, "SAME")


def fits(network: Network) -> bool:
    """Whether XNNPACK could run a network sparse: after the first layer only depthwise and 1 × 1 convolutions."""
    first, *rest = (layer for layer in network.layers if layer.kind != "dense")
    pointwise = all(layer.kernel[0] == 1 for layer in rest if layer.kind == "convolution")
    return pointwise and any(layer.kind == "depthwise" for layer in rest) and first.kernel[0] == 3


def apply(network: Network, weights: Weights, images: Tensor) -> Tensor:
    """Return the logits `[images, classes]` of normalised images, computed with the layers of `Mobile`."""
    net = Mobile({name: tf.constant(value) for name, value in network.named(weights).items()})
    return network.architecture(net, net.images(images))
