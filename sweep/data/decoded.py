"""Pictures that were decoded once, for all trainings of a node.

A file of pixels as large as the whole split, and one byte per image that says whether it is there; both are mapped into
memory by every process of the node that reads the split. Who needs an image that is not there decodes it and puts it
there; two that do so at once write the same bytes, and one that is killed in between has not set the byte. So cells may
start, stop, die and join late, each reads its own epoch in its own order, and a picture is decoded once in all.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from sweep import files
from sweep.data.shards import DESCRIPTION, Reader, Shards, name_of


class Decoded(Reader):
    """A reader that decodes no picture twice on this node."""

    def __init__(self, shards: Shards, folder: Path) -> None:
        super().__init__(shards)
        size, images = shards.prepared.size, total(shards)
        name = name_of(shards.prepared, shards.split)
        folder.mkdir(parents=True, exist_ok=True)
        self._pixels = _mapped(folder / f"{name}.pixels", (images, size, size, 3))
        self._there = _mapped(folder / f"{name}.there", (images,))

    def pixels(self, row: int, out: np.ndarray) -> None:
        place = self.shards.records["row"][row]
        if self._there[place]:
            out[...] = self._pixels[place]
            return
        super().pixels(row, out)
        self._pixels[place] = out
        self._there[place] = 1


def total(shards: Shards) -> int:
    """Images of the whole split, also where only some of them are read."""
    found = files.read_json(shards.prepared.root / DESCRIPTION, {"images": {shards.split: int}})
    return int(found["images"][shards.split])


def _mapped(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A file of zeros of this shape, made if it is new. Its room is taken at once: a full disk met later kills."""
    new = not path.exists()
    try:
        with path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)))
    except OSError:
        if new:
            path.unlink(missing_ok=True)
        raise
    return np.memmap(path, np.uint8, "r+", shape=shape)
