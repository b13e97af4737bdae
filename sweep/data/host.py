"""Tensors in the host's memory that threads fill and a GPU fetches while it computes.

While CUDA's driver copies ordinary memory no kernel starts: 6.4 ms for the 50 MB of a batch, in which a GPU idles that
needs 21 ms for its step (one H200, 2026-11-19, docs/data.md). Page-locked memory the GPU fetches by itself. To lock it
takes long, so it is used again when TensorFlow has let go of it, and stays locked until the process ends.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from collections import deque
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.progress import console

Tensor = Any
PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE: locked for every GPU, not only for that of the context

_left: dict[tuple[int, bool], deque[mmap.mmap]] = {}  # memory that nobody uses, by size and whether it is locked


def shared(shape: tuple[int, ...], locked: bool = False) -> tuple[Tensor, np.ndarray]:
    """Return a tensor of undefined bytes and an array in the same memory; fill it before the tensor is used.

    `locked`: in page-locked memory, for a GPU. On a CPU the tensor may become part of others without a copy: never
    change the array again.
    """
    size = math.prod(shape)
    left = _left.setdefault((size, locked), deque())
    try:
        memory = left.pop()
    except IndexError:
        memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if locked:
            _lock(memory)
    flat = np.frombuffer(memory, np.uint8, size)  # dies after the tensor and every part of the array
    weakref.finalize(flat, left.append, memory).atexit = False
    array = flat.reshape(shape)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__()), array


def _lock(memory: mmap.mmap) -> None:
    try:
        lock(np.frombuffer(memory, np.uint8).ctypes.data, len(memory))
    except OSError as error:
        _said(str(error))


@cache
def _said(why: str) -> None:
    console.print(f"batches go to the GPU from memory that is not page-locked, which takes longer: {why}")


def lock(address: int, size: int) -> None:
    """Lock memory into its pages, so that GPUs may fetch from it; it must stay until the process ends."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        code = getattr(driver, name)(*arguments)
        if code:
            raise OSError(f"{name}: CUDA error {code}")

    context = ctypes.c_void_p()
    call("cuInit", ctypes.c_uint(0))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))  # TensorFlow's own
    call("cuCtxPushCurrent_v2", context)  # a thread has none of its own
    try:
        call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(PORTABLE))
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(context))
