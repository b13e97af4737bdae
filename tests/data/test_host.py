"""Tensors in the host's memory that threads fill."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sweep.hardware import gpu_ids

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch):
    """Hide what other tests of this process left; locked memory must stay."""
    from sweep.data import host

    monkeypatch.setattr(host, "_left", {False: [], True: host._left[True]})


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (3, 5, 7), (1,), (0, 2)])
def test_what_is_written_to_the_array_is_in_the_tensor(shape, locked):
    from sweep.data import host

    tensor, array = host.shared(shape, locked)
    assert array.shape == tensor.shape == shape and array.dtype == np.uint8
    array[...] = np.arange(array.size).reshape(shape)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(array.size).reshape(shape))
    assert tensor.device.endswith("CPU:0")


def test_memory_is_used_again_when_tensor_array_and_its_parts_are_gone():
    import tensorflow as tf

    from sweep.data import host

    shape = (3, 347)
    tensor, array = host.shared(shape)
    array[...] = 7
    address, held = array.ctypes.data, [tensor, tf.identity(tensor), array, array[2:]]
    del tensor, array
    while held:
        _, other = host.shared(shape)
        assert other.ctypes.data != address
        other[...] = 9
        assert (np.asarray(held[-1]) == 7).all()
        del held[0]
    gc.collect()
    again = [host.shared(shape) for _ in range(3)]
    assert address in [array.ctypes.data for _, array in again]


def test_many_threads_never_share_memory():
    from sweep.data import host

    def fill(value: int) -> bool:
        tensor, array = host.shared((1 << 16,))
        array[...] = value
        return bool((tensor.numpy() == value).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fill, [i % 251 for i in range(2000)]))
    assert 1 <= len(host._left[False]) <= 8


def test_the_smallest_that_is_large_enough_is_used_again():
    from sweep.data import host

    both = [host.shared((size,)) for size in (200, 100)]
    larger, smaller = (array.ctypes.data for _, array in both)
    both.clear()
    _, array = host.shared((2, 49))
    _, other = host.shared((101,))
    assert (array.ctypes.data, other.ctypes.data) == (smaller, larger)
    _, new = host.shared((100,))
    assert new.ctypes.data not in (smaller, larger)


@pytest.mark.skipif(bool(gpu_ids()), reason="there is a GPU")
def test_memory_that_cannot_be_locked_is_said_once(capsys):
    from sweep.data import host

    host._said.cache_clear()
    for size in (4099, 4111):
        tensor, array = host.shared((size,), True)
        array[...] = 5
        assert (tensor.numpy() == 5).all()
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("not page-locked, which takes longer: libcuda.so.1") == 1


@pytest.mark.skipif(not gpu_ids(), reason="there is no GPU")
def test_memory_is_locked_once(capsys):
    from sweep.data import host

    _, array = host.shared((1 << 24,), True)
    assert "page-locked" not in capsys.readouterr().out
    with pytest.raises(OSError, match="CUDA error 712"):  # CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        host.lock(array.base.base.obj)


@pytest.mark.skipif(not gpu_ids(), reason="there is no GPU")
def test_a_gpu_gets_what_was_written_before_the_memory_is_used_again():
    import tensorflow as tf

    from sweep.data import host

    def sent(value: int) -> bool:
        tensor, array = host.shared((1 << 24,), True)
        array[...] = value
        with tf.device("GPU:0"):
            there = tf.identity(tensor)
        del tensor, array
        return bool(tf.reduce_all(there == value))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(sent, [i % 251 for i in range(500)]))
