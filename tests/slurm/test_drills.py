"""Real trainings on a real SLURM that is disturbed at random moments: the results are those of an undisturbed run."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sweep.experiment import Cluster, Experiment, Prune, method
from sweep.experiment import file as experiment_file
from tests import synthetic
from tests.commands import csv_of, home_of, lottery, status_of, trainings
from tests.conftest import once, tiny
from tests.slurm_cluster import until

pytestmark = [pytest.mark.drill, pytest.mark.tensorflow]


def steady(epochs: int, cluster: Cluster, **prune: Any) -> Experiment:
    """The tiny network with epochs long enough to be hit in the middle."""
    made = tiny(epochs=epochs)
    data = dataclasses.replace(made.data, images=1200)
    return dataclasses.replace(made, data=data, cluster=cluster, prune=dataclasses.replace(made.prune, **prune))


def written(experiment: Experiment, tmp_path: Path, stem: str = "steady") -> Path:
    file = tmp_path / f"{stem}.yaml"
    file.write_text(experiment_file.dump(experiment))
    return file


def undisturbed_csv(file: Path, tmp_path: Path, dense: Path | None = None) -> str:
    """Of the same sweep run here; `dense`: results whose dense run is taken over."""
    if dense:
        shutil.copytree(dense, tmp_path / "undisturbed")
    lottery("sweep", file, "--results", tmp_path / "undisturbed")
    return csv_of(tmp_path / "undisturbed")


def running(home: Path) -> list[str]:
    """Cells that have begun and are far from their end. Of what a person submitted nobody knows that it runs."""
    return [
        task for task, row in status_of(home).items()
        if row["state"] in ("running", "begun") and 0 < row["epoch"] <= 10 and not task.startswith("dense")
    ]  # fmt: skip


def submitted(way: str, file: Path, results: Path) -> None:
    """By the command, which uses submitit; or as a person submits the plain scripts."""
    if way == "submitit":
        lottery("sweep", file, "--on", "slurm", "--results", results)
        return
    said = lottery("sbatch", file, "--results", results).stdout
    commands = said.partition("each waiting for the one before:\n")[2]
    subprocess.run(["bash", "-e"], input=commands, text=True, check=True)


def claim(home: Path, task: str) -> dict[str, Any]:
    path = home_of(home).folder_of(task) / "claim.json"
    return json.loads(path.read_text()) if path.exists() else {"starts": 0}


def hold(home: Path, task: str) -> list[str]:
    """Stop its process in the middle of its training, so that it cannot end before what is done to it is there."""
    pid = claim(home, task)["pid"]
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return []
    if (home_of(home).folder_of(task) / "result.json").exists():
        go_on(pid)
        return []
    return [task]


def go_on(pid: int) -> None:
    """Of a process that was held, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def disturbed() -> Experiment:
    cluster = Cluster(partition="low", cpus_per_gpu=1, memory_per_gpu="500M", array_parallelism=3)
    return steady(20, cluster, quantiles=(0.3, 0.5, 0.7, 0.8), rewind=synthetic.points(0, 1))


@pytest.fixture(scope="session")
def as_expected(tmp_path_factory) -> str:
    """What both ways must end with: the same sweep run here, once for all test processes."""
    folder = tmp_path_factory.mktemp("experiments")
    return csv_of(once(tmp_path_factory, "as_expected", "sweep", written(disturbed(), folder)))


@pytest.mark.parametrize("way", ["submitit", "scripts"])
def test_whatever_happens_to_the_cluster_the_results_are_the_same(way, slurm, as_expected, tmp_path):
    """Each disturbance hits a cell in the middle of its training, which must then have been begun again."""
    file = written(disturbed(), tmp_path)
    results = tmp_path / "disturbed"
    submitted(way, file, results)
    home = results / "tiny"
    chance = random.Random(5)
    cancelled: list[str] = []

    def one_of(tasks: list[str]) -> list[str]:
        return hold(home, chance.choice(tasks)) if tasks else []

    def kill_task(task: str) -> None:
        os.kill(claim(home, task)["pid"], signal.SIGKILL)

    def requeue(task: str) -> None:
        slurm.run("scontrol", "requeue", claim(home, task)["job"])

    def preempt(task: str) -> None:
        node = claim(home, task)["host"]
        slurm.run("sbatch", "--partition=gpu", f"--nodelist={node}", "--gres=gpu:4", "--cpus-per-task=4",
                  "--output=/dev/null", "--wrap=sleep 3")  # fmt: skip

    def lose_node(task: str) -> None:
        node = claim(home, task)["host"]
        slurm.kill_node(node)
        slurm.restore_node(node)

    def cancel(task: str) -> None:
        slurm.run("scancel", claim(home, task)["job"])
        cancelled.append(task)

    def restart_controller(task: str) -> None:
        slurm.restart_controller()

    disturbances: list[Callable[[str], None]] = [kill_task, requeue, preempt, lose_node, restart_controller]
    disturbances += [cancel] if way == "submitit" else []  # what a person submitted, a person submits again
    chance.shuffle(disturbances)
    struck = 0
    for disturb in disturbances:
        hit: list[str] = []
        until(lambda hit=hit: hit.extend(one_of(running(home))) or hit or not slurm.queue(), 600)
        if not hit:  # on a busy machine the cells may end before all disturbances came
            break
        struck += 1
        (task,) = hit
        held = claim(home, task)
        disturb(task)
        if disturb not in (cancel, restart_controller):
            until(lambda task=task, starts=held["starts"]: claim(home, task)["starts"] > starts, 120)
        go_on(held["pid"])
    assert struck >= 3
    until(lambda: not slurm.queue(), 600)
    if cancelled:
        assert [task for task, row in status_of(home).items() if row["state"] == "lost"] == cancelled
        assert "cells, 1 tasks" in lottery("retry", home).stdout
        until(lambda: not slurm.queue(), 300)
    assert csv_of(results) == as_expected
    for path in trainings(results, "ticket-*/metrics.jsonl"):
        epochs = [json.loads(line)["epoch"] for line in path.read_text().splitlines()]
        assert epochs == sorted(set(epochs)), "an epoch is recorded twice"


