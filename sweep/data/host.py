"""Tensors in the host's memory that threads fill and a GPU fetches while it computes.

CUDA's driver copies ordinary memory itself, and a kernel that is to start meanwhile waits. Page-locked memory is
fetched by the GPU itself: 50 MB in 0.9 instead of 6.6 ms, and 30 % more images a second (H200, docs/data.md). Locking
takes long. So memory is used again when TensorFlow has let go of it, and kept until the process ends.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.progress import console

Tensor = Any
PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE: locked for every GPU, not only for that of the context

_left: dict[bool, list[mmap.mmap]] = {False: [], True: []}  # memory that nobody uses, by whether it is locked
_choosing = threading.Lock()


def shared(shape: tuple[int, ...], locked: bool = False) -> tuple[Tensor, np.ndarray]:
    """Return a tensor of undefined bytes and an array in the same memory; fill it before the tensor is used.

    `locked`: in page-locked memory, for a GPU. On a CPU the tensor may become part of others without a copy: never
    change the array again.
    """
    memory = _memory(math.prod(shape), locked)
    flat = np.frombuffer(memory, np.uint8, math.prod(shape))  # dies after the tensor and every part of the array
    weakref.finalize(flat, _left[locked].append, memory).atexit = False
    array = flat.reshape(shape)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__()), array


def _memory(size: int, locked: bool) -> mmap.mmap:
    """Return memory for so many bytes or more, the smallest that is left or else new."""
    with _choosing:
        if fitting := [memory for memory in _left[locked] if len(memory) >= size]:
            _left[locked].remove(smallest := min(fitting, key=len))
            return smallest
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if locked:
        try:
            lock(memory)
        except OSError as error:
            _said(str(error))
    return memory


def lock(memory: mmap.mmap) -> None:
    """Lock memory into its pages for all GPUs; it must stay until the process ends."""
    memory.madvise(mmap.MADV_DONTFORK)  # else a page written to after a fork is another one than the GPU's
    driver, context = _driver()
    _done(driver.cuCtxPushCurrent_v2, context)  # a thread has none of its own
    try:
        address, size = np.frombuffer(memory, np.uint8).ctypes.data, len(memory)
        _done(driver.cuMemHostRegister_v2, ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(PORTABLE))
    finally:
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


@cache
def _driver() -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """Return CUDA's driver and the first GPU's context, which TensorFlow uses too."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    _done(driver.cuInit, ctypes.c_uint(0))
    _done(driver.cuDevicePrimaryCtxRetain, ctypes.byref(context), ctypes.c_int(0))
    return driver, context


def _done(function: Callable[..., int], *arguments: Any) -> None:
    if code := function(*arguments):
        raise OSError(f"{function.__name__}: CUDA error {code}")


@cache
def _said(why: str) -> None:
    console.print(f"batches go to the GPU from memory that is not page-locked, which takes longer: {why}")
