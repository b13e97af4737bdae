"""Hints to XLA about where to split the training step into GPU kernels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_optimization_barrier

Tensor = Any
LONG = 16384  # XLA splits longer sums into two kernels


@tf.RegisterGradient("XlaOptimizationBarrier")  # type: ignore[untyped-decorator]
def _passed_on(operation: Any, gradient: Tensor) -> Tensor:
    return gradient


def barrier(x: Tensor) -> Tensor:
    """Return `x` unchanged, and make XLA compute it once and write it to memory.

    XLA tends to recompute a value in each kernel that reads it. That is good for a product and bad for the input of a
    depthwise convolution, which is read nine times.
    """
    return x if tf.executing_eagerly() else xla_optimization_barrier(input=[x])[0]


def sums(parts: list[Tensor]) -> list[Tensor]:
    """Return the sum per channel `[channels]` of each array `[channels, height, width, images]`.

    Long sums are taken per row first and then for all arrays at once: XLA would add a second kernel for every array.
    """
    _, height, width, images = parts[0].shape
    if height * width * images <= LONG:
        return [tf.reduce_sum(part, (1, 2, 3)) for part in parts]
    rows = tf.stack([tf.reduce_sum(part, (2, 3)) for part in parts])
    return list(tf.unstack(tf.reduce_sum(rows, 2)))