DISTURBANCES = int(os.environ.get("DISTURBANCES", "4"))
SEED = int(os.environ.get("DISTURBANCES_SEED", "11"))


@pytest.fixture(scope="session")
def both_expected(tmp_path_factory) -> dict[str, str]:
    """What two experiments that share a dense run and tickets must end with: run here, once for all test processes."""
    folder = tmp_path_factory.mktemp("experiments")
    return {name: csv_of(once(tmp_path_factory, f"expected-{name}", "sweep", written(grown(name), folder)))
            for name in ("x", "y")}  # fmt: skip


def grown(name: str, **prune: Any) -> Experiment:
    """Two experiments of one results root: y asks for some of the trainings of x, and for some of its own."""
    cluster = Cluster(partition="low", cpus_per_gpu=1, memory_per_gpu="500M", array_parallelism=3)
    quantiles = {"x": (0.3, 0.5, 0.7), "y": (0.5, 0.8)}[name]
    settings = {"quantiles": quantiles, "rewind": synthetic.points(0, 1)} | prune
    return dataclasses.replace(steady(20, cluster, **settings), name=name)


def test_two_experiments_of_one_root_cancelled_retried_grown_and_disturbed_end_as_each_alone(
    slurm, both_expected, tmp_path
):
    """x begins small, by submitit, and grows on the way; y is submitted as scripts. Whatever is cancelled of one and
    wanted by the other goes on."""
    chance, results = random.Random(SEED), tmp_path / "disturbed"
    small, whole, other = (
        written(grown("x", quantiles=(0.3,)), tmp_path, "small"),
        written(grown("x"), tmp_path, "x"),
        written(grown("y"), tmp_path, "y"),
    )
    homes = {name: results / name for name in "xy"}

    def task_under_way() -> tuple[Path, str] | None:
        found = [(home, task) for home in homes.values() if home.is_dir() for task in running(home)]
        return chance.choice(found) if found else None

    def kill_task() -> None:
        if hit := task_under_way():
            with suppress(ProcessLookupError):
                os.kill(claim(*hit)["pid"], signal.SIGKILL)

    def requeue() -> None:
        if hit := task_under_way():
            slurm.run("scontrol", "requeue", claim(*hit)["job"], check=False)

    def lose_node() -> None:
        if hit := task_under_way():
            node = claim(*hit)["host"]
            slurm.kill_node(node)
            slurm.restore_node(node)

    def restart_controller() -> None:
        slurm.restart_controller()

    def cancel() -> None:
        lottery("cancel", chance.choice(list(homes.values())))

    def cancel_one() -> None:
        if hit := task_under_way():
            lottery("cancel", *hit)

    def retry() -> None:
        for home in homes.values():
            lottery("retry", home, check=None)  # of what only scripts were submitted for, it says so

    def sweep_again() -> None:
        name = chance.choice("xy")
        lottery("sweep", whole if name == "x" else other, "--on", "slurm", "--results", results, check=None)

    submitted("submitit", small, results)
    submitted("scripts", other, results)
    ways = [kill_task, requeue, lose_node, restart_controller, cancel, cancel_one, retry, sweep_again]
    order = [way for _ in range(1 + DISTURBANCES // len(ways)) for way in chance.sample(ways, len(ways))]
    for disturb in order[:DISTURBANCES]:
        until(lambda: task_under_way() or not slurm.queue(), 300)
        print(disturb.__name__, flush=True)
        disturb()
    for _ in range(10):  # what is still missing, as a person would
        until(lambda: not slurm.queue(), 600)
        for file in (whole, other):
            lottery("sweep", file, "--on", "slurm", "--results", results)
        if not slurm.queue():
            break
    for name, home in homes.items():
        lottery("report", home)
        assert (home / "report" / "results.csv").read_text() == both_expected[name]


def signals(pid: int, which: str) -> set[int]:
    """Of a process: those it handles (SigCgt), those that wait for it (ShdPnd)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [int(line.split()[1], 16) for line in lines if line.startswith(f"{which}:")]
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_cell_longer_than_its_time_limit_goes_on_in_several_turns(slurm, tmp_path):
    """Twice the limit is shortened in the middle of the training, which is held until SLURM, which looks at its clock
    every half minute, has warned it: so neither a slow nor a fast machine decides what is seen here."""
    cluster = Cluster(cpus_per_gpu=1, memory_per_gpu="500M", time_limit="60", warning_seconds=40, array_parallelism=1)
    experiment = steady(20, cluster, quantiles=(0.5,), rewind=synthetic.points(0))
    file = written(experiment, tmp_path)
    results = tmp_path / "limited"
    lottery("train", file, "--results", results)
    expected = undisturbed_csv(file, tmp_path, results)
    lottery("sweep", file, "--on", "slurm", "--results", results)
    home = results / "tiny"
    (cell,) = synthetic.tickets(home_of(home))
    for turn in (1, 2):
        until(lambda turn=turn: claim(home, cell)["starts"] == turn, 300)
        held = claim(home, cell)
        until(lambda pid=held["pid"]: signal.SIGUSR1 in signals(pid, "SigCgt"), 120)
        assert hold(home, cell)
        slurm.run("scontrol", "update", f"jobid={held['job']}", "timelimit=1")
        until(lambda pid=held["pid"]: signal.SIGUSR1 in signals(pid, "ShdPnd"), 180)
        slurm.run("scontrol", "update", f"jobid={held['job']}", "timelimit=60")  # its next turn has this limit too
        go_on(held["pid"])
    until(lambda: not slurm.queue(), 300)
    row = status_of(home)[cell]
    assert (row["state"], row["starts"]) == ("done", 3), row
    log = lottery("logs", home, cell).stdout
    assert log.count("stopped in epoch") == 2 and "start 3\n" in log
    assert csv_of(results) == expected


def test_a_copy_that_the_cluster_lost_sight_of_leaves_the_cell_to_the_new_one(slurm, tmp_path):
    """slurmd dies alone: its tasks live on, SLURM starts them again elsewhere, and both copies would write."""
    cluster = Cluster(cpus_per_gpu=1, memory_per_gpu="500M", array_parallelism=1)
    experiment = steady(40, cluster, quantiles=(0.5,), rewind=synthetic.points(0))
    file = written(experiment, tmp_path)
    results = tmp_path / "split"
    lottery("train", file, "--results", results)
    expected = undisturbed_csv(file, tmp_path, results)
    lottery("sweep", file, "--on", "slurm", "--results", results)
    home = results / "tiny"
    (cell,) = synthetic.tickets(home_of(home))
    until(lambda: running(home) and hold(home, cell), 120)
    old = claim(home, cell)
    os.kill(int((slurm.base / "pid" / f"slurmd-{old['host']}.pid").read_text()), signal.SIGKILL)
    slurm.run("scontrol", "update", f"nodename={old['host']}", "state=down", "reason=test")
    until(lambda: claim(home, cell)["starts"] == 2, 120)
    assert Path(f"/proc/{old['pid']}").exists(), "the first copy was to live on"
    go_on(old["pid"])
    until(lambda: "begun again elsewhere" in lottery("logs", home, cell).stdout, 120)
    until(lambda: not slurm.queue(), 300)
    slurm.kill_node(old["host"])  # what is left of it
    slurm.restore_node(old["host"])
    epochs = [
        json.loads(line)["epoch"] for line in (home_of(home).folder_of(cell) / "metrics.jsonl").read_text().splitlines()
    ]
    assert epochs == list(range(1, 41))
    assert csv_of(results) == expected


def test_8_cells_train_each_exactly_once(slurm, tmp_path):
    """Four at a time, each on a whole node; that many find their places is shown with cells that sleep (test_slurm)."""
    cluster = Cluster(cpus_per_gpu=1, memory_per_gpu="500M", gpus_per_cell=4, array_parallelism=4)
    prune = Prune(
        quantiles=tuple(i / 4 for i in range(4)),
        methods=(method("magnitude/uniform"),),
        rewind=synthetic.points(0, 1),
    )
    experiment = dataclasses.replace(tiny(epochs=9, norm_images=4), cluster=cluster, prune=prune)
    file = written(experiment, tmp_path)
    expected = undisturbed_csv(file, tmp_path)
    results = tmp_path / "wide"
    lottery("sweep", file, "--on", "slurm", "--results", results)
    home = results / "tiny"
    until(lambda: not slurm.queue(), 1500)
    states = status_of(home)
    assert len(states) == 9
    assert {(row["state"], row["starts"]) for row in states.values()} == {("done", 1)}
    assert len({claim(home, cell)["host"] for cell in synthetic.tickets(home_of(home))}) >= 4
    assert csv_of(results) == expected
