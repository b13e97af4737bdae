"""Reading and writing of files.

A file is always complete: it is written under a temporary name, flushed to the disk and renamed. Each snapshot has its
own HDF5 file, because appending to a shared one did not survive kill -9.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import h5py
import numpy as np

from models import Network, Weights
from sweep.errors import Refused

CHECKSUM = "checksum"
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk is full, or the user's quota
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)  # not readable now; the file may be undamaged


@contextmanager
def replacing(path: Path, first: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end it is renamed to `path` in one step.

    `first`: if another process has written `path` meanwhile, keep that file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # unique: processes of several machines may write the same file
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield beside
        with open(beside, "rb") as f:
            os.fsync(f.fileno())
        if not first or not _linked(beside, path):
            os.replace(beside, path)
    except OSError as error:
        raise named(error, path) from None
    finally:
        beside.unlink(missing_ok=True)


def _linked(beside: Path, path: Path) -> bool:
    """Link `beside` to `path` unless that exists; return False if the file system has no links."""
    try:
        os.link(beside, path)
    except OSError as error:
        return isinstance(error, FileExistsError)
    return True


def named(error: OSError, path: Path) -> OSError:
    """Return an error of a full disk with the name of the file, which the system and HDF5 leave out."""
    return OSError(error.errno, os.strerror(error.errno), str(path)) if error.errno in FULL else error


def write_text(path: Path, text: str) -> None:
    with replacing(path) as beside:
        beside.write_text(text)


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON object or dataclass with a checksum of its content, which is verified when it is read."""
    write_text(path, json.dumps(sealed(value), indent=1) + "\n")


def sealed(value: Any) -> dict[str, Any]:
    """Return a JSON object, or a dataclass as one, with its checksum as the last key."""
    value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    plain: dict[str, Any] = json.loads(json.dumps(value))  # as it will be read: text keys, lists for tuples
    plain.pop(CHECKSUM, None)  # an older one
    return plain | {CHECKSUM: seal_of(plain)}


