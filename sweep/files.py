"""How files are read and written.

A file exists only complete: it is written beside its place, flushed to the disk and renamed. One HDF5 file per
snapshot, because appending to a shared one did not survive kill -9.
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
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or one's share of it
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)  # now, or by this user; the file may be whole


@contextmanager
def replacing(path: Path, first: bool = False) -> Iterator[Path]:
    """Gives a path beside `path` to write to; what is there at the end becomes `path`, in one step.

    `first`: unless another process was first, whose file stays.
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
    """Give a file its name, unless another process was first. Return whether this file system has links."""
    try:
        os.link(beside, path)
    except OSError as error:
        return isinstance(error, FileExistsError)
    return True


def named(error: OSError, path: Path) -> OSError:
    """Return an error of a full disk with the file: the system does not say it, and HDF5 in a page of its own words."""
    return OSError(error.errno, os.strerror(error.errno), str(path)) if error.errno in FULL else error


def write_text(path: Path, text: str) -> None:
    with replacing(path) as beside:
        beside.write_text(text)


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON object or a record, sealed by a checksum of its content: a changed digit is then noticed when it is
    read."""
    write_text(path, json.dumps(sealed(value), indent=1) + "\n")


def sealed(value: Any) -> dict[str, Any]:
    """Return a JSON object, or a record as one, with its checksum as the last key."""
    value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    plain: dict[str, Any] = json.loads(json.dumps(value))  # as it will be read: keys are text, tuples are lists
    plain.pop(CHECKSUM, None)  # of what was there before
    return plain | {CHECKSUM: seal_of(plain)}


def seal_of(value: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def unsealed(found: Any, path: Path, mend: str) -> Any:
    """Return a JSON object without its checksum; raise Refused where it was changed.

    Versions before 0.3 wrote no checksum; a result of a later one that lacks it was changed.
    """
    if not isinstance(found, dict):
        return found
    lost = CHECKSUM not in found and re.match(r"0\.[3-9]|[1-9]", str(found.get("version", "")))
    if lost or (CHECKSUM in found and found.pop(CHECKSUM) != seal_of(found)):
        raise Refused(f"{path}: changed since it was written (checksum); {mend}")
    return found


# Of JSON: keys that must be there (with ?: may be), each with a type or a shape of its own. A number is a finite one,
# but where its types are given as (int, float).
Shape = dict[str, Any]
COUNT, SHARE = "a number above 0", "a number from 0 to 1"
NAMES: dict[Any, str] = {str: "text", list: "a list", tuple: "a list", dict: "an object", int: "a whole number",
                         bool: "true or false"}  # fmt: skip
MEND = "bring it back from a copy, or delete it and run again"


def read_json(path: Path, shape: Shape | None = None) -> dict[str, Any]:
    """Return a JSON object; raise Refused where it was changed since it was written, or is not of this shape."""
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise Refused(f"{path}: not readable as JSON; {MEND}") from None
    return checked(unsealed(found, path, MEND), shape or {}, path)


def read_json_if_there(path: Path, shape: Shape | None = None) -> dict[str, Any] | None:
    """Return a JSON object, or None where there is no such file: others may remove it while it is looked for."""
    try:
        return read_json(path, shape)
    except (FileNotFoundError, NotADirectoryError):
        return None


Record = TypeVar("Record")


def read(path: Path, record: type[Record]) -> Record | None:
    """Return the record in a JSON file, an instance of this dataclass; None where there is no such file."""
    found = read_json_if_there(path)
    return None if found is None else as_record(found, record, path)


def as_record(found: Any, record: type[Record], path: Path) -> Record:
    """Return a JSON object as a dataclass, whose annotations are its shape; raise Refused where it is of another.

    A field that the object lacks has its default; keys that are no field (a later version) are left out.
    """
    kind: Any = record
    checked(found, _shape_of(kind), path)
    given = {one.name: found[one.name] for one in fields(kind) if found.get(one.name) is not None}
    return record(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


@cache
def _shape_of(record: Any) -> Shape:
    """Return the shape that the annotations of a dataclass ask for."""
    hints = get_type_hints(record)
    return {one.name + "?" * (one.default is not MISSING): hints[one.name] for one in fields(record)}


def checked(found: Any, shape: Shape, path: Path, within: str = "") -> dict[str, Any]:
    """JSON that can be read may still lack what this version needs; more than that is left alone."""
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
    """Whether a value is of a kind. Nothing that is written here is as large as 1e15, or true in place of a number."""
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
    """Write arrays to HDF5 with a checksum: a disk or a copy that changes a byte would train to another number, unseen.

    Made in memory first: where the disk is full, HDF5 ends the process with a segmentation fault.
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
    """Return the checksum of names, shapes, types and bytes, in any order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays and attributes of one HDF5 file."""
    arrays: dict[str, np.ndarray] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with _opened(path) as f:
        f.visititems(collect)
        attributes = _attributes(f)
    if attributes.pop(CHECKSUM, None) not in (None, checksum(arrays)):
        raise Refused(f"{path}: changed since it was written (checksum); bring it back from a copy, or delete it and "
                      "run again")  # fmt: skip
    return arrays, attributes


def read_attributes(path: Path) -> dict[str, Any]:
    """The attributes alone."""
    with _opened(path) as f:
        return {name: value for name, value in _attributes(f).items() if name != CHECKSUM}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with h5py.File(path, "r") as f:
            yield f
    except FileNotFoundError:
        raise Refused(f"{path}: no such file; lottery sweep writes it, with all else that is missing") from None
    except (OSError, RuntimeError, KeyError, ValueError, MemoryError) as error:  # h5py's ways to say: damaged
        if isinstance(error, OSError) and error.errno in UNREADABLE:
            raise Refused(f"{path}: {os.strerror(error.errno)}; expected a file that can be read") from None
        reason = " ".join(str(error).split())
        raise Refused(f"{path}: truncated or not HDF5 ({reason}); delete it and run again") from None


def _attributes(f: Any) -> dict[str, Any]:
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in f.attrs.items()}


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
    """Lines of JSON, without a last one that was cut off while being written."""
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
    """Add an object or a record as a line of JSON with its checksum; it is on the disk when this returns. A last line
    that was cut off goes."""
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
    """Drop lines of epochs that a resumed training is about to repeat."""
    lines = read_metrics(folder)
    path = folder / "metrics.jsonl"
    if path.exists():
        write_text(path, "".join(json.dumps(sealed(line)) + "\n" for line in lines if keep(line)))
