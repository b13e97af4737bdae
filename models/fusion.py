"""What XLA is told about where to cut the step into kernels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_optimization_barrier

Tensor = Any
LONG = 16384  # longer sums XLA cuts in two kernels


@tf.RegisterGradient("XlaOptimizationBarrier")  # type: ignore[untyped-decorator]
def _passed_on(operation: Any, gradient: Tensor) -> Tensor:
    return gradient


def barrier(x: Tensor) -> Tensor:
    """`x`, computed once and written to memory.

    XLA likes to compute a value again in each kernel that reads it. That is right for a product and wrong for what a
    depthwise convolution reads nine times.
    """
    return x if tf.executing_eagerly() else xla_optimization_barrier(input=[x])[0]


def sums(parts: list[Tensor]) -> list[Tensor]:
    """The sum per channel of each array `[channels, height, width, images]`.

    Long ones by rows first, then all together: left alone, XLA cuts them too, with a second kernel for every array.
    """
    _, height, width, images = parts[0].shape
    if height * width * images <= LONG:
        return [tf.reduce_sum(part, (1, 2, 3)) for part in parts]
    rows = tf.stack([tf.reduce_sum(part, (2, 3)) for part in parts])
    return list(tf.unstack(tf.reduce_sum(rows, 2)))
