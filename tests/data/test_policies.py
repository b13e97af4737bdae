"""TrivialAugment and RandAugment beside Pillow, which the published programs call for every operation."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

tf = pytest.importorskip("tensorflow", exc_type=ImportError)  # make quick shuts it out
from sweep.data import augment, policies  # noqa: E402
from sweep.experiment import Data, Recipe  # noqa: E402
from sweep.training.step import Step  # noqa: E402

pytestmark = pytest.mark.tensorflow
SIZE = 24


def moved(*places: float):
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, places)


def in_pillow(name: str, level: int, sign: int):
    """The operation at strength `level` of 30 in the wide space of TrivialAugment, as a function of an image."""
    factor, shear, shift = 1 + sign * 0.99 * level / 30, sign * 0.99 * level / 30, sign * (32 * level // 30)
    return {
        "identity": lambda image: image,
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        "posterize": lambda image: ImageOps.posterize(image, 8 - 6 * level // 30),
        "solarize": lambda image: ImageOps.solarize(image, 256 - 256 * level // 30),
        "brightness": lambda image: ImageEnhance.Brightness(image).enhance(factor),
        "contrast": lambda image: ImageEnhance.Contrast(image).enhance(factor),
        "colour": lambda image: ImageEnhance.Color(image).enhance(factor),
        "sharpness": lambda image: ImageEnhance.Sharpness(image).enhance(factor),
        "shear_x": moved(1, shear, 0, 0, 1, 0),
        "shear_y": moved(1, 0, 0, shear, 1, 0),
        "translate_x": moved(1, 0, shift, 0, 1, 0),
        "translate_y": moved(1, 0, 0, 0, 1, shift),
        "rotate": lambda image: image.rotate(sign * (135 * level // 30)),
    }[name]


def pictures(count: int, channels: int) -> np.ndarray:
    """Waves of every contrast, from flat images to clipped ones, with some noise."""
    random = np.random.default_rng(0)
    contrast = random.choice([0, 1, 30, 90, 180], (count, 1, 1, channels))
    waves = np.sin(np.arange(SIZE)[:, None] / 4 + random.random((count, SIZE, 1, channels)) * 6)
    noise = random.normal(scale=0.1, size=(count, SIZE, SIZE, channels))
    return (random.integers(50, 200) + contrast * (waves + noise)).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module", params=[1, 3], ids=["grey", "colour"])
def wide(request, devices) -> tuple[policies.Table, np.ndarray, np.ndarray]:
    """All rows of TrivialAugment's table, an image for each, and what becomes of it."""
    table = policies.table("trivial", 0, SIZE)
    images = pictures(len(table.operation), request.param)
    return table, images, policies.augmented(tf.constant(images), tf.range(len(images)), table).numpy()


