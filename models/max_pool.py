"""Max pooling with its gradient written out, in operations that XLA joins into a few kernels.

XLA's own gradient (select-and-scatter) adds to the inputs in whatever order its threads come. Where windows overlap two
runs may differ in the last bits, and TensorFlow refuses to compile it if operations must be deterministic. Output and
gradient of ResNet's first pooling (3 × 3, stride 2, 256 × 112 × 112 × 64 in bfloat16) take 1.77 ms so and 2.92 ms with
XLA's gradient (one H200, 2026-11-19). Without XLA a CPU takes four times as long as with TensorFlow's gradient where
windows overlap, and under XLA less. The number of images must be known.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import tensorflow as tf

Tensor = Any


def max_pool(x: Tensor, size: int, stride: int) -> Tensor:
    """Return the maximum of every whole window of `[images, height, width, channels]`."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def pooled(x: Tensor) -> Any:
        y = tf.nn.max_pool2d(x, size, stride, "VALID")
        return y, lambda dy: gradient(x, y, dy, size, stride)

    return pooled(x)


# a CPU is 8 to 20 times as slow where every operation writes its result to memory
@tf.function(autograph=False, jit_compile=True)  # type: ignore[untyped-decorator]
def gradient(x: Tensor, y: Tensor, dy: Tensor, size: int, stride: int) -> Tensor:
    """Return dx: a window's dy goes to the first input that is its maximum.

    Input i of all windows is a strided slice x[i]; dx is the sum over i of dy where x[i] is the first to equal y.
    """
    rows, columns = (stride * (length - 1) + 1 for length in y.shape[1:3])
    slices = [
        {"begin": [0, row, column, 0], "end": [x.shape[0], row + rows, column + columns, x.shape[3]],
         "strides": [1, stride, stride, 1]}
        for row, column in product(range(size), repeat=2)
    ]  # fmt: skip
    first = tf.zeros(y.shape, tf.uint8)
    for i in reversed(range(len(slices))):
        first = tf.where(tf.equal(tf.strided_slice(x, **slices[i]), y), tf.constant(i, tf.uint8), first)
    parts = (tf.where(tf.equal(first, i), dy, tf.zeros_like(dy)) for i in range(len(slices)))
    return tf.add_n([
        tf.raw_ops.StridedSliceGrad(shape=x.shape, dy=part, **one) for part, one in zip(parts, slices, strict=True)
    ])  # fmt: skip
