"""Arrays in the host's memory that TensorFlow reads in place."""

import numpy as np
import pytest

from sweep.data import host

pytestmark = pytest.mark.tensorflow
VALUES = np.arange(24, dtype=np.int32).reshape(4, 6)


def misplaced() -> np.ndarray:
    """Return the values in memory that does not begin at a multiple of the alignment."""
    array = host.empty((25,), np.int32)[1:].reshape(4, 6)
    array[...] = VALUES
    return array


def fixed() -> np.ndarray:
    array = host.empty((4, 6), np.int32)
    array[...] = VALUES
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("shape, kind", [((3, 5, 7), np.uint8), ((1,), np.int64), ((2, 3), np.float32)])
def test_an_empty_array_begins_where_tensorflow_can_read_it(shape, kind):
    for _ in range(5):
        array = host.empty(shape, kind)
        assert (array.shape, array.dtype, array.ctypes.data % host.ALIGNMENT) == (shape, kind, 0)


def test_an_array_that_begins_there_is_not_copied():
    array = host.empty((4, 6), np.int32)
    array[...] = VALUES
    tensor = host.tensor(array)
    array[0, 0] = 99
    assert tensor[0, 0].numpy() == 99 and tensor.device.endswith("CPU:0")


@pytest.mark.parametrize("array", [misplaced(), fixed(), misplaced().T, misplaced()[:, ::2]])
def test_any_other_array_is_copied(array):
    expected, tensor = array.copy(), host.tensor(array)
    array.flags.writeable = True
    array[0, 0] = 99
    np.testing.assert_array_equal(tensor.numpy(), expected)
