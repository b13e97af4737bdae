"""Results that were damaged: one line says which file and what to do; done so, the sweep is whole again, to the bit."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from sweep import files
from tests.commands import csv_of, lottery, trainings

pytestmark = pytest.mark.tensorflow


def one(results: Path, pattern: str) -> Path:
    return sorted(trainings(results, pattern))[0]


def flip(path: Path, name: str) -> Path:
    """Other numbers in an array of an HDF5 file that is otherwise sound."""
    with h5py.File(path, "r+") as f:
        found = f[name][...]
        f[name][...] = ~found if found.dtype.kind == "u" else found * 2
    return path


def rewritten(path: Path, change: Callable[[dict], object]) -> Path:
    """As a fault of a program would leave it: sealed, so that not the checksum but the value gives it away."""
    found = files.read_json(path)
    change(found)
    files.write_json(path, found)
    return path


def first_array(path: Path) -> str:
    names: list[str] = []
    with h5py.File(path) as f:
        f.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return next(name for name in names if "kernel" in name)


def snapshot(results: Path, name: str) -> Path:
    path = one(results, f"dense-*/snapshots/{name}")
    return flip(path, first_array(path))


def swapped(results: Path) -> Path:
    """The result of a ticket in the folder of another, as a careless copy leaves it."""
    source, target = sorted(trainings(results, "ticket-*/result.json"))[:2]
    shutil.copy(source, target)
    return target


def other_accuracy(results: Path) -> Path:
    return rewritten(one(results, "ticket-*/result.json"), lambda found: found["test"].update(top1=1.5))


DAMAGE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "mask, other bits": (lambda r: flip(next(iter(sorted(r.glob("masks/*.h5")))), "mask"), "checksum"),
    "mask, cut off": (lambda r: cut(next(iter(sorted(r.glob("masks/*.h5"))))), "truncated or not HDF5"),
    "final weights": (lambda r: snapshot(r, "final.h5"), "checksum"),
    "weights of a rewind point": (lambda r: snapshot(r, "step-00000004.h5"), "checksum"),
    "accuracy above 1": (other_accuracy, "a number from 0 to 1"),
    "result of another training": (swapped, "the result of"),
    "result without its accuracy": (
        lambda r: rewritten(one(r, "ticket-*/result.json"), lambda found: found.pop("test")), "damaged"),
    "line of the metrics": (lambda r: torn(one(r, "ticket-*/metrics.jsonl")), "not readable as JSON"),
}  # fmt: skip


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:1000])
    return path


def torn(path: Path) -> Path:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0][:20], *lines[1:], ""]))
    return path


OFTEN = "mask, other bits"  # the others in make drill


@pytest.mark.parametrize("what", [pytest.param(w, marks=() if w == OFTEN else pytest.mark.drill) for w in DAMAGE])
def test_a_damaged_file_is_named_with_its_remedy_and_the_remedy_restores_the_sweep(
    what, undisturbed, tiny_file, tmp_path
):
    damage, words = DAMAGE[what]
    results = shutil.copytree(undisturbed, tmp_path / "results")
    shutil.rmtree(sorted(trainings(results, "ticket-*"))[-1])  # something is to be trained, from what is there
    path = damage(results)
    done = lottery("sweep", tiny_file, "--results", results, check=None)
    said = [line for line in (done.stdout + done.stderr).splitlines() if path.name in line and words in line]
    assert done.returncode in (1, 2) and len(said) >= 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert re.search(r"delete (it|the folder)", said[0])
    shutil.rmtree(path.parent) if "delete the folder" in said[0] else path.unlink()
    lottery("sweep", tiny_file, "--results", results)
    assert csv_of(results) == csv_of(undisturbed)


def test_a_record_that_was_edited_is_refused_and_the_same_when_taken_back(undisturbed, tiny_file, tmp_path):
    results = shutil.copytree(undisturbed, tmp_path / "results")
    record = results / "tiny" / "experiment.yaml"
    before = record.read_text()
    record.write_text(re.sub(r"learning_rate: .*", "learning_rate: 0.4", before, count=1))
    for words in (("sweep", tiny_file), ("report", "tiny"), ("status", "tiny")):
        assert "edited since it was written" in lottery(*words, "--results", results, check=2).stderr
    record.write_text(before)
    lottery("sweep", tiny_file, "--results", results)
    assert csv_of(results) == csv_of(undisturbed)
