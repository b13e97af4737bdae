"""The arithmetic of the layers in TensorFlow, as pure functions of the weights passed in.

`Compute` is the interpreter of an architecture that computes. It holds no variables: weights come in as
tensors and new moving statistics go out as tensors, so that the same function runs eagerly, in a graph,
under XLA and in every replica of a `tf.distribute` strategy (XLA refuses to touch another replica's variables).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from models.outline import Activation

Tensor = Any  # tf.Tensor; TensorFlow ships no types


class Compute:
    """Applies layers to a batch `[images, height, width, channels]` with the given weights.

    Arithmetic runs in the type of the batch; weights are cast to it where they are used. Batch norm computes
    its statistics in float32 over each of `groups` equal parts of the batch by itself, and leaves their mean over the
    parts in `found`, under the names of the moving statistics they advance. So the number of images that are
    normalised together does not depend on how many replicas share a batch.
    """

    def __init__(self, weights: Mapping[str, Tensor], training: bool, groups: int = 1) -> None:
        self.weights = weights
        self.training = training
        self.groups = groups
        self.found: dict[str, Tensor] = {}

    def images(self, images: Tensor) -> Tensor:
        """A batch as the layers of this interpreter take it."""
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
        """Return the largest number of every window. Inputs come out of a ReLU, so a border of 0 changes nothing."""
        if size % 2:
            return tf.nn.max_pool2d(padded(x, size), size, stride, "VALID")
        return tf.nn.max_pool2d(x, size, stride, "SAME")

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        return tf.nn.depthwise_conv2d(x, kernel, (1, stride, stride, 1), "SAME")

    def dense(self, name: str, x: Tensor, units: int) -> Tensor:
        # logits in float32: a bf16 softmax loses the small probabilities
        return tf.cast(x, tf.float32) @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        gamma, beta, mean, variance = (
            self.weights[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if not self.training:
            # in float32 as in training: rounded to bfloat16, a large mean would drown what is left of x
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            y = tf.cast(tf.cast(x, tf.float32) * scale + (beta - mean * scale), x.dtype)
            return activated(y, activation)
        # the library's fused kernel: 0.92 x the step of separate reductions, on CPU
        parts = [
            tf.compat.v1.nn.fused_batch_norm(part, gamma, beta, epsilon=epsilon, is_training=True)
            for part in self._parts(x, axis=0)
        ]
        count = tf.cast(tf.size(x) // (x.shape[-1] * self.groups), tf.float32)
        # the kernel returns the unbiased variance; the moving statistic follows the one that normalised
        self._leave(name, [(mean, variance * (count - 1) / count) for _, mean, variance in parts])
        return activated(self._whole([y for y, _, _ in parts], axis=0), activation)

    def _parts(self, x: Tensor, axis: int) -> list[Tensor]:
        """The groups of images that are normalised together."""
        return [x] if self.groups == 1 else list(tf.split(x, self.groups, axis))

    def _whole(self, parts: list[Tensor], axis: int) -> Tensor:
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis)

    def _leave(self, name: str, moments: list[tuple[Tensor, Tensor]]) -> None:
        """The mean over the groups of the mean and variance that each was normalised by."""
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
