"""Arrays in the host's memory that TensorFlow reads in place.

`tf.constant` copies an array, much of the time with Python's lock: 57 ms for 50 MB (2 x86-64 cores, 2026-11-19). A GPU
that needs a batch every 21 ms waits then. Memory that begins at a multiple of 64 bytes is handed over without a copy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes; TensorFlow ends the process when it computes with memory that begins elsewhere


def empty(shape: tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray:
    """Return an array with undefined values whose memory TensorFlow can read in place."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory: np.ndarray = np.empty(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def tensor(array: np.ndarray) -> Any:
    """Return an array as a tensor in the host's memory; it is copied only if its memory begins elsewhere.

    Both may share memory afterwards, and so may a variable that is assigned the tensor: never change the array again.
    """
    if array.ctypes.data % ALIGNMENT or not (array.flags.c_contiguous and array.flags.writeable):
        array, given = empty(array.shape, array.dtype), array
        array[...] = given  # gives Python's lock away
    import tensorflow as tf  # here, because `lottery plan` looks at shards without it

    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
