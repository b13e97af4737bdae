"""What every place to run a sweep must do, on each of them: this machine, an MPI world, a SLURM cluster."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import csv_of, kill_tree, lottery, started, status_of, trainings
from tests.slurm_cluster import until

pytestmark = pytest.mark.tensorflow


@dataclass(frozen=True)
class Place:
    """A way to run `lottery sweep`, and to kill all of it at once."""

    before: tuple[str, ...]
    options: tuple[str, ...]
    kill: Callable[[subprocess.Popen[str]], None]

    def started(self, file: Path, results: Path, *overrides: str):
        return started("sweep", file, *overrides, "--results", results, *self.options, before=self.before)

    def sweep(self, file: Path, results: Path, *overrides: str) -> tuple[int, str]:
        if not self.before:
            done = lottery("sweep", file, *overrides, "--results", results, *self.options, check=None)
            return done.returncode, done.stdout + done.stderr
        with self.started(file, results, *overrides) as process:
            said, _ = process.communicate(timeout=600)
            return process.returncode, said


everywhere = pytest.mark.parametrize("place", ["local", "mpi", "slurm"], indirect=True)
alone = (
    "local, one process"  # that several share the work on this machine is shown by the first test, and in tests/work
)
heavy = [pytest.param(place, marks=pytest.mark.drill) for place in ("mpi", "slurm")]  # a minute or two each


@pytest.fixture
def place(request) -> Place:
    if request.param.startswith("local"):
        return Place((), ("--jobs", "1" if request.param == alone else "2"), kill_tree)
    if request.param == "mpi":
        return Place((request.getfixturevalue("mpiexec"), "-n", "3"), ("--on", "mpi"), kill_tree)
    cluster = request.getfixturevalue("slurm")

    def kill_all(process: subprocess.Popen[str]) -> None:
        kill_tree(process)
        cluster.clear()

    carrying = "cluster.trainings_per_task=2"  # half as many processes that load TensorFlow
    return Place((), (carrying, "--on", "slurm", "--wait"), kill_all)


@everywhere
def test_a_backend_runs_everything_once_and_reports_true_states(place, tiny_file, undisturbed, tmp_path):
    with place.started(tiny_file, tmp_path) as process:
        until(lambda: trainings(tmp_path, "ticket-*/claim.json") or process.poll() is not None, 300)
        home = tmp_path / "tiny"
        during = status_of(home)
        output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert during.pop("dense-seed0")["state"] == "done"
    assert {row["state"] for row in during.values()} <= {"waiting", "running", "done"}
    assert any(row["state"] in ("running", "done") for row in during.values())
    assert csv_of(tmp_path) == csv_of(undisturbed)
    after = status_of(home)
    assert {(row["state"], row["starts"]) for row in after.values()} == {("done", 1)}
    assert place.sweep(tiny_file, tmp_path)[0] == 0
    assert status_of(home) == after, "something ran twice"


@pytest.mark.parametrize("place", [alone, *heavy], indirect=True)
def test_after_a_kill_and_with_a_damaged_file_a_backend_does_what_it_can_and_the_rest_later(
    place, tiny_file, undisturbed, trained
):
    home = trained / "tiny"
    (snapshot,) = trainings(trained, "dense-*/snapshots/step-00000004.h5")
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[: len(whole) // 2])
    with place.started(tiny_file, trained) as process:
        until(lambda: trainings(trained, "ticket-*/claim.json"), 300)  # a cell has begun
        place.kill(process)
    # ranks of a killed mpiexec notice a moment later
    until(lambda: not any(row["state"] == "running" for row in status_of(home).values()), 60)
    status, said = place.sweep(tiny_file, trained)
    assert status != 0
    lines = [line for line in said.splitlines() if line.startswith("lottery: FAILED")]
    assert len(lines) == 2 and all("truncated or not HDF5" in line and str(snapshot) in line for line in lines)
    states = status_of(home)
    assert sorted(row["state"] for row in states.values()) == ["done"] * 3 + ["failed"] * 2
    assert all("truncated" in row["note"] for row in states.values() if row["state"] == "failed")
    assert snapshot.read_bytes() == whole[: len(whole) // 2], "the damaged file was touched"
    snapshot.write_bytes(whole)
    assert place.sweep(tiny_file, trained)[0] == 0
    assert csv_of(trained) == csv_of(undisturbed)


@pytest.mark.parametrize("place", [alone, *heavy], indirect=True)
def test_a_grown_experiment_trains_only_what_is_new(place, tiny_file, undisturbed, tmp_path):
    """Another quantile, rewind point and seed, and one of each no more; then an experiment with the same dense run."""
    results = Path(shutil.copytree(undisturbed, tmp_path / "results", ignore=shutil.ignore_patterns("report")))
    before = {path: path.read_text() for path in trainings(results, "*/claim.json")}
    packed = "cluster.trainings_per_gpu=2" if "slurm" in place.options else "cluster.trainings_per_gpu=1"
    grown = ("prune.quantiles=[0.7,0.8]", "prune.rewind=[1ep,3it]", "seeds=[0,1]", packed)
    assert len(before) == 5 and place.sweep(tiny_file, results, *grown)[0] == 0
    after = {path: path.read_text() for path in trainings(results, "*/claim.json")}
    assert before.items() <= after.items(), "something was trained again"
    assert len(after) == 5 + 2 * (1 + 2 * 2) - 2, "dense run and q0.8 from 1ep of seed 0 were there"
    rows = {line.split(",")[0]: line for line in csv_of(results).splitlines()}
    old = [line for line in csv_of(undisturbed).splitlines()[1:] if line.split(",")[0] in rows]
    assert len(old) == 2 and all(rows[line.split(",")[0]] == line for line in old)
    other = ("prune.quantiles=[0.7]", "prune.rewind=[1ep]", "name=other", "prune.methods=[lamp]")
    assert place.sweep(tiny_file, results, *other)[0] == 0
    begun = {path.parent.name for path in trainings(results, "*/claim.json")} - {path.parent.name for path in after}
    assert len(begun) == 1 and not [name for name in begun if name.startswith("dense")]