def seal_of(value: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def unsealed(found: Any, path: Path, mend: str) -> Any:
    """Return a JSON object without its checksum; raise Refused if it was changed.

    Versions before 0.3 wrote no checksum; a result of a later version without one was changed.
    """
    if not isinstance(found, dict):
        return found
    lost = CHECKSUM not in found and re.match(r"0\.[3-9]|[1-9]", str(found.get("version", "")))
    if lost or (CHECKSUM in found and found.pop(CHECKSUM) != seal_of(found)):
        raise Refused(f"{path}: changed since it was written (checksum); {mend}")
    return found


# The expected keys of a JSON object (with ?: optional), each with a type or a nested shape. Numbers must be finite,
# unless the type is (int, float).
Shape = dict[str, Any]
COUNT, SHARE = "a number above 0", "a number from 0 to 1"
NAMES: dict[Any, str] = {str: "text", list: "a list", tuple: "a list", dict: "an object", int: "a whole number",
                         bool: "true or false"}  # fmt: skip
MEND = "bring it back from a copy, or delete it and run again"


def read_json(path: Path, shape: Shape | None = None) -> dict[str, Any]:
    """Return a JSON object; raise Refused if it was changed since it was written, or does not have this shape."""
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise Refused(f"{path}: not readable as JSON; {MEND}") from None
    return checked(unsealed(found, path, MEND), shape or {}, path)


def read_json_if_there(path: Path, shape: Shape | None = None) -> dict[str, Any] | None:
    """Return a JSON object, or None if the file does not exist, also if it is removed meanwhile."""
    try:
        return read_json(path, shape)
    except (FileNotFoundError, NotADirectoryError):
        return None


Record = TypeVar("Record")


def read(path: Path, record: type[Record]) -> Record | None:
    """Return the dataclass instance in a JSON file, or None if the file does not exist."""
    found = read_json_if_there(path)
    return None if found is None else as_record(found, record, path)


def as_record(found: Any, record: type[Record], path: Path) -> Record:
    """Return a JSON object as a dataclass; raise Refused if it does not fit the annotations.

    Missing fields have their defaults; unknown keys (of a later version) are ignored.
    """
    kind: Any = record
    checked(found, _shape_of(kind), path)
    given = {one.name: found[one.name] for one in fields(kind) if found.get(one.name) is not None}
    return record(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


@cache
def _shape_of(record: Any) -> Shape:
    """Return the shape of JSON that the annotations of a dataclass describe."""
    hints = get_type_hints(record)
    return {one.name + "?" * (one.default is not MISSING): hints[one.name] for one in fields(record)}


def checked(found: Any, shape: Shape, path: Path, within: str = "") -> dict[str, Any]:
    """Return `found` if it has the expected keys and types, else raise Refused; other keys are ignored."""
    if not isinstance(found, dict):
        raise Refused(f"{path}: {within or 'what is in it'} is no JSON object; damaged: delete it and run again")
    for name, kind in shape.items():
        key = name.removesuffix("?")
        place = f"{within}.{key}" if within else key
        value = found.get(key)
        if value is None and key != name:
            continue
        if isinstance(kind, dict):
            checked(value, kind, path, place)
            continue
        if not _fits(value, kind):
            wanted = kind if kind in (COUNT, SHARE) else NAMES.get(get_origin(kind) or kind, "a number")
            raise Refused(f"{path}: {place} is not {wanted}; another version wrote it, or it is damaged: delete it and "
                          "run again")  # fmt: skip
    return found


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value has a type. Numbers must be below 1e15 in magnitude; booleans are not numbers."""
    if kind in (int, float, COUNT, SHARE):
        least, most = {COUNT: (1e-15, 1e15), SHARE: (0, 1)}.get(kind, (-1e15, 1e15))
        types = int if kind is int else int | float
        return isinstance(value, types) and not isinstance(value, bool) and least <= value <= most
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(one, get_args(kind)[0]) for one in value)
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any], first: bool = False
) -> None:
    """Write arrays and attributes to an HDF5 file with a checksum, so that damage is found when it is read.

    It is made in memory first: on a full disk, HDF5 ends the process with a segmentation fault.
    """
    with h5py.File(path.name, "w", driver="core", backing_store=False) as f:
        for name, array in arrays.items():
            f.create_dataset(name, data=array)
        f.attrs.update({**attributes, CHECKSUM: checksum(arrays)})
        f.flush()
        image = f.id.get_file_image()
    with replacing(path, first) as beside:
        beside.write_bytes(image)


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of names, shapes, types and bytes, independent of the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return all arrays and attributes of an HDF5 file; raise Refused if it is damaged."""
    arrays: dict[str, np.ndarray] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with _opened(path) as (f, attributes):
        f.visititems(collect)
    if attributes.pop(CHECKSUM, None) not in (None, checksum(arrays)):
        raise Refused(f"{path}: changed since it was written (checksum); {MEND}")
    return arrays, attributes


def read_attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of an HDF5 file, without reading its arrays."""
    with _opened(path) as (_, attributes):
        return {name: value for name, value in attributes.items() if name != CHECKSUM}


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield an HDF5 file and its attributes; raise Refused if it is damaged."""
    try:
        with h5py.File(path, "r") as f:
            yield f, {key: value.item() if isinstance(value, np.generic) else value for key, value in f.attrs.items()}
    except FileNotFoundError:
        raise Refused(f"{path}: no such file; lottery sweep writes it, with all else that is missing") from None
    except (OSError, RuntimeError, KeyError, ValueError, MemoryError) as error:  # what h5py raises for a damaged file
        if isinstance(error, OSError) and error.errno in UNREADABLE:
            raise Refused(f"{path}: {os.strerror(error.errno)}; expected a file that can be read") from None
        reason = " ".join(str(error).split())
        raise Refused(f"{path}: truncated or not HDF5 ({reason}); delete it and run again") from None


def write_snapshot(
    path: Path, network: Network, weights: Weights, attributes: Mapping[str, Any], memory: Mapping[str, Any] = {}
) -> None:
    """Write weights by name and, beside them, the vectors in which an optimizer remembers earlier steps."""
    write_arrays(path, {**network.named(weights), **memory}, {"network": network.name, **attributes})


def read_snapshot(path: Path, network: Network) -> Weights:
    named, _ = read_arrays(path)
    try:
        return network.flat(named)
    except ValueError as error:
        raise Refused(f"{path}: {error}; the file belongs to another network") from None


EPOCH = {"epoch": int, "seconds": float, "evaluation_seconds": float, "trainings_on_gpu?": COUNT, "devices?": COUNT}


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    mend = "bring it back from a copy, or delete the folder to train it again"
    return read_lines(folder / "metrics.jsonl", EPOCH, mend)


def read_lines(path: Path, shape: Shape | None = None, mend: str = MEND) -> list[dict[str, Any]]:
    """Return the JSON objects in a file, one per line, without an incomplete last line."""
    try:
        whole, _, _ = path.read_text().rpartition("\n")
        lines = (unsealed(json.loads(line), path, mend) for line in whole.split("\n") if line)
        return [checked(line, shape or {}, path) for line in lines]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, RecursionError):
        raise Refused(f"{path}: a line is not readable as JSON; {mend}") from None


def append_metrics(folder: Path, line: Mapping[str, Any]) -> None:
    append_line(folder / "metrics.jsonl", line)


def append_line(path: Path, line: Any) -> None:
    """Append a JSON object or dataclass as a line with a checksum, and flush it; an incomplete last line is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "a+b") as f:
            f.seek(0)
            whole = f.read().rfind(b"\n") + 1
            f.truncate(whole)
            f.write(json.dumps(sealed(line)).encode() + b"\n")
            f.flush()
            os.fsync(f.fileno())
    except OSError as error:
        raise named(error, path) from None


def trim_metrics(folder: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Remove the lines of epochs that a resumed training will repeat."""
    lines = read_metrics(folder)
    path = folder / "metrics.jsonl"
    if path.exists():
        write_text(path, "".join(json.dumps(sealed(line)) + "\n" for line in lines if keep(line)))
