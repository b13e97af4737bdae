"""What every place to run a sweep must do, on each of them: this machine, an MPI world, a SLURM cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm_cluster import until
from tests.sweeping import LOTTERY, csv_of, lottery, status_of


@dataclass(frozen=True)
class Place:
    """A way to run `lottery sweep`, and to kill all of it at once."""

    before: tuple[str, ...]
    options: tuple[str, ...]
    kill: Callable[[subprocess.Popen[str]], None]

    def command(self, file: Path, results: Path) -> list[str]:
        return [*self.before, *LOTTERY, "sweep", str(file), "--results", str(results), *self.options]

    def sweep(self, file: Path, results: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(file, results), capture_output=True, text=True, timeout=600, check=False)


def kill_tree(process: subprocess.Popen[str]) -> None:
    """The process and all that descend from it, also those that have a session of their own (MPI's ranks)."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone in the meantime
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    doomed = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in doomed} - doomed:
        doomed |= more
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(params=["local", "mpi", "slurm"])
def place(request) -> Place:
    if request.param == "local":
        return Place((), ("--jobs", "2"), kill_tree)
    if request.param == "mpi":
        return Place((request.getfixturevalue("mpiexec"), "-n", "4"), ("--on", "mpi"), kill_tree)
    cluster = request.getfixturevalue("slurm")

    def kill_all(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        cluster.clear()

    return Place((), ("--on", "slurm", "--wait"), kill_all)


def begun(results: Path) -> list[Path]:
    return [path.parent for path in results.glob("*/cells/*/claim.json")]


def test_it_runs_everything_once_and_says_truly_where_it_stands(place, tiny_file, undisturbed, tmp_path):
    command = place.command(tiny_file, tmp_path)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until(lambda: begun(tmp_path), 120)
    (home,) = tmp_path.iterdir()
    during = status_of(home)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert during.pop("dense-seed0")["state"] == "done"
    assert {row["state"] for row in during.values()} <= {"waiting", "running", "done"}
    assert any(row["state"] in ("running", "done") for row in during.values())
    assert csv_of(tmp_path) == csv_of(undisturbed)
    after = status_of(home)
    assert {(row["state"], row["starts"]) for row in after.values()} == {("done", 1)}
    again = place.sweep(tiny_file, tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert status_of(home) == after, "something ran twice"


def test_a_cell_that_fails_is_recorded_and_the_others_go_on(place, tiny_file, undisturbed, tmp_path):
    lottery("train", tiny_file, "--results", tmp_path)
    (home,) = tmp_path.iterdir()
    snapshot = home / "dense/seed-0/snapshots/epoch-0001.h5"
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[: len(whole) // 2])
    failed = place.sweep(tiny_file, tmp_path)
    assert failed.returncode != 0
    lines = [line for line in failed.stderr.splitlines() if line.startswith("lottery: FAILED")]
    assert len(lines) == 2 and all("truncated or not HDF5" in line and str(snapshot) in line for line in lines)
    states = status_of(home)
    assert sorted(row["state"] for row in states.values()) == ["done"] * 3 + ["failed"] * 2
    assert all("truncated" in row["note"] for row in states.values() if row["state"] == "failed")
    assert snapshot.read_bytes() == whole[: len(whole) // 2], "the damaged file was touched"
    snapshot.write_bytes(whole)
    assert place.sweep(tiny_file, tmp_path).returncode == 0
    assert csv_of(tmp_path) == csv_of(undisturbed)


def test_killed_and_run_again_it_goes_on_where_it_was(place, tiny_file, undisturbed, tmp_path):
    lottery("train", tiny_file, "--results", tmp_path)
    command = place.command(tiny_file, tmp_path)
    with open(tmp_path.parent / "killed.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
    until(lambda: list(tmp_path.glob("*/cells/*/metrics.jsonl")), 120)  # a cell is in the middle
    place.kill(process)
    (home,) = tmp_path.glob("tiny-*")
    # ranks of a killed mpiexec notice a moment later
    until(lambda: not any(row["state"] == "running" for row in status_of(home).values()), 60)
    assert place.sweep(tiny_file, tmp_path).returncode == 0
    assert csv_of(tmp_path) == csv_of(undisturbed)
