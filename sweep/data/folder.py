"""Class folders in ImageNet's layout: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG` (or `test/`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sweep.data import DEVIATION, MEAN, Dataset, Files, hold_out, place_of
from sweep.errors import Refused
from sweep.experiment import Data
from sweep.experiment.sources import SOURCES

SUFFIXES = {".jpg", ".jpeg", ".png"}


def read(data: Data) -> Dataset:
    root = place_of(data)
    if data.crop == "padded":
        raise Refused("data.crop: padded is for images in memory; expected resized for class folders")
    test = next((root / name for name in ("val", "test") if (root / name).is_dir()), root / "val")
    for folder in (root / "train", test):
        if not folder.is_dir():
            raise Refused(f"data.path: no folder {folder}; expected {SOURCES['folder'].wants}")
    classes = sorted(path.name for path in (root / "train").iterdir() if path.is_dir())
    if len(classes) < 2:
        raise Refused(f"data.path: {len(classes)} class folders under {root / 'train'}, expected 2 or more")
    train, validation = hold_out(class_files(root / "train", classes), data.validation)
    size = data.image_size or 224
    return Dataset(
        "folder", len(classes), size, 3, train, validation, class_files(test, classes), MEAN, DEVIATION, tuple(classes)
    )


def class_files(folder: Path, classes: Sequence[str]) -> Files:
    """Return the images of class folders; an image's label is the index of its folder in `classes`."""
    strange = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in classes)
    if strange:
        raise Refused(f"data.path: {folder / strange[0]} is no class of the training folders")
    paths, labels = [], []
    for label, name in enumerate(classes):
        place = folder / name
        there = place.iterdir() if place.is_dir() else ()  # not by glob, for which what may not be read is empty
        found = sorted(str(path) for path in there if path.suffix.lower() in SUFFIXES and path.is_file())
        if not found and folder.name == "train":
            raise Refused(f"data.path: no images in {folder / name}; expected some, or no such folder: an empty class "
                          "would be one the network is never shown")  # fmt: skip
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise Refused(f"data.path: no images under {folder}; expected CLASS/*.jpg or CLASS/*.png")
    return Files(np.array(paths), np.array(labels, np.int32))


def left_out(root: Path) -> list[Path]:
    """Return the files that are not read: no images, or not directly in a class folder; also test/ if there is val/."""
    splits = [root / name for name in ("train", "val", "test") if (root / name).is_dir()]
    unused = splits[2:]
    found = [path for split in splits[:2] for way in ("*", "*/**/*") for path in split.glob(way) if not path.is_dir()]
    return unused + sorted(
        path for path in found
        if not path.name.startswith(".")
        and (path.suffix.lower() not in SUFFIXES or path.parent.parent not in splits or not path.is_file())
    )  # fmt: skip
