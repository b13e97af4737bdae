"""The arithmetic of the layers in TensorFlow, as pure functions of the weights passed in.

`Compute` is the interpreter of an architecture that computes. It holds no variables: weights come in as
tensors and new moving statistics go out as tensors, so that the same function runs eagerly, in a graph,
under XLA and in every replica of a `tf.distribute` strategy (XLA refuses to touch another replica's variables).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

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

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1) -> Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        return tf.nn.conv2d(x, kernel, stride, "SAME")

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        return tf.nn.depthwise_conv2d(x, kernel, (1, stride, stride, 1), "SAME")

    def dense(self, name: str, x: Tensor, units: int) -> Tensor:
        # logits in float32: a bf16 softmax loses the small probabilities
        return tf.cast(x, tf.float32) @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def norm(self, name: str, x: Tensor, epsilon: float) -> Tensor:
        gamma, beta, mean, variance = (
            self.weights[f"{name}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if not self.training:
            # in float32 as in training: rounded to bfloat16, a large mean would drown what is left of x
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            return tf.cast(tf.cast(x, tf.float32) * scale + (beta - mean * scale), x.dtype)
        y, batch_mean, batch_variance = self._normalised(x, gamma, beta, mean, epsilon)
        self.found[f"{name}/moving_mean"], self.found[f"{name}/moving_variance"] = batch_mean, batch_variance
        return y

    def relu(self, x: Tensor) -> Tensor:
        return tf.nn.relu(x)

    def relu6(self, x: Tensor) -> Tensor:
        return tf.nn.relu6(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def pool(self, x: Tensor) -> Tensor:
        return tf.reduce_mean(tf.cast(x, tf.float32), (1, 2))

    def _normalised(self, x: Tensor, gamma: Tensor, beta: Tensor, near: Tensor, epsilon: float) -> tuple[Tensor, ...]:
        """`x` normalised by its own statistics, and these: mean and (biased) variance per channel."""
        # the library's fused kernel: 0.92 x the step of separate reductions, on CPU
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=epsilon, is_training=True)
        count = tf.size(x) // x.shape[-1]
        # the kernel returns the unbiased variance; the moving statistic follows the one that normalised
        return y, mean, variance * tf.cast(count - 1, tf.float32) / tf.cast(count, tf.float32)


class Shaped(Compute):
    """The same layers written so that XLA makes few and large GPU kernels of them; slow without XLA, and on CPU."""

    def convolution(self, name: str, x: Tensor, filters: int, size: int, stride: int = 1) -> Tensor:
        if size > 1:
            return super().convolution(name, x, filters, size, stride)
        x = x[:, ::stride, ::stride] if stride > 1 else x
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        rows = tf.reshape(x, (-1, x.shape[-1])) @ tf.reshape(kernel, (-1, filters))
        return tf.reshape(rows, (-1, *x.shape[1:3], filters))

    def depthwise(self, name: str, x: Tensor, size: int, stride: int = 1) -> Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], x.dtype)
        return shifted_products(x, kernel[..., 0], stride)

    def _normalised(self, x: Tensor, gamma: Tensor, beta: Tensor, near: Tensor, epsilon: float) -> tuple[Tensor, ...]:
        return normalised(x, gamma, beta, near, epsilon)


def shifted_products(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """A depthwise convolution, padded as "SAME", as a sum of shifted images times one weight per channel."""
    size = kernel.shape[0]
    out = [-(-n // stride) for n in x.shape[1:3]]
    missing = [max((o - 1) * stride + size - n, 0) for o, n in zip(out, x.shape[1:3], strict=True)]
    padded = tf.pad(x, [[0, 0], *([m // 2, m - m // 2] for m in missing), [0, 0]])
    rows, columns = ((o - 1) * stride + 1 for o in out)
    total = 0.0
    for i in range(size):
        for j in range(size):
            part = padded[:, i : i + rows : stride, j : j + columns : stride]
            total += tf.cast(part, tf.float32) * tf.cast(kernel[i, j], tf.float32)
    return tf.cast(total, x.dtype)


def normalised(x: Tensor, gamma: Tensor, beta: Tensor, near: Tensor, epsilon: float) -> tuple[Tensor, ...]:
    """`x` normalised over all but its channels, mean and variance; both sums in one pass over `x`.

    The sums are of distances from `near`, the moving mean: mean of squares less square of the mean loses nothing then.
    """
    wide = tf.cast(x, tf.float32) - tf.stop_gradient(near)
    mean = tf.reduce_mean(wide, (0, 1, 2))
    variance = tf.maximum(tf.reduce_mean(tf.square(wide), (0, 1, 2)) - tf.square(mean), 0.0)
    scale = gamma * tf.math.rsqrt(variance + epsilon)
    y = wide * scale + (beta - mean * scale)
    return tf.cast(y, x.dtype), mean + near, variance
