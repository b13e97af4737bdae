"""Tensors in the host's memory that threads fill and a GPU reads.

TensorFlow copies memory of its own to page-locked memory without Python's lock, and the GPU fetches it from there while
it computes. Memory of others, such as a NumPy array's, is left to the driver, which seems to let no kernel start
meanwhile: with it a step took 30 ms instead of 21 (one H200, 2026-11-19, docs/data.md). `tf.constant` copies an array
with Python's lock: 57 ms for 50 MB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

Tensor = Any


class _Shared:
    """What NumPy makes an array of that can be written to and keeps the tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, fixed = tensor, np.from_dlpack(tensor)
        self.__array_interface__ = fixed.__array_interface__ | {"data": (fixed.ctypes.data, False)}


def shared(shape: tuple[int, ...]) -> tuple[Tensor, np.ndarray]:
    """Return a tensor of undefined bytes and an array in the same memory; fill it before the tensor is used.

    On a CPU the tensor may become part of others without a copy: never change the array again.
    """
    with tf.device("/CPU:0"):
        tensor = tf.raw_ops.Empty(shape=shape, dtype=tf.uint8)
    return tensor, np.asarray(_Shared(tensor))
