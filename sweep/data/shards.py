"""Prepared images: a few large files instead of a million small ones, with random access to every record.

A shard stores every image as a square of `size` pixels. Nothing is cut off: height and width of the original are in the
index, and windows are given as shares of both. So all records have one shape, they can be read in any order, and the
device resizes the window that a training step needs to the network's input size.

`raw` shards hold pixels: a record is a slice of the file. `jpeg` shards are decoded when they are read. The index of a
shard is written last: a shard without an index is not finished (see sweep.data.prepared).
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from sweep import files
from sweep.data import DEVIATION, MEAN, Dataset, Images, Split, hold_out, pixel_statistics, place_of
from sweep.data.disk import kept_open
from sweep.data.jpeg import decode, decode_many
from sweep.data.prepared import DESCRIPTION, Prepared, look, open_prepared, read_index, refuse_unfinished, write_index
from sweep.errors import Refused
from sweep.experiment import Data

T = TypeVar("T")
RECORD = [
    ("row", "<i8"), ("shard", "<i4"), ("offset", "<i8"), ("length", "<i4"), ("label", "<i4"), ("height", "<i4"),
    ("width", "<i4"), ("crc32", "<i8"),
]  # fmt: skip
UNKNOWN = -1  # in place of the crc32 that earlier versions did not write
# Two for a core, as one waits for the disk: 1.35 times as many images from a disk as with one, as many from the cache.
# With eight for a core a fifth fewer pictures are decoded (docs/data.md).
CORES = len(os.sched_getaffinity(0))
THREADS = 2 * CORES
FEW_CORES = 8  # up to which Python's threads decode pictures: with two cores they are 1.5 times as fast as TensorFlow
VERIFY = "lottery data inspect --verify finds what else changed"
RESIDENT_BYTES = 1 << 31  # a data set up to this size can be kept in the device's memory


@dataclass(frozen=True)
class Written:
    """One record to be written to a shard."""

    name: str
    label: int
    height: int  # of the source
    width: int
    content: bytes


def write_shard(
    prepared: Prepared, split: str, number: int, records: Iterable[Written], problems: list[list[str]]
) -> None:
    """Write the shard, then its index. `problems` may grow while `records` is read."""
    path, digest, rows, sums, offset = prepared.shard(split, number), hashlib.sha256(), [], [], 0
    with files.replacing(path) as beside, beside.open("wb") as file:
        for record in records:
            file.write(record.content)
            digest.update(record.content)
            rows.append([offset, len(record.content), record.label, record.height, record.width, record.name])
            sums.append(zlib.crc32(record.content))
            offset += len(record.content)
    index = {"bytes": offset, "sha256": digest.hexdigest(), "records": rows, "problems": problems, "crc32": sums}
    write_index(prepared, split, number, index)


@dataclass(frozen=True)
class Shards(Split):
    """The records of a split, or a selection of them in any order."""

    prepared: Prepared
    split: str
    records: np.ndarray  # structured array with the fields of RECORD

    @property
    def labels(self) -> np.ndarray:  # type: ignore[override]
        return np.asarray(self.records["label"], np.int32)


def records_of(prepared: Prepared, split: str) -> Shards:
    """Return all records of a split; raise Refused if a shard or an image is missing, cut off or invalid."""
    refuse_unfinished(prepared, split)
    parts, lost = [], 0
    for number in range(prepared.counts[split]):
        index = read_index(prepared, split, number)
        look(prepared.shard(split, number), index["bytes"])
        part = np.zeros(len(index["records"]), RECORD)
        part["shard"], part["crc32"] = number, UNKNOWN if index["crc32"] is None else index["crc32"]
        for column, name in enumerate(("offset", "length", "label", "height", "width")):
            part[name] = index["numbers"][:, column]
        parts.append(part)
        lost += sum(what.startswith("lost") for _, what in index["problems"])
    records = np.concatenate(parts)
    records["row"] = np.arange(len(records))
    if prepared.images.get(split, len(records) + lost) != len(records) + lost:
        raise Refused(f"{prepared.root}: {len(records) + lost} {split} images in its shards, expected the "
                      f"{prepared.images[split]} in {DESCRIPTION}; bring it back from a copy")  # fmt: skip
    if not len(records):
        raise Refused(f"{prepared.root}: no {split} images in its shards; expected some, see lottery data inspect")
    return Shards(prepared, split, records)


class Reader:
    """A reader of records as squares of pixels."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self._shard = kept_open(partial(shards.prepared.shard, shards.split))
        self._checked = shards.records["crc32"] == UNKNOWN  # compared with its checksum already, or has none

    def pixels(self, row: int, out: np.ndarray) -> None:
        """Write the image of one row into `out`, `[size, size, 3]` uint8."""
        if not self._had(row, out):
            self._decode(row, out)

    def squares(self, rows: np.ndarray, out: np.ndarray, pool: ThreadPoolExecutor, gpu: bool = False) -> None:
        """Write the images of these rows into `out`, `[n, size, size, 3]`, read by the THREADS of `pool`.

        `gpu`: for a GPU, which takes as many as the cores can decode; many cores decode more in TensorFlow's threads.
        """

        def each(work: Callable[[int], T], places: np.ndarray) -> list[T]:
            share = lambda part: [work(int(i)) for i in part]  # noqa: E731
            return [one for part in pool.map(share, np.array_split(places, THREADS)) for one in part]

        left = np.arange(len(rows))
        if gpu and CORES > FEW_CORES and self.shards.prepared.format == "jpeg":
            left = left[np.logical_not(each(lambda i: self._had(int(rows[i]), out[i]), left))]
            found = decode_many(each(lambda i: self.encoded(int(rows[i])), left), out.shape[1])

            def take(k: int) -> None:
                out[left[k]] = found[k]
                self._keep(int(rows[left[k]]), out[left[k]])

            each(take, np.array(list(found), int))
            left = np.delete(left, list(found))
        each(lambda i: self.pixels(int(rows[i]), out[i]), left)

    def _had(self, row: int, out: np.ndarray) -> bool:
        """Write the image of one row into `out` if its pixels are stored, and return whether they are."""
        if self.shards.prepared.format == "raw":
            self._read(row, out)
            return True
        return False

    def _keep(self, row: int, pixels: np.ndarray) -> None:
        """Be told of the pixels of a picture that was decoded."""

    def _decode(self, row: int, out: np.ndarray) -> None:
        try:
            decode(self.encoded(row), out)
        except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises for a damaged picture
            raise Refused(f"{self._place(row)}: {' '.join(str(error).split())}; {VERIFY}") from None
        self._keep(row, out)

    @property
    def paths(self) -> list[Path]:
        """Files that are read."""
        prepared, split = self.shards.prepared, self.shards.split
        return [prepared.shard(split, number) for number in range(prepared.counts[split])]

    def encoded(self, row: int) -> bytes:
        """Return the stored bytes of the image of one row."""
        content: np.ndarray = np.empty(self.shards.records["length"][row], np.uint8)
        self._read(row, content)
        return content.tobytes()

    def _read(self, row: int, out: np.ndarray) -> None:
        """Fill `out` with the stored bytes of the image of one row; raise Refused if they changed."""
        record = self.shards.records[row]
        self._shard(int(record["shard"])).read(int(record["offset"]), out)
        if not self._checked[row]:  # once per record: for raw pixels the check takes longer than copying them
            if zlib.crc32(out.data) != record["crc32"]:
                raise Refused(f"{self._place(row)}: changed since it was written (checksum); {VERIFY}")
            self._checked[row] = True

    def _place(self, row: int) -> str:
        record = self.shards.records[row]
        return f"{self.shards.prepared.shard(self.shards.split, record['shard'])}: image at byte {record['offset']}"


