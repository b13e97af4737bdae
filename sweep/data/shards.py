"""Prepared images: a few large files instead of a million small ones, every record reached by its number.

A folder of shards holds every image as a square of `size` pixels, whatever its shape was: nothing of it is cut off, its
height and width are on record, and windows of it are given in shares of both. So all records are alike, any order of
them can be read, and the window that a training step looks at is drawn to the network's size on the device.

`raw` shards are the pixels themselves: a record is a slice of the file. `jpeg` shards are decoded as they are read.
Beside a shard stands its index, written last: a shard without one does not exist.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep import files
from sweep.data import DEVIATION, MEAN, Dataset, Images, Split, hold_out, pixel_statistics, place_of
from sweep.errors import Refused
from sweep.experiment import Data

RECORD = [
    ("row", "<i8"), ("shard", "<i4"), ("offset", "<i8"), ("length", "<i4"), ("label", "<i4"), ("height", "<i4"),
    ("width", "<i4"),
]  # fmt: skip
DESCRIPTION = "prepared.json"
RESIDENT_BYTES = 1 << 31  # up to here a split is put into the device's memory


@dataclass(frozen=True)
class Written:
    """One record to be written."""

    name: str
    label: int
    height: int  # of the source
    width: int
    content: bytes


@dataclass(frozen=True)
class Prepared:
    """What a folder of shards says of itself."""

    root: Path
    format: str
    size: int
    classes: tuple[str, ...]
    counts: dict[str, int]  # shards of each split

    def shard(self, split: str, number: int) -> Path:
        return self.root / f"{split}-{number:05d}.{self.format}"

    def index(self, split: str, number: int) -> Path:
        return self.root / f"{split}-{number:05d}.json"

    def done(self, split: str) -> list[int]:
        return [number for number in range(self.counts[split]) if self.index(split, number).exists()]


def describe(prepared: Prepared, more: dict[str, Any]) -> None:
    """Put on record what the folder will hold; refuse one that was begun otherwise."""
    path = prepared.root / DESCRIPTION
    content = {
        "format": prepared.format, "size": prepared.size, "classes": list(prepared.classes), "shards": prepared.counts,
        **more,
    }  # fmt: skip
    if path.exists() and files.read_json(path) != content:
        before = files.read_json(path)
        other = sorted(key for key in content if before.get(key) != content[key])
        raise Refused(f"{prepared.root}: begun with another {', '.join(other)}; expected the same, or an empty folder")
    files.write_json(path, content)


def open_prepared(root: Path) -> Prepared:
    try:
        found = files.read_json(root / DESCRIPTION, {"format": str, "size": int, "classes": list, "shards": dict})
        return Prepared(root, found["format"], found["size"], tuple(found["classes"]), dict(found["shards"]))
    except (OSError, Refused) as error:
        raise Refused(f"{root}: no {DESCRIPTION} that can be read ({type(error).__name__}); expected a folder that "
                      "lottery data prepare made") from None  # fmt: skip


def write_shard(
    prepared: Prepared, split: str, number: int, records: Iterable[Written], problems: list[list[str]]
) -> None:
    """The shard, then its index. `problems` may grow while the records are made."""
    path, digest, rows, offset = prepared.shard(split, number), hashlib.sha256(), [], 0
    with files.replacing(path) as beside, beside.open("wb") as file:
        for record in records:
            file.write(record.content)
            digest.update(record.content)
            rows.append([offset, len(record.content), record.label, record.height, record.width, record.name])
            offset += len(record.content)
    index = {"bytes": offset, "sha256": digest.hexdigest(), "records": rows, "problems": problems}
    files.write_text(prepared.index(split, number), json.dumps(index) + "\n")


def read_index(prepared: Prepared, split: str, number: int) -> dict[str, Any]:
    path = prepared.index(split, number)
    try:
        found = json.loads(path.read_text())
        return {
            "records": found["records"],
            "problems": found["problems"],
            "sha256": found["sha256"],
            "bytes": found["bytes"],
        }
    except (ValueError, KeyError, TypeError):
        raise Refused(f"{path}: damaged; delete it and its shard, and run lottery data prepare again") from None


def damage(prepared: Prepared, split: str, number: int) -> str:
    """What is wrong with a shard; empty where nothing is."""
    if not prepared.index(split, number).exists():
        return "not there"
    try:
        wanted, found = read_index(prepared, split, number)["sha256"], checksum(prepared.shard(split, number))
    except (OSError, Refused) as error:
        return str(error)
    return "" if found == wanted else "its checksum is another"


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_of(prepared: Prepared, split: str) -> str:
    """What a split is called on a node's own disk: where any image of it is another, so is its name."""
    digest = hashlib.sha256((prepared.root / DESCRIPTION).read_bytes())
    for number in range(prepared.counts[split]):
        digest.update(prepared.index(split, number).read_bytes())
    return f"{split}-{digest.hexdigest()[:16]}"


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
    """All records of a split, which must be complete."""
    missing = prepared.counts[split] - len(prepared.done(split))
    if missing:
        raise Refused(f"{prepared.root}: {missing} of {prepared.counts[split]} {split} shards are missing; "
                      "expected lottery data prepare to have ended")  # fmt: skip
    rows = [
        (number, *record[:5])
        for number in range(prepared.counts[split])
        for record in read_index(prepared, split, number)["records"]
    ]
    return Shards(prepared, split, np.array([(row, *record) for row, record in enumerate(rows)], RECORD))


class Reader:
    """Fetches records as squares of pixels. Files are mapped into memory, which all readers of a node share."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self._maps: dict[int, np.ndarray] = {}

    def pixels(self, row: int, out: np.ndarray) -> None:
        """The image of one row into `out`, `[size, size, 3]` uint8."""
        content = self._record(row)
        if self.shards.prepared.format == "raw":
            out[...] = content.reshape(out.shape)
        else:
            out[...] = decoded(content.tobytes(), out.shape[0])

    def encoded(self, row: int) -> bytes:
        """The image of one row as it lies in its shard."""
        return self._record(row).tobytes()

    def _record(self, row: int) -> np.ndarray:
        record = self.shards.records[row]
        return self._content(int(record["shard"]))[record["offset"] : record["offset"] + record["length"]]

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
    test = records_of(prepared, "test")
    if data.crop == "padded":
        small = prepared.size**2 * 3 * (len(train) + len(validation) + len(test)) <= RESIDENT_BYTES
        if prepared.format != "raw" or not small or data.image_size not in (0, prepared.size):
            raise Refused(f"data.crop: padded needs raw shards of at most {RESIDENT_BYTES >> 20} MiB, at their own "
                          f"size, and {prepared.root} has others; expected data.crop=resized")  # fmt: skip
        images, held, tested = (_in_memory(part) for part in (train, validation, test))
        mean, deviation = pixel_statistics(images.images)
        return Dataset("shards", len(prepared.classes), prepared.size, 3, images, held, tested, mean, deviation)
    size = data.image_size or 224
    return Dataset("shards", len(prepared.classes), size, 3, train, validation, test, MEAN, DEVIATION)


def _in_memory(split: Split) -> Images:
    assert isinstance(split, Shards)
    size, reader = split.prepared.size, Reader(split)
    images: np.ndarray = np.empty((len(split), size, size, 3), np.uint8)
    for row in range(len(split)):
        reader.pixels(row, images[row])
    return Images(images, split.labels)
