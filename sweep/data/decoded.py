"""A cache of decoded pictures, shared by all trainings on a node.

It is a file of pixels as large as the whole split, and a file with one checksum per image, 0 if the image is not cached
yet. Every process on the node that reads the split opens both. A process that needs an image that is not
cached decodes and stores it; two that do so at once write the same bytes, and one that is killed meanwhile has not set
the checksum. So trainings may start, stop, die and join late, each in its own order, and a picture is decoded once.

A process compares an image with its checksum the first time it reads it: after a power failure one of the two files may
be older than the other.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np

from sweep.data.disk import Pieces
from sweep.data.prepared import name_of
from sweep.data.shards import Reader, Shards


class Decoded(Reader):
    """A reader of shards that caches decoded pictures on this node's disk."""

    def __init__(self, shards: Shards, folder: Path) -> None:
        super().__init__(shards)
        size, images = shards.prepared.size, shards.prepared.images[shards.split]  # the whole split
        name = name_of(shards.prepared, shards.split)
        folder.mkdir(parents=True, exist_ok=True)
        self._pixels = Pieces(_allocated(folder / f"{name}.pixels", images * size**2 * 3), os.O_RDWR)
        self._sums = np.memmap(_allocated(folder / f"{name}.sums", 4 * images), np.uint32, "r+")
        self._known = np.zeros(images, bool)  # whether this process has compared the image with its checksum

    @property
    def paths(self) -> list[Path]:
        return [self._pixels.path]

    def _had(self, row: int, out: np.ndarray) -> bool:
        place = int(self.shards.records["row"][row])
        if not self._sums[place]:
            return False
        self._pixels.read(place * out.nbytes, out)
        self._known[place] = self._known[place] or self._sums[place] == checksum(out)
        return bool(self._known[place])

    def _keep(self, row: int, pixels: np.ndarray) -> None:
        place = int(self.shards.records["row"][row])
        self._pixels.write(place * pixels.nbytes, pixels)
        self._sums[place] = checksum(pixels)


def checksum(pixels: np.ndarray) -> int:
    """Return the CRC-32 of the pixels; never 0, which means that there is no image."""
    return zlib.crc32(pixels.data) or 1


def _allocated(path: Path, size: int) -> Path:
    """Return the file, created with zeros if it is new; allocated now, so that the disk is not found full later."""
    new = not path.exists()
    try:
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        if new:
            path.unlink(missing_ok=True)
        raise
    return path
