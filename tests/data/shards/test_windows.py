"""Windows of images: where they lie, and how they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.data.shards.conftest import picture


def test_random_windows_lie_inside_and_have_the_area_and_shape_they_should():
    from sweep.data.windows import random_windows

    heights, widths = np.full(4000, 300.0), np.full(4000, 360.0)
    found = random_windows(np.array([1, 2]), heights, widths).astype(float)
    assert (
        found.min() >= 0 and (found[:, 0] + found[:, 2]).max() <= 1.0001 and (found[:, 1] + found[:, 3]).max() <= 1.0001
    )
    area, shape = found[:, 2] * found[:, 3], found[:, 3] * 360 / (found[:, 2] * 300)
    assert 0.079 < area.min() < 0.1 and 0.95 < area.max() <= 1.0 and shape.min() > 0.74 and shape.max() < 1.34
    np.testing.assert_array_equal(found, random_windows(np.array([1, 2]), heights, widths))
    assert not np.array_equal(found, random_windows(np.array([1, 3]), heights, widths))


def test_a_very_long_image_gets_the_largest_square_in_its_middle():
    from sweep.data.windows import random_windows

    window = random_windows(np.array([0, 0]), np.array([10.0]), np.array([1000.0]))
    np.testing.assert_allclose(window, [[0.0, 0.495, 1.0, 0.01]], rtol=1e-5)


def test_central_windows_show_seven_eighths_of_the_shorter_side():
    from sweep.data.windows import central_windows

    np.testing.assert_allclose(
        central_windows(np.array([200.0]), np.array([400.0]))[0], [0.0625, 0.28125, 0.875, 0.4375]
    )


@pytest.mark.tensorflow
@pytest.mark.parametrize("size", [16, 48])
def test_a_window_is_drawn_as_a_picture_program_draws_it(size):
    """Reduced and enlarged: Pillow's bilinear filter does the same."""
    from sweep.data import augment

    pixels = np.asarray(picture(3).resize((64, 64)))
    window = np.array([[0.1, 0.25, 0.7, 0.5]], np.float32)
    box = (0.25 * 64, 0.1 * 64, 0.75 * 64, 0.8 * 64)
    expected = np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box))
    received = augment.resampled(pixels[None], window, size)[0].numpy()
    inner = (slice(2, -2), slice(2, -2))  # at its edge Pillow does not look past the window
    assert np.abs(received[inner] - expected[inner]).max() < 1.5
