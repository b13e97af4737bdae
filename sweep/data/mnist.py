"""MNIST and other data sets in its format: four IDX files of grey images and labels, gzipped or not.

IDX: two zero bytes, the type (8: unsigned byte), the number of dimensions, their sizes (big-endian), the numbers.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from sweep.data import Dataset, Images, in_memory, place_of
from sweep.errors import Refused
from sweep.experiment import Data

CLASSES = tuple("0123456789")


def read(data: Data, classes: tuple[str, ...] = CLASSES) -> Dataset:
    """Return a data set in MNIST's format; `classes` are the names of its labels."""
    root = place_of(data)
    train, test = (
        Images(_file(root, f"{part}-images-idx3-ubyte", 3)[..., None], _labels(root, part, len(classes)))
        for part in ("train", "t10k")
    )
    for split in (train, test):
        if len(split.images) != len(split.labels):
            raise Refused(f"data.path: {root} has {len(split.images)} images and {len(split.labels)} labels of one "
                          "split; expected as many")  # fmt: skip
    return in_memory(data, classes, train, test)


def _labels(root: Path, part: str, classes: int) -> np.ndarray:
    labels = _file(root, f"{part}-labels-idx1-ubyte", 1).astype(np.int32)
    if labels.size and labels.max() >= classes:
        raise Refused(f"data.path: {root} has the label {labels.max()}; expected 0 to {classes - 1}")
    return labels


def _file(root: Path, name: str, dimensions: int) -> np.ndarray:
    path = next((path for path in (root / name, root / f"{name}.gz") if path.is_file()), None)
    if path is None:
        raise Refused(f"data.path: no {name} or {name}.gz in {root}; expected the four IDX files there")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        shape = struct.unpack_from(f">{dimensions}I", content, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise Refused(f"data.path: {path} is not readable ({' '.join(str(error).split())})") from None
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != 4 + 4 * dimensions + math.prod(shape):
        raise Refused(f"data.path: {path} is not a whole IDX file of {dimensions} dimensions of unsigned bytes")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