def beside(wide, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of an operation at each of 31 strengths in both signs, after it, and after Pillow's."""
    table, images, out = wide
    rows = np.flatnonzero(table.operation == policies.OPERATIONS.index(name))
    each = [in_pillow(name, level, sign) for level in range(31) for sign in (1, -1)]
    shape = images.shape[1:]
    wanted = [
        np.asarray(operation(Image.fromarray(images[row].squeeze()))).reshape(shape)
        for operation, row in zip(each, rows, strict=True)
    ]
    return images[rows].astype(int), out[rows].astype(int), np.array(wanted).astype(int)


@pytest.mark.parametrize("name", sorted({*policies.OPERATIONS} - {"autocontrast"}))
def test_an_operation_at_every_strength_gives_the_pixels_of_pillow(wide, name):
    _, received, wanted = beside(wide, name)
    np.testing.assert_array_equal(received, wanted)


def test_autocontrast_gives_the_pixels_of_pillow_but_where_its_fractions_fall_short_of_a_whole_number(wide):
    images, received, wanted = beside(wide, "autocontrast")
    low, high = (end(images, (1, 2), keepdims=True) for end in (np.min, np.max))
    whole = (images - low) * 255 % np.maximum(high - low, 1) == 0
    short = received != wanted
    assert whole[short].all() and (received - wanted)[short].tolist() == [1] * short.sum() and short.mean() < 0.01


def test_xla_gives_the_same_images(wide):
    table, images, out = wide
    compiled = tf.function(policies.augmented, autograph=False, jit_compile=True)
    np.testing.assert_array_equal(compiled(tf.constant(images), tf.range(len(images)), table), out)


def test_resampled_windows_are_rounded_to_whole_pixels_first_and_stay_fractions_in_type():
    table, images = policies.table("rand", 9, SIZE), pictures(28, 3)
    between = tf.constant(images + np.random.default_rng(1).uniform(-0.49, 0.49, images.shape), tf.float32)
    received = policies.augmented(between, tf.range(28), table)
    assert received.dtype == tf.float32
    np.testing.assert_array_equal(received, policies.augmented(tf.constant(images), tf.range(28), table))


def test_randaugment_at_magnitude_10_has_the_greatest_strengths_of_autoaugment_and_at_0_none():
    table = policies.table("rand", 10, 331)
    of = {name: slice(2 * i, 2 * i + 2) for i, name in enumerate(policies.OPERATIONS)}  # both signs
    assert (table.factor[of["colour"]] / 2**20).tolist() == pytest.approx([1.9, 0.1], abs=1e-6)
    assert (table.places[of["shear_x"], 0, 1] / 2**16).tolist() == pytest.approx([0.3, -0.3], abs=1e-4)
    assert ((table.places[of["translate_y"], 1, 2] - 2**15) / 2**16).tolist() == [150, -150]
    assert np.degrees(np.arcsin(table.places[of["rotate"], 1, 0] / 2**16)) == pytest.approx([30, -30], abs=1e-3)
    assert np.unique(table.values[of["posterize"]]).tolist() == list(range(0, 256, 16))
    assert (table.values[of["solarize"]] == np.arange(255, -1, -1)).all()
    images = pictures(28, 3)
    none = policies.augmented(tf.constant(images), tf.range(28), policies.table("rand", 0, SIZE)).numpy()
    adaptive = np.isin(np.arange(28) // 2, [policies.OPERATIONS.index(name) for name in ("autocontrast", "equalize")])
    np.testing.assert_array_equal(none[~adaptive], images[~adaptive])


# ---- in the training step

FIELDS = {"trivial": {"policy": "trivial"}, "rand": {"policy": "rand", "rand_operations": 3, "rand_magnitude": 5}}


def augmented(images: np.ndarray, share: int, replicas: int, **fields) -> tf.Tensor:
    """What a training step makes of one replica's images."""
    recipe, count, seed = Recipe(batch=8, **fields), replicas * len(images), tf.constant([3, 4])
    step = Step(None, recipe, Data(pad=2, flip=True), None, replicas, shaped=False, use_mask=False)
    return step._augmented(
        tf.constant(images), lambda purpose, high: augment.uniform(seed, purpose, count, (share, replicas), 0, high)
    )


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_two_replicas_augment_the_images_of_a_batch_as_one_does(fields):
    images = pictures(8, 3)
    alone = augmented(images, 0, 1, **fields)
    parts = [augmented(images[4 * i :][:4], i, 2, **fields) for i in (0, 1)]
    np.testing.assert_array_equal(tf.concat(parts, 0), alone)
    changed = (augmented(images, 0, 1) != alone).numpy().any((1, 2, 3))
    assert changed.sum() > 3, "of 8 images"


def test_a_batch_draws_every_operation_in_both_signs_and_operations_in_a_row_independently(monkeypatch):
    drawn = []
    monkeypatch.setattr(policies, "augmented", lambda images, rows, table: drawn.append(rows.numpy()) or images)
    augmented(np.zeros((2000, 8, 8, 1), np.uint8), 0, 1, **FIELDS["rand"])
    assert [np.unique(rows).tolist() for rows in drawn] == [list(range(28))] * 3  # 14 operations × 2 signs
    assert max(abs(np.corrcoef(drawn)[np.triu_indices(3, 1)])) < 0.1
    drawn.clear()
    augmented(np.zeros((9000, 8, 8, 1), np.uint8), 0, 1, policy="trivial")
    assert len(drawn) == 1 and len(np.unique(drawn[0])) > 0.99 * 14 * 31 * 2
