"""What images are called in the pool, and what tells them apart when they are read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweep.data import open_dataset, pixel_statistics
from sweep.data.fingerprint import fingerprint
from sweep.data.listing import listing
from sweep.experiment import Data


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Two classes of small pictures in ImageNet's layout."""
    stream, root = np.random.default_rng(0), tmp_path / "pictures"
    for split, count in (("train", 6), ("val", 2)):
        for label in ("cat", "dog"):
            (root / split / label).mkdir(parents=True)
            for i in range(count):
                Image.fromarray(stream.integers(0, 256, (8, 8, 3), np.uint8)).save(root / split / label / f"{i}.png")
    return root


def of(root: Path) -> Data:
    return Data("folder", path=str(root), image_size=8)


def seen(root: Path) -> tuple[str, str]:
    return listing(of(root)), fingerprint(open_dataset(of(root)), of(root))


def test_the_same_images_elsewhere_are_the_same(pictures, tmp_path):
    before = seen(pictures)
    assert seen(pictures.rename(tmp_path / "moved")) == before


def test_a_label_changed_is_another_data_set(pictures):
    before = seen(pictures)
    (pictures / "train/cat/0.png").rename(pictures / "train/dog/new.png")
    after = seen(pictures)
    assert after[0] != before[0] and after[1] != before[1]


def test_classes_in_another_order_are_another_data_set(pictures):
    before = seen(pictures)
    for split in ("train", "val"):
        (pictures / split / "cat").rename(pictures / split / "elephant")  # after dog now
    after = seen(pictures)
    assert after[0] != before[0] and after[1] != before[1]


def test_other_pixels_under_the_same_names_and_sizes_are_seen_when_they_are_read(pictures):
    """The listing cannot know: the fingerprint does."""
    before, path = seen(pictures), pictures / "train/cat/3.png"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    after = seen(pictures)
    assert after[0] == before[0] and after[1] != before[1]


def test_a_fingerprint_tells_crops_and_held_out_images_apart():
    made = Data("synthetic", image_size=8, classes=4, images=40)
    found = {
        fingerprint(open_dataset(data), data)
        for data in (made, dataclasses.replace(made, pad=1), dataclasses.replace(made, validation=4))
    }
    assert len(found) == 3


def test_the_mean_of_a_data_set_does_not_depend_on_the_order_of_its_images():
    images = np.random.default_rng(1).integers(0, 256, (2500, 4, 4, 3), np.uint8)
    images[:1000] //= 4  # a dark class first
    assert pixel_statistics(images) == pixel_statistics(images[::-1])
    expected = images.reshape(-1, 3) / 255.0
    np.testing.assert_allclose(pixel_statistics(images), [expected.mean(0), expected.std(0)], rtol=1e-9)
