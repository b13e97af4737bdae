"""Augmentation by hand: what happens to single pixels."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", exc_type=ImportError)  # make quick shuts it out
from sweep.data import augment  # noqa: E402

pytestmark = pytest.mark.tensorflow
SEED = np.array([11, 22], np.int32)


def ramp(size: int = 4, count: int = 2) -> np.ndarray:
    """Images in which every pixel has its own value."""
    return np.arange(1, 1 + count * size * size, dtype=np.uint8).reshape(count, size, size, 1)


def test_a_crop_moves_the_image_and_fills_with_black():
    images = ramp()
    out = augment.cropped(tf.constant(images), 1, tf.constant([0, 2]), tf.constant([1, 2])).numpy()[..., 0]
    assert out[0].tolist() == [[0, 0, 0, 0], *images[0, :3, :, 0].tolist()]  # down by one
    assert out[1, :3, :3].tolist() == images[1, 1:, 1:, 0].tolist()  # up and left by one
    assert not out[1, 3].any() and not out[1, :, 3].any()


def test_a_crop_at_the_padding_itself_changes_nothing():
    images = ramp()
    centre = tf.constant([1, 1])
    np.testing.assert_array_equal(augment.cropped(tf.constant(images), 1, centre, centre), images)


def test_only_the_chosen_images_are_flipped():
    images = ramp()
    out = augment.flipped(tf.constant(images), tf.constant([0, 1])).numpy()
    np.testing.assert_array_equal(out[0], images[0])
    np.testing.assert_array_equal(out[1], images[1, :, ::-1])


def test_pixels_are_normalised_per_channel():
    images = np.array([[[[0, 255]]]], np.uint8)
    out = augment.normalised(tf.constant(images), (0.5, 0.25), (0.5, 0.125), tf.float32).numpy()
    np.testing.assert_allclose(out.ravel(), [-1.0, 6.0], rtol=1e-5)


def test_images_are_standardised_each_by_itself_and_flat_ones_divided_by_no_less_than_a_share_of_a_pixel():
    images = np.random.default_rng(0).integers(0, 256, (4, 5, 5, 3)).astype(np.uint8)
    images[0], images[1], images[1, 0, 0, 0] = 7, 0, 1  # flat, and all but flat
    x = images.astype(np.float64)
    mean, deviation = x.mean((1, 2, 3), keepdims=True), x.std((1, 2, 3), keepdims=True)
    out = augment.normalised(tf.constant(images), (), (), tf.float32).numpy()
    np.testing.assert_allclose(out, (x - mean) / np.maximum(deviation, 1 / np.sqrt(75)), rtol=1e-4, atol=1e-5)
    assert not out[0].any() and out[1].max() == pytest.approx((1 - 1 / 75) * np.sqrt(75))


def test_draws_depend_on_the_seed_and_the_purpose_and_reach_every_value():
    def draw(seed, purpose: int) -> list[int]:
        return augment.uniform(seed, purpose, 600, (0, 1), 0, 9).numpy().tolist()

    assert draw(SEED, 1) == draw(SEED, 1)
    assert draw(SEED, 1) != draw(SEED, 2) and draw(SEED, 1) != draw(SEED + 1, 1)
    assert set(draw(SEED, 1)) == set(range(9))


def test_xla_draws_the_same_numbers():
    draws = [
        tf.function(lambda: augment.uniform(SEED, 1, 64, (0, 1), 0, 9), jit_compile=jit)().numpy()
        for jit in (False, True)
    ]
    np.testing.assert_array_equal(*draws)


def test_replicas_share_the_draws_of_the_batch():
    whole = augment.uniform(SEED, 1, 8, (0, 1), 0, 9).numpy()
    parts = [augment.uniform(SEED, 1, 8, (tf.constant(i), 4), 0, 9).numpy() for i in range(4)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_mixup_blends_an_image_and_its_target_with_its_neighbour():
    images, targets = tf.constant([[[[0.0]]], [[[8.0]]]]), tf.constant([[1.0, 0.0], [0.0, 1.0]])
    mixed, blended = augment.mixed_up(images, targets, tf.constant(0.75))
    np.testing.assert_allclose(mixed.numpy().ravel(), [2.0, 6.0])
    np.testing.assert_allclose(blended, [[0.75, 0.25], [0.25, 0.75]])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.75, 1.0])
def test_cutmix_replaces_a_box_and_weighs_targets_by_its_area(share):
    images = tf.stack([tf.zeros((8, 8, 1)), tf.ones((8, 8, 1))])
    mixed, targets = augment.cut_mixed(images, tf.eye(2), tf.constant(share), SEED)
    replaced = float(tf.reduce_mean(mixed[0]))  # pixels that came from the other image
    assert targets.numpy()[0].tolist() == pytest.approx([1 - replaced, replaced])
    assert replaced == pytest.approx(1 - share, abs=0.13)  # whole pixels
    rows = np.flatnonzero(mixed.numpy()[0, ..., 0].any(1))
    assert len(rows) == 0 or len(rows) == rows[-1] - rows[0] + 1  # one box


def test_erasing_takes_a_rectangle_of_the_area_and_shape_drawn_from_chosen_images_only():
    """By numpy, pixel by pixel: 100 images of 20 × 20."""
    numbers = np.random.default_rng(0).random((5, 100), np.float32)
    out = augment.erased(tf.ones((100, 20, 20, 2)), 0.4, *map(tf.constant, numbers)).numpy()
    for image, (chance, area, shape, top, left) in zip(out, numbers.T, strict=True):
        wanted = np.ones((20, 20))
        share, ratio = 0.02 + 0.31 * area, 0.3 ** (1 - 2 * shape)
        height, width = (min(20, round(20 * side**0.5)) for side in (share * ratio, share / ratio))
        if chance < 0.4:
            y, x = int(top * (21 - height)), int(left * (21 - width))
            wanted[y : y + height, x : x + width] = 0
        np.testing.assert_array_equal(image, np.stack([wanted, wanted], -1))


def test_resizing_to_the_same_size_changes_nothing_and_keeps_the_type():
    images = tf.cast(tf.constant(ramp()), tf.bfloat16)
    assert augment.resized(images, 4) is images
    smaller = augment.resized(images, 2)
    assert smaller.shape == (2, 2, 2, 1) and smaller.dtype == tf.bfloat16
