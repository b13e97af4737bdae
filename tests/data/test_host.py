"""Tensors in the host's memory that threads fill."""

import gc
import weakref

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("shape", [(4, 6), (3, 5, 7), (1,), (0, 2)])
def test_what_is_written_to_the_array_is_in_the_tensor(shape):
    from sweep.data import host

    tensor, array = host.shared(shape)
    assert array.shape == tensor.shape == shape and array.dtype == np.uint8
    array[...] = np.arange(array.size).reshape(shape)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(array.size).reshape(shape))
    assert tensor.device.endswith("CPU:0")


def test_the_array_keeps_the_memory_of_the_tensor():
    from sweep.data import host

    tensor, array = host.shared((1 << 20,))
    kept = weakref.ref(tensor)
    array[...] = 7
    part = array[5:]
    del tensor, array
    gc.collect()
    assert kept() is not None
    others = [host.shared((1 << 20,)) for _ in range(3)]
    for _, other in others:
        other[...] = 9
    assert (part == 7).all()
    del part, others, other
    gc.collect()
    assert kept() is None
