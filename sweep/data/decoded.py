"""Pictures that were decoded once, for all trainings of a node.

A file of pixels as large as the whole split, and a checksum per image, 0 where it is not there; both are mapped into
memory by every process of the node that reads the split. Who needs an image that is not there decodes it and puts it
there; two that do so at once write the same bytes, and one that is killed in between has not set the checksum. So
trainings may start, stop, die and join late, each reads its own epoch in its own order, and a picture is decoded once.

A process compares an image with its checksum the first time it reads it: a node that lost its power may have kept one
of the two files and not the other.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np

from sweep.data.prepared import name_of
from sweep.data.shards import Reader, Shards


class Decoded(Reader):
    """A reader that decodes no picture twice on this node."""

    def __init__(self, shards: Shards, folder: Path) -> None:
        super().__init__(shards)
        size, images = shards.prepared.size, shards.prepared.images[shards.split]  # also of those not read here
        name = name_of(shards.prepared, shards.split)
        folder.mkdir(parents=True, exist_ok=True)
        self._pixels = _mapped(folder / f"{name}.pixels", (images, size, size, 3))
        self._sums = _mapped(folder / f"{name}.sums", (images,), np.uint32)
        self._known = np.zeros(images, bool)  # compared by this process

    def pixels(self, row: int, out: np.ndarray) -> None:
        place = self.shards.records["row"][row]
        if self._sums[place]:
            out[...] = self._pixels[place]
            if self._known[place] or self._sums[place] == checksum(out):
                self._known[place] = True
                return
        super().pixels(row, out)
        self._pixels[place] = out
        self._sums[place] = checksum(out)


def checksum(pixels: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(pixels).data) or 1


def _mapped(path: Path, shape: tuple[int, ...], kind: type[np.generic] = np.uint8) -> np.ndarray:
    """A file of zeros of this shape, made if it is new. Its room is taken at once: a full disk met later kills."""
    new = not path.exists()
    try:
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * np.dtype(kind).itemsize)
    except OSError:
        if new:
            path.unlink(missing_ok=True)
        raise
    return np.memmap(path, kind, "r+", shape=shape)
