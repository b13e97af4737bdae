"""CIFAR-10 and CIFAR-100, read from any of their common forms.

These are the original archives (`cifar-10-python.tar.gz`, `cifar-10-binary.tar.gz`), their unpacked folders, or class
folders `train/airplane/*.jpg` and `test/…`, as a folder or as a tar file.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import pickle
import struct
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import numpy as np

from sweep.data import Dataset, Images, in_memory, place_of
from sweep.errors import Refused
from sweep.experiment import Data
from sweep.experiment.sources import SOURCES

PICTURES = (".jpg", ".jpeg", ".png")
LARGEST = 2**28  # most bytes that a file in an archive may have
# bytes and MD5 of the archives at https://www.cs.toronto.edu/~kriz/cifar.html
PUBLISHED = {
    "cifar-10-python.tar.gz": (170_498_071, "c58f30108f718f92721af3b95e74349a"),
    "cifar-10-binary.tar.gz": (170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar-100-python.tar.gz": (169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),
    "cifar-100-binary.tar.gz": (168_513_733, "03b5dce01913d631647c71ecec9e9cb8"),
}


@dataclass(frozen=True)
class Form:
    """The layout of the original files of CIFAR-10 or CIFAR-100."""

    classes: tuple[str, ...]
    train: tuple[str, ...]  # names of the files with training images
    test: str
    labels: bytes  # key of the labels in the pickled form
    label_bytes: int  # number of labels before each image in the binary form; the last is the class


CIFAR10 = Form(
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", b"labels", 1,
)  # fmt: skip


def read(data: Data, form: Form = CIFAR10) -> Dataset:
    path, source = place_of(data), SOURCES[data.name]
    try:
        members = dict(_members(path, form))
        if any(name.lower().endswith(PICTURES) for name in members) and not any(n.endswith(".bin") for n in members):
            train, test = (_pictures(members, split, form) for split in ("train", "test"))
        else:
            train, test = _batches(members, form)
        if path.name in PUBLISHED:
            _compare(path, path.stat().st_mtime_ns)
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError, pickle.UnpicklingError, struct.error,
            LookupError, TypeError, AttributeError, ValueError, ArithmeticError, SyntaxError, RecursionError,
            MemoryError, SystemError) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise Refused(
            f"data.path: {path} is not readable as {source.title} ({reason}); expected {source.wants}"
        ) from None
    return in_memory(data, form.classes, train, test)


@cache
def _compare(path: Path, changed: int) -> None:
    """Warn, once per process, if an archive has a published name and size but another MD5. `changed` is its mtime."""
    size, wanted = PUBLISHED[path.name]
    if path.stat().st_size == size:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if found != wanted:
            print(f"WARNING: {path} has the size of the published archive, but the MD5 {found}; expected {wanted}, or "
                  "another name", file=sys.stderr)  # fmt: skip


def _members(path: Path, form: Form) -> Iterator[tuple[str, bytes]]:
    """Yield name (its last three parts) and content of every batch file or picture in a folder or tar file."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and _wanted(file.name, form):
                _refuse_large(file.name, file.stat().st_size)
                yield "/".join(file.relative_to(path).parts[-3:]), file.read_bytes()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if member.isfile() and _wanted(name.name, form):
                _refuse_large(member.name, member.size)
                content = archive.extractfile(member)
                assert content is not None
                yield "/".join(name.parts[-3:]), content.read()
        assert archive.fileobj is not None
        while archive.fileobj.read(1 << 20):  # read to the end, where gzip and xz have their checksum
            pass


def _refuse_large(name: str, size: int) -> None:
    if size > LARGEST:
        raise LookupError(f"{name} claims {size:,} bytes, a batch has 30 million")


def _wanted(name: str, form: Form) -> bool:
    return name.removesuffix(".bin") in (*form.train, form.test) or name.lower().endswith(PICTURES)


def _images(stem: str, planes: np.ndarray, labels: np.ndarray, classes: int) -> Images:
    """Return the images of one original file; raise ValueError, naming the file, if pixels or labels are invalid."""
    right = f"0 to {classes - 1}"
    if planes.dtype != np.uint8 or planes.shape[1:] != (3072,):
        raise ValueError(f"{stem}: data is {planes.dtype} of shape {planes.shape}, expected uint8 of shape (n, 3072)")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ValueError(f"{stem}: labels are {labels.dtype} of shape {labels.shape}, expected whole numbers {right}")
    if len(labels) != len(planes) or not len(planes):
        raise ValueError(f"{stem}: {len(labels)} labels for {len(planes)} images")
    if len(wrong := labels[(labels < 0) | (labels >= classes)]):
        raise ValueError(f"{stem}: {len(wrong)} labels are none of {right}, such as {wrong[0]}")
    return Images(np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.astype(np.int32))


def _batches(members: dict[str, bytes], form: Form) -> tuple[Images, Images]:
    """Return the training and the test images of the original files."""
    classes, first = len(form.classes), form.label_bytes

    def part(stem: str) -> Images:
        names = [name for name in members if PurePosixPath(name).name in (stem, f"{stem}.bin")]
        if not names:
            raise KeyError(f"no file {stem} in it")
        content = members[names[0]]
        if not names[0].endswith(".bin"):  # a pickled dictionary
            batch = _Numbers(io.BytesIO(content), encoding="bytes").load()
            return _images(stem, np.asarray(batch[b"data"]), np.asarray(batch[form.labels]), classes)
        if len(content) % (first + 3072):  # each image is its labels and 3072 bytes of planes
            raise ValueError(f"{stem}: {len(content)} bytes, expected a multiple of {first + 3072}")
        rows = np.frombuffer(content, np.uint8).reshape(-1, first + 3072)
        return _images(stem, rows[:, first:], rows[:, first - 1], classes)

    parts = [part(stem) for stem in form.train]
    train = Images(np.concatenate([one.images for one in parts]), np.concatenate([one.labels for one in parts]))
    return train, part(form.test)


# classes that pickled arrays refer to, written by numpy 1 or 2
_PICKLED = {("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")
}


class _Numbers(pickle.Unpickler):
    """An unpickler for numpy arrays and nothing else: an archive from anywhere must not run code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in _PICKLED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} in a data file")


def _pictures(members: dict[str, bytes], split: str, form: Form) -> Images:
    """Return the images of the class folders of a split, such as `train/airplane/0001.jpg`, sorted by name."""
    from PIL import Image

    images, labels = [], []
    for name, content in sorted(members.items()):
        part, label, _ = name.split("/")
        if part == split:
            if label not in form.classes:
                raise LookupError(f"{name} is of no class of this data set")
            try:
                picture = Image.open(io.BytesIO(content))
            except Image.DecompressionBombError as error:
                raise ValueError(f"{name}: {error}") from None
            if picture.size != (32, 32):
                raise ValueError(f"{name} has {picture.width} x {picture.height} pixels, expected 32 x 32")
            images.append(np.asarray(picture.convert("RGB")))
            labels.append(form.classes.index(label))
    absent = [name for i, name in enumerate(form.classes) if i not in labels]
    if absent:  # also the sign of a tar file that was cut off between two members
        raise LookupError(f"no pictures under {split}/{absent[0]}/")
    return Images(np.stack(images), np.array(labels, np.int32))
