"""Max pooling with its gradient written out, against TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
SHAPES = [(3, 2, 9, 11), (3, 2, 8, 8), (2, 2, 8, 6), (3, 1, 6, 7), (2, 3, 8, 7)]  # size, stride, height, width


def inputs(size: int, stride: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of few different numbers, so that maxima are shared, and a gradient of whole numbers."""
    random = np.random.default_rng(0)
    rows, columns = ((length - size) // stride + 1 for length in (height, width))
    x = random.integers(0, 4, (2, height, width, 5)).astype(np.float32)
    return x, random.integers(-9, 9, (2, rows, columns, 5)).astype(np.float32)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "XLA"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradient_are_those_of_tensorflow(shape, compiled):
    import tensorflow as tf

    from models.max_pool import max_pool

    size, stride, *_ = shape
    x, dy = map(tf.constant, inputs(*shape))

    def gradient(pool):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pool(x)
        return y, tape.gradient(y, x, dy)

    theirs = gradient(lambda x: tf.nn.max_pool2d(x, size, stride, "VALID"))
    ours = tf.function(gradient, jit_compile=compiled, autograph=False)(lambda x: max_pool(x, size, stride))
    for found, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(("height", "width"), [(7, 6), (5, 5), (4, 8)])
def test_windows_at_the_end_of_an_odd_side_are_padded_as_by_tensorflow(height, width):
    import tensorflow as tf

    from models.layers import Compute

    x = tf.constant(np.random.default_rng(0).uniform(size=(2, height, width, 3)), tf.float32)
    right = tf.nn.max_pool2d(x, 2, 2, "SAME")
    np.testing.assert_array_equal(Compute({}, training=True).max_pool(x, 2, 2), right)


def test_second_derivative_is_that_of_tensorflow():
    """GraSP's scores need it: the gradient of gᵀv, where g is the gradient of a loss that is not linear in y."""
    import tensorflow as tf

    from models.max_pool import max_pool

    x = tf.constant(np.random.default_rng(1).normal(size=(2, 9, 9, 3)), tf.float32)
    v = tf.constant(np.random.default_rng(2).normal(size=x.shape), tf.float32)

    def product(pool):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(pool(x) ** 3)
            along = tf.reduce_sum(inner.gradient(loss, x) * v)
        return outer.gradient(along, x).numpy()

    theirs = product(lambda x: tf.nn.max_pool2d(x, 3, 2, "VALID"))
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(product(lambda x: max_pool(x, 3, 2)), theirs, rtol=1e-5, atol=1e-5)
