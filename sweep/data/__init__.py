"""Data sets with one interface: three splits, a number of classes, an image shape.

A split is `Images` (uint8, kept in the device's memory), `Files` (decoded when needed) or `Shards` (prepared once, see
sweep.data.shards). sweep.training.schedule decides the order in which images are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Self

import numpy as np

from sweep.errors import Refused
from sweep.experiment import Data
from sweep.experiment.sources import SOURCES

SplitName = Literal["test", "validation", "train"]


class Split:
    """One of the three parts of a data set: a dataclass whose arrays have one row per image."""

    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> Self:
        """Return some of the images, in any order."""
        arrays = {name: part[indices] for name, part in vars(self).items() if isinstance(part, np.ndarray)}
        return dataclasses.replace(self, **arrays)  # type: ignore[type-var]


@dataclass(frozen=True)
class Images(Split):
    """Labelled images in memory."""

    images: np.ndarray  # [n, size, size, channels] uint8
    labels: np.ndarray  # [n] int32


@dataclass(frozen=True)
class Files(Split):
    """Labelled image files."""

    paths: np.ndarray  # [n] text
    labels: np.ndarray  # [n] int32


@dataclass(frozen=True)
class Dataset:
    """A data set: three splits, and how its pixels are normalised."""

    name: str
    classes: int
    image_size: int
    channels: int
    train: Split
    validation: Split
    test: Split
    mean: tuple[float, ...]  # per channel, of pixels between 0 and 1; empty: each image is standardised by itself
    deviation: tuple[float, ...]
    class_names: tuple[str, ...] = ()

    def for_training_only(self) -> Dataset:
        """Return the data set with empty validation and test splits."""
        none = np.arange(0)
        return dataclasses.replace(self, validation=self.validation.take(none), test=self.test.take(none))


# mean and deviation of ImageNet's training pixels; close enough for any photographs
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def place_of(data: Data, section: str = "data") -> Path:
    """Return the path of the data; raise Refused, naming the section of the file, if nothing is there."""
    path = Path(data.path).expanduser()
    if not data.path or not path.exists():
        found = f"nothing at {path}" if data.path else "not given"
        wants = SOURCES[data.name].wants
        raise Refused(f"{section}.path: {found}; {data.name} needs {wants} ({section}.path=PATH)")
    return path


def refuse_absent(data: Data, section: str = "data") -> None:
    """Raise Refused if the data set needs a path and nothing is there."""
    if SOURCES[data.name].wants:
        place_of(data, section)


def open_dataset(data: Data) -> Dataset:
    """Return the data set of an experiment, with its validation images held out of the training split."""
    if data.crop == "resized" and not SOURCES[data.name].listed:
        raise Refused(f"data.crop: resized is for folder and shards; expected padded or auto for {data.name}")
    dataset: Dataset = import_module(f"sweep.data.{data.name}").read(data)
    return dataclasses.replace(dataset, mean=(), deviation=()) if data.normalised == "image" else dataset


def hold_out(train: Split, count: int) -> tuple[Split, Split]:
    """Return the training and validation parts of `train`. The images held out are the same for all seeds."""
    if count >= len(train):
        raise Refused(f"data.validation: received {count}, expected fewer than the {len(train)} training images")
    shuffled = np.random.Generator(np.random.Philox([2018])).permutation(len(train))
    return train.take(np.sort(shuffled[count:])), train.take(np.sort(shuffled[:count]))


def pixel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, for pixels scaled to [0, 1]."""
    # sums of integers are exact: the order of the images does not matter
    total = squares = np.zeros(images.shape[-1], np.int64)
    for first in range(0, len(images), 1000):
        part = images[first : first + 1000].astype(np.int64)
        total, squares = total + part.sum((0, 1, 2)), squares + (part * part).sum((0, 1, 2))
    count = images[..., 0].size
    mean = total / count / 255.0
    deviation = np.sqrt(np.maximum(squares / count / 255.0**2 - mean**2, 0.0))
    return tuple(float(m) for m in mean), tuple(float(max(d, 1e-3)) for d in deviation)


def in_memory(data: Data, names: Sequence[str], train: Images, test: Images) -> Dataset:
    """Return a data set made of training and test images; `names` are the names of its classes."""
    size, grey = train.images.shape[1], train.images.shape[3] == 1
    if grey and data.channels == "rgb":
        train, test = (Images(np.repeat(part.images, 3, axis=3), part.labels) for part in (train, test))
    if data.image_size not in (0, size):
        train, test = (Images(resized(part.images, data.image_size), part.labels) for part in (train, test))
    kept, validation = hold_out(train, data.validation)
    assert isinstance(kept, Images)
    mean, deviation = pixel_statistics(kept.images)
    shape = kept.images.shape
    return Dataset(data.name, len(names), shape[1], shape[3], kept, validation, test, mean, deviation, tuple(names))


def resized(images: np.ndarray, size: int) -> np.ndarray:
    """Return images `[n, height, width, channels]` resized to `size` × `size` pixels, bilinearly."""
    from PIL import Image

    flat = images[..., 0] if images.shape[3] == 1 else images  # Pillow's grey pictures have no axis of channels
    pictures = [np.asarray(Image.fromarray(one).resize((size, size), Image.Resampling.BILINEAR)) for one in flat]
    return np.stack(pictures).reshape(len(images), size, size, -1)