def read(data: Data) -> Dataset:
    """Return a prepared data set; with padded crops it is read into memory, at its own image size."""
    prepared = open_prepared(place_of(data))
    train, validation = hold_out(records_of(prepared, "train"), data.validation)
    test, names = records_of(prepared, "test"), prepared.classes
    if data.crop == "padded":
        small = prepared.size**2 * 3 * (len(train) + len(validation) + len(test)) <= RESIDENT_BYTES
        if prepared.format != "raw" or not small or data.image_size not in (0, prepared.size):
            raise Refused(f"data.crop: padded needs raw shards of at most {RESIDENT_BYTES >> 20} MiB, at their own "
                          f"size, and {prepared.root} has others; expected data.crop=resized")  # fmt: skip
        images, held, tested = (_in_memory(part) for part in (train, validation, test))
        mean, deviation = pixel_statistics(images.images)
        return Dataset("shards", len(names), prepared.size, 3, images, held, tested, mean, deviation, names)
    size = data.image_size or 224
    return Dataset("shards", len(names), size, 3, train, validation, test, MEAN, DEVIATION, names)


def _in_memory(split: Split) -> Images:
    assert isinstance(split, Shards)
    size, reader = split.prepared.size, Reader(split)
    images: np.ndarray = np.empty((len(split), size, size, 3), np.uint8)
    for row in range(len(split)):
        reader.pixels(row, images[row])
    return Images(images, split.labels)
