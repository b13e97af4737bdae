"""The arithmetic of the layers in TensorFlow, as pure functions of the weights passed in.

`Compute` is the interpreter of an architecture that computes outputs. It holds no variables: weights come in and new
moving statistics go out as tensors, so that the same function runs eagerly, in a graph, under XLA and in every
replica of a `tf.distribute` strategy (XLA refuses to touch another replica's variables).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from models.blur import KERNEL
from models.max_pool import max_pool
from models.outline import Activation

Tensor = Any  # tf.Tensor; TensorFlow ships no types


class Compute:
    """The interpreter of an architecture that applies its layers to a batch `[images, height, width, channels]`.

    Arithmetic runs in the type of the batch; weights are cast to it where they are used. Batch norm splits the batch
    into `groups` equal parts and normalises each with its own mean and variance, computed in float32. `found` has their
    mean over the parts, by the names of the moving statistics. So the number of images that are normalised together
    does not depend on how many replicas share a batch.
    """

    def __init__(self, weights: Mapping[str, Tensor], training: bool, groups: int = 1) -> None:
        self.weights = weights
        self.training = training
        self.groups = groups
        self.found: dict[str, Tensor] = {}

    def images(self, images: Tensor) -> Tensor:
        """Return a batch `[images, height, width, channels]` in the layout that this interpreter's layers take."""
        return images

    def convolution(
        self, name: str, x: Tensor, filters: int, size: int, stride: int = 1, *, bias: bool = False,
        symmetric: bool = False,
    ) -> Tensor:  # fmt: skip
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        if symmetric and stride > 1:
            x = tf.nn.conv2d(padded(x, size), kernel, stride, "VALID")
        else:
            x = tf.nn.conv2d(x, kernel, stride, "SAME")
        return self.biased(name, x) if bias else x

    def biased(self, name: str, x: Tensor) -> Tensor:
        return x + tf.cast(self.weights[f"{name}/bias"], x.dtype)

    def max_pool(self, x: Tensor, size: int, stride: int) -> Tensor:
        """Return the maximum of every window. Inputs come out of a ReLU, so padding with 0 changes nothing."""
        if size % 2:
            return max_pool(padded(x, size), size, stride)
        missing = [max(-(-length // stride) * stride - stride + size - length, 0) for length in x.shape[1:3]]
        if any(missing):
            sides = ([total // 2, -(-total // 2)] for total in missing)  # as TensorFlow's "SAME"
            x = tf.pad(x, [[0, 0], *sides, [0, 0]])
        return max_pool(x, size, stride)

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        return self.filtered(x, self.weights[f"{name}/kernel"], stride)

    def filtered(self, x: Tensor, kernel: Tensor, stride: int) -> Tensor:
        """Return every channel of `x` convolved with its own part of `kernel` `[size, size, channels, 1]`."""
        return tf.nn.depthwise_conv2d(x, tf.cast(kernel, x.dtype), (1, stride, stride, 1), "SAME")

    def channels(self, x: Tensor) -> int:
        return int(x.shape[3])

    def blur(self, name: str, x: Tensor) -> Tensor:
        kernel = np.broadcast_to(KERNEL[:, :, None, None], (*KERNEL.shape, self.channels(x), 1))
        return self.filtered(x, tf.constant(kernel), stride=1)

    def dense(self, name: str, x: Tensor, units: int) -> Tensor:
        # logits in float32: a bf16 softmax loses the small probabilities
        return tf.cast(x, tf.float32) @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        gamma, beta, mean, variance = (
            self.weights[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if not self.training:
            # in float32 as in training: in bfloat16, subtracting a large mean would leave few correct digits of x
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            y = tf.cast(tf.cast(x, tf.float32) * scale + (beta - mean * scale), x.dtype)
            return activated(y, activation)
        # TensorFlow's fused kernel: a step takes 0.92 × the time of separate reductions on CPU
        parts = [
            tf.compat.v1.nn.fused_batch_norm(part, gamma, beta, epsilon=epsilon, is_training=True)
            for part in self._parts(x, axis=0)
        ]
        count = tf.cast(tf.size(x) // (x.shape[-1] * self.groups), tf.float32)
        # the kernel returns the unbiased variance; the moving statistic uses the biased one, by which x was normalised
        self._leave(name, [(mean, variance * (count - 1) / count) for _, mean, variance in parts])
        return activated(self._whole([y for y, _, _ in parts], axis=0), activation)

    def _parts(self, x: Tensor, axis: int) -> list[Tensor]:
        """Return the equal parts of the batch that batch norm normalises separately."""
        return [x] if self.groups == 1 else list(tf.split(x, self.groups, axis))

    def _whole(self, parts: list[Tensor], axis: int) -> Tensor:
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis)

    def _leave(self, name: str, moments: list[tuple[Tensor, Tensor]]) -> None:
        """Store the mean over the parts of the batch of their means and variances, as one layer's new statistics."""
        means, variances = zip(*moments, strict=True)
        self.found[f"{name}/moving_mean"] = sum(means) / len(means)
        self.found[f"{name}/moving_variance"] = sum(variances) / len(variances)

    def relu(self, x: Tensor) -> Tensor:
        return tf.nn.relu(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def pool(self, x: Tensor) -> Tensor:
        return tf.reduce_mean(tf.cast(x, tf.float32), (1, 2))


def padded(x: Tensor, size: int) -> Tensor:
    """Return images `[images, height, width, channels]` with (size - 1) / 2 rows and columns of 0 on each side."""
    side = (size - 1) // 2
    return tf.pad(x, [[0, 0], [side, side], [side, side], [0, 0]])


def activated(x: Tensor, activation: Activation) -> Tensor:
    return {"": tf.identity, "relu": tf.nn.relu, "relu6": tf.nn.relu6}[activation](x)
