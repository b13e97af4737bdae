"""A record (`lottery record`): a results root in a few files, without weights unless asked for.

    trainings.json   the JSON files (KINDS) of every training, and the attributes of every mask
    metrics.csv.gz   every epoch of every training: one row each, cells in JSON
    masks.h5         the arrays of every mask, in a group of its name
    autotuned.zip    XLA's autotuning choices
    weights/         with `--weights`: the final weights of every training, NAME.h5

A folder with a trainings.json is a record. Commands that only read use a copy in a temporary folder (`readable`);
a command that trains turns the record into a results root first (`unpack_here`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sweep import files
from sweep.errors import Refused

FACTS, METRICS, MASKS, CHOICES = PACKED = ("trainings.json", "metrics.csv.gz", "masks.h5", "autotuned.zip")
WEIGHTS = "weights"
KINDS = ("training", "result", "failure", "skipped", "evaluation")  # names of a training's JSON files


def is_record(root: Path) -> bool:
    return (root / FACTS).exists()


def pack(root: Path, to: Path) -> None:
    """Write trainings, masks and XLA's choices of a results root as a record.

    Equal results give equal files. trainings.json is written last.
    """
    folders = [path for path in sorted((root / "trainings").iterdir()) if path.is_dir()]
    masks = {path.stem: files.read_arrays(path) for path in sorted((root / "masks").glob("*.h5"))}
    choices = [path for path in sorted((root / "autotuned").rglob("*")) if path.is_file()]
    if choices:
        files.write_bytes(to / CHOICES, _zipped({str(path.relative_to(root / "autotuned")): path for path in choices}))
    if masks:
        arrays = {f"{name}/{key}": array for name, (found, _) in masks.items() for key, array in found.items()}
        files.write_arrays(to / MASKS, arrays, {})
    table = _table({folder.name: _lines(folder / "metrics.jsonl") for folder in folders})
    files.write_bytes(to / METRICS, gzip.compress(table.encode(), mtime=0))
    facts = {folder.name: {kind: json.loads(path.read_text()) for kind in KINDS
                           if (path := folder / f"{kind}.json").exists()} for folder in folders}  # fmt: skip
    files.write_json(
        to / FACTS, {"trainings": facts, "masks": {name: attributes for name, (_, attributes) in masks.items()}}
    )


def unpack(record: Path, to: Path) -> None:
    """Write the content of a record as the files and folders of a results root."""
    facts = files.read_json(record / FACTS, {"trainings": {}, "masks": {}})
    for name in (*facts["trainings"], *facts["masks"]):
        if Path(name).name != name:
            raise Refused(f"{record / FACTS}: {name!r} is no name of a training or mask; expected one without /")
    epochs = _epochs(record / METRICS)
    for name, found in facts["trainings"].items():
        folder = to / "trainings" / name
        folder.mkdir(parents=True)
        for kind in KINDS:
            if kind in found:
                (folder / f"{kind}.json").write_text(json.dumps(found[kind], indent=1) + "\n")
        if name in epochs:
            (folder / "metrics.jsonl").write_text("".join(epochs[name]))
    if facts["masks"]:
        arrays, _ = files.read_arrays(record / MASKS)
        of: dict[str, dict[str, np.ndarray]] = {}
        for path, array in arrays.items():
            name, _, key = path.rpartition("/")
            of.setdefault(name, {})[key] = array
        for name, attributes in facts["masks"].items():
            if name not in of:
                raise Refused(f"{record / MASKS}: without {name}; bring it back from a copy")
            files.write_arrays(to / "masks" / f"{name}.h5", of[name], attributes)
    if (record / CHOICES).exists():
        with _reading(record / CHOICES), zipfile.ZipFile(record / CHOICES) as archive:
            archive.extractall(to / "autotuned")


def readable(root: Path) -> Path:
    """Return a folder from which a results root can be read: itself, or for a record a temporary copy.

    The copy is deleted when the process ends. Nothing is written to the record.
    """
    if not is_record(root):
        return root
    return Path(_copy(root.resolve(), (root / FACTS).stat().st_mtime_ns).name)


@cache
def _copy(record: Path, changed: int) -> tempfile.TemporaryDirectory[str]:
    copy = tempfile.TemporaryDirectory(prefix="lottery-record-")
    unpack(record, Path(copy.name))
    for described in record.glob("*/experiment.yaml"):
        (Path(copy.name) / described.parent.name).symlink_to(described.parent)
    for weights, there in _weights(record, Path(copy.name)):
        there.symlink_to(weights)
    return copy


def unpack_here(root: Path) -> None:
    """Turn a record into a results root, with weights only if it has them; leave any other folder as it is.

    Existing files are kept, so that it may be killed at any moment, or done by two processes at once.
    """
    if not is_record(root):
        return
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=root) as beside:
        unpack(root, Path(beside))
        for path in [path for path in Path(beside).rglob("*") if path.is_file()]:
            there = root / path.relative_to(beside)
            there.parent.mkdir(parents=True, exist_ok=True)
            if not there.exists():
                path.rename(there)
    for weights, there in _weights(root, root):
        weights.rename(there)
    os.sync()
    for name in PACKED:
        (root / name).unlink(missing_ok=True)


def _weights(record: Path, to: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files of weights in a record, each with its place in a results root that has no such file yet."""
    for weights in sorted((record / WEIGHTS).glob("*.h5")):
        there = to / "trainings" / weights.stem / "snapshots" / "final.h5"
        if there.parents[1].is_dir() and not there.exists():
            there.parent.mkdir(exist_ok=True)
            yield weights, there


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl as dictionaries, with their checksums."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _table(epochs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the epochs of all trainings as CSV with full precision; a cell is empty if an epoch lacks the key."""
    keys = list(dict.fromkeys(key for lines in epochs.values() for line in lines for key in line))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["training", *keys])
    for name, lines in epochs.items():
        writer.writerows([name, *(json.dumps(line[key]) if key in line else "" for key in keys)] for line in lines)
    return text.getvalue()


def _epochs(path: Path) -> dict[str, list[str]]:
    """Return the lines of metrics.jsonl by training."""
    out: dict[str, list[str]] = {}
    with _reading(path), gzip.open(path, "rt", newline="") as f:
        _, *keys = next(rows := csv.reader(f))
        for name, *cells in rows:
            pairs = (f'"{key}": {cell}' for key, cell in zip(keys, cells, strict=True) if cell)
            out.setdefault(name, []).append("{" + ", ".join(pairs) + "}\n")
    return out


def _zipped(content: dict[str, Path]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in content.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)  # always dated 1980
    return out.getvalue()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Refused(f"{path}: no such file, though the record has it; bring it back from a copy") from None
    except (gzip.BadGzipFile, zipfile.BadZipFile, EOFError, zlib.error, StopIteration, ValueError, csv.Error):
        raise Refused(f"{path}: damaged; bring it back from a copy") from None
