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
    its statistics in float32 over the images it sees (under several replicas: those of its own replica) and
    leaves them in `found`, under the names of the moving statistics they advance.
    """

    def __init__(self, weights: Mapping[str, Tensor], training: bool) -> None:
        self.weights = weights
        self.training = training
        self.found: dict[str, Tensor] = {}

    def images(self, images: Tensor) -> Tensor:
        """A batch as the layers of this interpreter take it."""
        return images

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1) -> Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        return tf.nn.conv2d(x, kernel, stride, "SAME")

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
        y, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
            x, gamma, beta, epsilon=epsilon, is_training=True
        )
        count = tf.size(x) // x.shape[-1]
        # the kernel returns the unbiased variance; the moving statistic follows the one that normalised
        biased = batch_variance * tf.cast(count - 1, tf.float32) / tf.cast(count, tf.float32)
        self.found[f"{name}/moving_mean"], self.found[f"{name}/moving_variance"] = batch_mean, biased
        return activated(y, activation)

    def relu(self, x: Tensor) -> Tensor:
        return tf.nn.relu(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def pool(self, x: Tensor) -> Tensor:
        return tf.reduce_mean(tf.cast(x, tf.float32), (1, 2))


def activated(x: Tensor, activation: Activation) -> Tensor:
    return {"": tf.identity, "relu": tf.nn.relu, "relu6": tf.nn.relu6}[activation](x)
