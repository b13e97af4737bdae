"""Prepared images: a few large files instead of a million small ones, every record reached by its number.

A folder of shards holds every image as a square of `size` pixels, whatever its shape was: nothing of it is cut off, its
height and width are on record, and windows of it are given in shares of both. So all records are alike, any order of
them can be read, and the window that a training step looks at is drawn to the network's size on the device.

`raw` shards are the pixels themselves: a record is a slice of the file. `jpeg` shards are decoded as they are read.
Beside a shard stands its index, written last: a shard without one does not exist (see sweep.data.prepared).
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sweep import files
from sweep.data import DEVIATION, MEAN, Dataset, Images, Split, hold_out, pixel_statistics, place_of
from sweep.data.prepared import DESCRIPTION, Prepared, look, open_prepared, read_index, refuse_unfinished, write_index
from sweep.errors import Refused
from sweep.experiment import Data

RECORD = [
    ("row", "<i8"), ("shard", "<i4"), ("offset", "<i8"), ("length", "<i4"), ("label", "<i4"), ("height", "<i4"),
    ("width", "<i4"), ("crc32", "<i8"),
]  # fmt: skip
UNKNOWN = -1  # crc32 of records that an earlier version wrote
VERIFY = "lottery data inspect --verify finds what else changed"
RESIDENT_BYTES = 1 << 31  # up to here a split is put into the device's memory


@dataclass(frozen=True)
class Written:
    """One record to be written."""

    name: str
    label: int
    height: int  # of the source
    width: int
    content: bytes


def write_shard(
    prepared: Prepared, split: str, number: int, records: Iterable[Written], problems: list[list[str]]
) -> None:
    """The shard, then its index. `problems` may grow while the records are made."""
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
class Shards:
    """The records of a split, or some of them, in an order of their own."""

    prepared: Prepared
    split: str
    records: np.ndarray  # of RECORD

    def __len__(self) -> int:
        return len(self.records)

    @property
    def labels(self) -> np.ndarray:
        return np.asarray(self.records["label"], np.int32)

    def take(self, indices: np.ndarray) -> Shards:
        return Shards(self.prepared, self.split, self.records[indices])


def records_of(prepared: Prepared, split: str) -> Shards:
    """Return all records of a split. Refuse one that is not complete: what is missing, cut off or of no class."""
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
    """Fetches records as squares of pixels. Files are mapped into memory, which all readers of a node share."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self._maps: dict[int, np.ndarray] = {}
        self._checked = shards.records["crc32"] == UNKNOWN  # compared with its checksum by this reader, or has none

    def pixels(self, row: int, out: np.ndarray) -> None:
        """The image of one row into `out`, `[size, size, 3]` uint8."""
        content = self._record(row)
        if self.shards.prepared.format == "raw":
            out[...] = content.reshape(out.shape)
        else:
            try:
                out[...] = decoded(content.tobytes(), out.shape[0])
            except (OSError, ValueError, SyntaxError) as error:  # Pillow's ways to say: damaged
                raise Refused(f"{self._place(row)}: {' '.join(str(error).split())}; {VERIFY}") from None

    def encoded(self, row: int) -> bytes:
        """The image of one row as it lies in its shard."""
        return self._record(row).tobytes()

    def _record(self, row: int) -> np.ndarray:
        record = self.shards.records[row]
        content = self._content(int(record["shard"]))[record["offset"] : record["offset"] + record["length"]]
        if not self._checked[row]:  # once: of raw pixels it takes longer than copying them
            if zlib.crc32(content.data) != record["crc32"]:
                raise Refused(f"{self._place(row)}: changed since it was written (checksum); {VERIFY}")
            self._checked[row] = True
        return content

    def _place(self, row: int) -> str:
        record = self.shards.records[row]
        return f"{self.shards.prepared.shard(self.shards.split, record['shard'])}: image at byte {record['offset']}"

    def _content(self, number: int) -> np.ndarray:
        if number not in self._maps:
            path = self.shards.prepared.shard(self.shards.split, number)
            self._maps[number] = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        return self._maps[number]


def decoded(content: bytes, size: int) -> np.ndarray:
    """The pixels of a picture as a square."""
    from PIL import Image

    picture = Image.open(io.BytesIO(content)).convert("RGB")
    if picture.size != (size, size):  # a small original that was passed through as it was
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(picture)


def read(data: Data) -> Dataset:
    """A prepared data set. With padded crops it is trained from the device's memory, as images of its own size."""
    prepared = open_prepared(place_of(data))
    train, validation = hold_out(records_of(prepared, "train"), data.validation)
    test, names = records_of(prepared, "test"), tuple(prepared.classes)
    if data.crop == "padded":
        small = prepared.size**2 * 3 * (len(train) + len(validation) + len(test)) <= RESIDENT_BYTES
        if prepared.format != "raw" or not small or data.image_size not in (0, prepared.size):
            raise Refused(f"data.crop: padded needs raw shards of at most {RESIDENT_BYTES >> 20} MiB, at their own "
                          f"size, and {prepared.root} has others; expected data.crop=resized")  # fmt: skip
        images, held, tested = (_in_memory(part) for part in (train, validation, test))
        mean, deviation = pixel_statistics(images.images)
        return Dataset("shards", len(prepared.classes), prepared.size, 3, images, held, tested, mean, deviation, names)
    size = data.image_size or 224
    return Dataset("shards", len(prepared.classes), size, 3, train, validation, test, MEAN, DEVIATION, names)


def _in_memory(split: Split) -> Images:
    assert isinstance(split, Shards)
    size, reader = split.prepared.size, Reader(split)
    images: np.ndarray = np.empty((len(split), size, size, 3), np.uint8)
    for row in range(len(split)):
        reader.pixels(row, images[row])
    return Images(images, split.labels)
