"""Which images a training is evaluated on, and how pictures are cut."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweep.data import Dataset, Files, Images, in_memory
from sweep.experiment import Data

pytestmark = pytest.mark.tensorflow


def test_pictures_are_cut_as_the_training_cut_its_test_images(tmp_path):
    """Shards of small images that are padded are in memory, and evaluated whole; photographs by their centre."""
    from sweep.export.evaluate import images_of

    pictures = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), np.uint8)
    for name, picture in zip(("ant", "bee"), pictures, strict=True):
        (tmp_path / name).mkdir()
        Image.fromarray(picture).save(tmp_path / name / "one.png")
    small = Data("shards", path="nowhere", crop="padded")
    there = in_memory(small, ("ant", "bee"), *[Images(pictures, np.arange(2, dtype=np.int32))] * 2)
    found, _ = images_of(there, small, tmp_path, "test")
    assert isinstance(found, Images) and (found.images == pictures).all()
    files = Files(np.array(["a.jpg", "b.jpg"]), np.arange(2, dtype=np.int32))
    large: Dataset = dataclasses.replace(there, test=files)
    found, _ = images_of(large, dataclasses.replace(small, crop="resized"), tmp_path, "test")
    assert isinstance(found, Files) and [Path(path).parent.name for path in found.paths] == ["ant", "bee"]
