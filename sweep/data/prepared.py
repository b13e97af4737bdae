"""The description of a folder of shards: prepared.json, and an index beside every shard.

An index has a checksum of its shard and of every image. Its last key, the seal, is a checksum of everything before it,
of prepared.json and of the index's name. So any change in these files is found before training on them. Earlier
versions wrote neither seals nor checksums of images; their folders are still read.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sweep import files
from sweep.errors import Refused, brief

DESCRIPTION = "prepared.json"
SPLITS = ("train", "test")
FORMATS = ("jpeg", "raw")
MOST_SHARDS = 100_000  # per split: file names have five digits
LARGEST_SIZE = 8192  # pixels of a side; such an image has 192 MiB
LATER = b', "crc32": '  # `name_of` ignores an index from here on: earlier versions wrote no checksums
SEAL = b', "seal": "'
AGAIN = "run lottery data prepare again, or bring it back from a copy"


@dataclass(frozen=True)
class Prepared:
    """The content of a folder of shards, as prepared.json describes it."""

    root: Path
    format: str
    size: int
    classes: tuple[str, ...]
    counts: dict[str, int]  # shards of each split
    images: dict[str, int] = field(default_factory=dict)  # of each split at the source, including unreadable ones

    def shard(self, split: str, number: int) -> Path:
        return self.root / f"{split}-{number:05d}.{self.format}"

    def index(self, split: str, number: int) -> Path:
        return self.root / f"{split}-{number:05d}.json"

    def done(self, split: str) -> list[int]:
        """Return the numbers of the shards that have an index."""
        return [number for number in range(self.counts[split]) if self.index(split, number).is_file()]


def describe(prepared: Prepared, more: dict[str, Any]) -> None:
    """Write prepared.json; raise Refused if the folder was begun with other options or images."""
    path = prepared.root / DESCRIPTION
    content = {
        "format": prepared.format, "size": prepared.size, "classes": list(prepared.classes), "shards": prepared.counts,
        **more,
    }  # fmt: skip
    if not path.exists():
        return files.write_json(path, content)
    before = files.read_json(path)
    if other := sorted(key for key in content | before if before.get(key) != content.get(key)):
        raise Refused(f"{prepared.root}: begun with another {', '.join(other)}; expected the same, or an empty folder")


def open_prepared(root: Path) -> Prepared:
    """Return the content of prepared.json; raise Refused if it is missing or invalid."""
    path, wanted = root / DESCRIPTION, "expected a folder that lottery data prepare made"
    if not path.is_file():
        raise Refused(f"{root}: no {DESCRIPTION} in it; {wanted}")
    shape = {"format": str, "size": int, "classes": list, "shards": dict.fromkeys(SPLITS, int),
             "images?": dict.fromkeys(SPLITS, int)}  # fmt: skip
    try:
        found = files.read_json(path, shape)
    except (OSError, Refused) as error:
        said = str(error) if isinstance(error, Refused) else f"{path}: {error.strerror}"
        raise Refused(f"{said.partition(';')[0]}; {wanted}") from None
    classes, counts = found["classes"], {split: found["shards"][split] for split in SPLITS}
    for ok, name, value, right in (
        (found["format"] in FORMATS, "format", found["format"], " or ".join(FORMATS)),
        (_whole(found["size"], LARGEST_SIZE), "size", found["size"], f"1 to {LARGEST_SIZE} pixels"),
        (classes and all(isinstance(one, str) for one in classes), "classes", classes, "names of classes"),
        *((_whole(n, MOST_SHARDS), f"shards.{split}", n, f"1 to {MOST_SHARDS:,}") for split, n in counts.items()),
    ):
        if not ok:
            raise Refused(f"{path}: {name} is {brief(value)}, expected {right}; bring it back from a copy")
    return Prepared(root, found["format"], found["size"], tuple(classes), counts, found.get("images") or {})


def _whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and 1 <= value <= most


def write_index(prepared: Prepared, split: str, number: int, index: dict[str, Any]) -> None:
    """Write the index of a shard with its seal; the last key of `index` must be `crc32`."""
    assert list(index)[-1] == "crc32"  # see LATER
    path = prepared.index(split, number)
    body = json.dumps(index)[:-1].encode()
    files.write_text(path, f'{body.decode()}{SEAL.decode()}{_seal(path, body)}"}}\n')


def _seal(path: Path, body: bytes) -> str:
    """Return the seal of an index: CRC-32 as 8 hexadecimal digits (fast: 0.1 s for ImageNet's indexes)."""
    described = zlib.crc32(path.name.encode(), zlib.crc32((path.parent / DESCRIPTION).read_bytes()))
    return f"{zlib.crc32(body, described):08x}"


def _content(prepared: Prepared, split: str, number: int) -> bytes:
    """Return the bytes of an index; raise Refused if it is missing or its seal does not fit."""
    path = prepared.index(split, number)
    if not path.is_file():
        raise Refused(f"{path}: not there; {AGAIN}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; expected a file that can be read") from None
    body, sealed, seal = content.rpartition(SEAL)
    if sealed and seal != f'{_seal(path, body)}"}}\n'.encode():
        raise Refused(f"{path}: it or {DESCRIPTION} changed since it was written (checksum); {AGAIN}")
    return content


def read_index(prepared: Prepared, split: str, number: int) -> dict[str, Any]:
    """Return the index of a shard; `numbers` `[images, 5]` is its records without the names.

    `sha256` of the shard and `crc32` of every record are None if an earlier version wrote the index.
    """
    path, content = prepared.index(split, number), _content(prepared, split, number)
    try:
        found = json.loads(content)
        records, sums = found["records"], found.get("crc32")
        numbers = np.array([record[:5] for record in records]) if records else np.zeros((0, 5), int)
        wrong = next(_wrong(prepared, found, numbers), "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        wrong = "not readable as an index"
    if wrong:
        raise Refused(f"{path}: {wrong}; {AGAIN}")
    return {"records": records, "problems": found["problems"], "bytes": found["bytes"], "sha256": found.get("sha256"),
            "crc32": sums, "numbers": numbers}  # fmt: skip


def _wrong(prepared: Prepared, found: dict[str, Any], numbers: np.ndarray) -> Iterator[str]:
    """Yield every mistake in an index. Columns of `numbers`: offset, length, label, height, width."""
    records, sums = found["records"], found.get("crc32")
    if numbers.dtype.kind != "i" or numbers.shape != (len(records), 5):
        yield "records are not whole numbers and a name"
    offsets, lengths, labels = numbers[:, 0], numbers[:, 1], numbers[:, 2]
    strange = labels[(labels < 0) | (labels >= len(prepared.classes))]
    if len(strange):
        yield f"{len(strange)} labels are of no class, such as {strange[0]}, expected 0 to {len(prepared.classes) - 1}"
    if (numbers[:, [1, 3, 4]] < 1).any() or (numbers[:, 1:] >= 2**31).any():
        yield "a record has no length, height or width"
    if (offsets != np.cumsum(lengths) - lengths).any() or found["bytes"] != lengths.sum():
        yield "records do not lie one after the other"
    if prepared.format == "raw" and (lengths != 3 * prepared.size**2).any():
        yield f"records are not of {prepared.size} x {prepared.size} pixels, the size in {DESCRIPTION}"
    if not all(isinstance(record[5], str) for record in records):
        yield "records without a name"
    if not all(isinstance(name, str) and isinstance(what, str) for name, what in found["problems"]):
        yield "problems are not names and words"
    if sums is not None and not (len(sums) == len(records) and all(_whole(one + 1, 2**32) for one in sums)):
        yield "crc32 is not a checksum of every record"


def damage(prepared: Prepared, split: str, number: int, completely: bool = False) -> str:
    """Return what is wrong with a shard, or "". `completely`: read all of it and compare its checksum."""
    try:
        index = read_index(prepared, split, number)
        look(prepared.shard(split, number), index["bytes"])
        if completely and index["sha256"] not in (None, checksum(prepared.shard(split, number))):
            return f"{prepared.shard(split, number)}: its checksum is another; delete it and {AGAIN}"
    except Refused as error:
        return str(error)
    except OSError as error:
        return f"{prepared.shard(split, number)}: {error.strerror}; {AGAIN}"
    return ""


def look(path: Path, size: int) -> None:
    """Raise Refused if a shard is missing, cannot be opened, or differs in size from its index."""
    if not path.is_file():  # checked before opening: opening a named pipe would block
        raise Refused(f"{path}: {'no file' if path.exists() else 'not there'}; {AGAIN}")
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; expected a file that can be read") from None
    if found != size:
        raise Refused(f"{path}: {found} bytes, expected {size}; {AGAIN}")


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_unfinished(prepared: Prepared, split: str) -> None:
    """Raise Refused if shards of a split are missing."""
    if missing := prepared.counts[split] - len(prepared.done(split)):
        raise Refused(f"{prepared.root}: {missing} of {prepared.counts[split]} {split} shards are missing; expected "
                      "lottery data prepare to have ended")  # fmt: skip


def name_of(prepared: Prepared, split: str) -> str:
    """Return a name of the split that changes if any of its images changes. Trainings and caches are named by it."""
    refuse_unfinished(prepared, split)
    # formatted as versions before 0.3 wrote it, without a checksum, so that the name stays the same
    described = json.dumps(files.read_json(prepared.root / DESCRIPTION), indent=1) + "\n"
    digest = hashlib.sha256(described.encode())
    for number in range(prepared.counts[split]):
        content = _content(prepared, split, number)
        earlier, later, _ = content.rpartition(LATER)
        digest.update(earlier + b"}\n" if later else content)  # the part that all versions wrote
    return f"{split}-{digest.hexdigest()[:16]}"
