"""CIFAR-10, from any of the forms in which it is around.

The original archives (`cifar-10-python.tar.gz`, `cifar-10-binary.tar.gz`), their unpacked folders, or class folders
`train/airplane/*.jpg` and `test/…`, as a folder or as a tar file.
"""

from __future__ import annotations

import io
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from sweep.data import WANTED, Dataset, Images, in_memory, place_of
from sweep.errors import Refused
from sweep.experiment import Data

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PICTURES = (".jpg", ".jpeg", ".png")
LARGEST = 2**28  # bytes of a file in an archive
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))


def read(data: Data) -> Dataset:
    path = place_of(data)
    try:
        members = dict(_members(path))
        if any(name.endswith(".bin") for name in members):
            train, test = _binary(members)
        elif any(name.lower().endswith(PICTURES) for name in members):
            train, test = _pictures(members, "train"), _pictures(members, "test")
        else:
            train, test = _python(members)
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError, pickle.UnpicklingError,
            LookupError, TypeError, AttributeError, ValueError) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise Refused(
            f"data.path: {path} is not readable as CIFAR-10 ({reason}); expected {WANTED['cifar10']}"
        ) from None
    return in_memory("cifar10", data, 10, train, test)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of interest under a folder or in a tar file, by the last three parts of its name."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and _wanted(file.name):
                yield "/".join(file.relative_to(path).parts[-3:]), file.read_bytes()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if member.isfile() and _wanted(name.name):
                if member.size > LARGEST:
                    raise LookupError(f"{member.name} claims {member.size:,} bytes, a batch has 30 million")
                content = archive.extractfile(member)
                assert content is not None
                yield "/".join(name.parts[-3:]), content.read()


def _wanted(name: str) -> bool:
    return name.startswith(("data_batch_", "test_batch")) or name.lower().endswith(PICTURES)


def _one(members: dict[str, bytes], stem: str) -> bytes:
    for name, content in members.items():
        if PurePosixPath(name).name in (stem, stem + ".bin"):
            return content
    raise KeyError(f"no file {stem} in it")


def _images(planes: np.ndarray, labels: np.ndarray) -> Images:
    if len(labels) != len(planes):
        raise ValueError(f"{len(labels)} labels for {len(planes)} images")
    if wrong := [int(label) for label in labels if not 0 <= label < len(CLASSES)]:
        raise ValueError(f"{len(wrong)} labels are none of 0 to 9, such as {wrong[0]}")
    return Images(np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.astype(np.int32))


def _binary(members: dict[str, bytes]) -> tuple[Images, Images]:
    """One byte of label and 3072 of planes per image."""

    def part(*stems: str) -> Images:
        rows = np.concatenate([np.frombuffer(_one(members, stem), np.uint8).reshape(-1, 3073) for stem in stems])
        return _images(rows[:, 1:], rows[:, 0])

    return part(*TRAIN), part("test_batch")


def _python(members: dict[str, bytes]) -> tuple[Images, Images]:
    """Pickled dictionaries with `data` and `labels`."""

    def part(*stems: str) -> Images:
        batches = [_Numbers(io.BytesIO(_one(members, stem)), encoding="bytes").load() for stem in stems]
        planes = np.concatenate([np.asarray(b[b"data"], np.uint8) for b in batches])
        return _images(planes, np.concatenate([np.asarray(b[b"labels"]) for b in batches]))

    return part(*TRAIN), part("test_batch")


# what pickles of arrays name, written by numpy 1 and by numpy 2
_PICKLED = {("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")
}


class _Numbers(pickle.Unpickler):
    """Unpickles numpy arrays and nothing else: an archive from anywhere must not run code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in _PICKLED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} in a data file")


def _pictures(members: dict[str, bytes], split: str) -> Images:
    """`train/airplane/0001.jpg`: images of class folders, in the order of their names."""
    from PIL import Image

    images, labels = [], []
    for name, content in sorted(members.items()):
        part, label, _ = name.split("/")
        if part == split:
            if label not in CLASSES:
                raise LookupError(f"{name} is of no class of CIFAR-10")
            picture = Image.open(io.BytesIO(content))
            if picture.size != (32, 32):
                raise ValueError(f"{name} has {picture.width} x {picture.height} pixels, expected 32 x 32")
            images.append(np.asarray(picture.convert("RGB")))
            labels.append(CLASSES.index(label))
    absent = [name for i, name in enumerate(CLASSES) if i not in labels]
    if absent:  # also how a tar file that was cut off between two members looks
        raise LookupError(f"no pictures under {split}/{absent[0]}/")
    return Images(np.stack(images), np.array(labels, np.int32))
