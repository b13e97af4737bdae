"""Class folders in ImageNet's layout: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG` (or `test/`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from sweep.data import DEVIATION, MEAN, Dataset, Files, Split, hold_out, place_of
from sweep.errors import Refused
from sweep.experiment import Data
from sweep.experiment.sources import SOURCES

SUFFIXES = {".jpg", ".jpeg", ".png"}
LOOKED_AT = 256
ORIENTATION, UPRIGHT = 274, 1  # the tag of EXIF, and its value for a picture that is stored as it is seen


def read(data: Data) -> Dataset:
    root = place_of(data)
    if data.crop == "padded":
        raise Refused("data.crop: padded is for images in memory; expected resized for class folders")
    test, classes = _test_folder(root), _classes(root)
    if len(classes) < 2:
        raise Refused(f"data.path: {len(classes)} class folders under {root / 'train'}, expected 2 or more")
    train, validation = hold_out(class_files(root / "train", classes), data.validation)
    size = data.image_size or 224
    return Dataset(
        "folder", len(classes), size, 3, train, validation, class_files(test, classes), MEAN, DEVIATION, tuple(classes)
    )


def test_images(data: Data) -> int:
    """Return the number of test images."""
    root = place_of(data)
    return len(class_files(_test_folder(root), _classes(root)))


def turned(split: Split) -> list[str]:
    """Return which of up to LOOKED_AT pictures are stored turned, as cameras do with upright ones and EXIF says."""
    from PIL import Image

    assert isinstance(split, Files)
    damaged = (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError)  # named when it is read
    out = []
    for path in map(str, split.paths[:: max(1, -(-len(split) // LOOKED_AT))]):
        with suppress(*damaged), Image.open(path) as picture:
            if picture.getexif().get(ORIENTATION, UPRIGHT) != UPRIGHT:
                out.append(path)
    return out


def _test_folder(root: Path) -> Path:
    test = next((root / name for name in ("val", "test") if (root / name).is_dir()), root / "val")
    for folder in (root / "train", test):
        if not folder.is_dir():
            raise Refused(f"data.path: no folder {folder}; expected {SOURCES['folder'].wants}")
    return test


def _classes(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "train").iterdir() if _is_class(path))


def class_files(folder: Path, classes: Sequence[str]) -> Files:
    """Return the images of class folders; an image's label is the index of its folder in `classes`."""
    strange = sorted(path.name for path in folder.iterdir() if _is_class(path) and path.name not in classes)
    if strange:
        raise Refused(f"data.path: {folder / strange[0]} is no class of the training folders")
    paths, labels = [], []
    for label, name in enumerate(classes):
        place = folder / name
        there = place.iterdir() if place.is_dir() else ()  # not by glob, for which what may not be read is empty
        found = sorted(str(path) for path in there if _is_picture(path))
        if not found and folder.name == "train":
            raise Refused(f"data.path: no images in {folder / name}; expected some, or no such folder: an empty class "
                          "would be one the network is never shown")  # fmt: skip
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise Refused(f"data.path: no images under {folder}; expected CLASS/*.jpg or CLASS/*.png")
    return Files(np.array(paths), np.array(labels, np.int32))


def _is_class(path: Path) -> bool:
    """Whether a path is a folder of a class; hidden ones are not, as .ipynb_checkpoints of Jupyter."""
    return path.is_dir() and not path.name.startswith(".")


def _is_picture(path: Path) -> bool:
    """Whether a path has the name of a picture and is a file; hidden ones are not, as ._1.jpg from macOS."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


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
