"""What runs inside a job, on a real SLURM: killed and gone on, submitted by hand, an MPI world, several trainings."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from slurm import jobs
from tests import synthetic
from tests.commands import csv_of, home_of, lottery, status_of
from tests.sleeping_sweep import SMALL, evenly, ran, sleep_for, sleeping_sweep, submit
from tests.slurm_cluster import until

ROOT = Path(__file__).parents[2]

# ---- going on


@pytest.mark.tensorflow
def test_a_task_that_is_killed_again_and_again_fails_with_the_reason(slurm, trained):
    home = trained / "tiny"
    lottery("sweep", home, "cluster.restarts=1", "prune.quantiles=[0.5]", "prune.rewind=[0]", "--on", "slurm")
    victim = "ticket-magnitude-uniform-q0.5-k0-seed0"
    killed: set[int] = set()

    def kill_it() -> bool:
        claim = home_of(home).folder_of(victim) / "claim.json"
        if claim.exists() and (pid := json.loads(claim.read_text())["pid"]) not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        return status_of(home)[victim]["state"] == "failed"

    until(kill_it, 300)
    note = status_of(home)[victim]["note"]
    assert len(killed) == 2 and "begun 2 times without getting past its beginning, last on node" in note
    log = lottery("logs", home, victim).stdout
    assert "start 1\n" in log and "start 2\n" in log and "start 3\n" in log, "one log for all starts"


@pytest.mark.tensorflow
def test_a_plain_script_submitted_by_hand_does_the_same_work_in_a_folder_of_any_name(
    slurm, tmp_path, undisturbed, tiny_file
):
    results = tmp_path / 'it\'s 100 %j $(touch oops) "here" `id`'
    said = lottery("sbatch", tiny_file, "prune.quantiles=[0.5]", "prune.rewind=[1ep]", "--results", results).stdout
    commands = said.partition("each waiting for the one before:\n")[2]
    subprocess.run(["bash", "-e"], input=commands, text=True, check=True, cwd=tmp_path)
    until(lambda: list(results.glob("*/report/results.csv")), 300)
    rows, whole = (csv_of(root).splitlines() for root in (results, undisturbed))
    assert len(rows) == 3 and set(rows) < set(whole)
    logs = {path.name for path in results.glob("slurm/logs/*.out")}
    assert {f"{path.name}.out" for path in results.glob("trainings/*")} | {"tiny-masks.out", "tiny-report.out"} <= logs
    assert {path.name for path in tmp_path.iterdir()} == {results.name}, "a part of the name was run or split off"


def test_a_queued_task_still_runs_after_the_checkout_moved_on(slurm, tmp_path, monkeypatch):
    """What waits in the queue is the name of a function and two words, not code: it finds the code of the day."""
    checkout, mark = tmp_path / "checkout", tmp_path / "mark"
    for name in ("models", "sweep", "slurm", "experiments"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    file, home = sleeping_sweep(tmp_path, 0.1, dataclasses.replace(SMALL, options=("--hold",)))
    monkeypatch.chdir(tmp_path)  # a job finds the code of the folder it was submitted in first
    lottery("sweep", file, "--on", "slurm", "--results", home.pool, env=os.environ | {"PYTHONPATH": str(checkout)})
    code = checkout / "sweep" / "errors.py"
    code.write_text(f"{code.read_text()}\n\nimport pathlib\n\npathlib.Path({str(mark)!r}).touch()\n")
    for number in {job.id for job in jobs.own(home)}:
        slurm.run("scontrol", "release", number)
    until(lambda: len(ran(home)) == 4, 120)
    assert mark.exists(), "it ran the code of another folder"


# ---- MPI inside an allocation


@pytest.mark.tensorflow
def test_srun_starts_an_mpi_world_over_several_nodes(slurm, mpiexec, tmp_path, undisturbed, tiny_file):
    log = tmp_path / "mpi.out"
    work = f"srun --mpi=pmi2 lottery sweep {tiny_file} --on mpi --results {tmp_path / 'results'}"
    subprocess.run(["sbatch", "--nodes=3", "--ntasks=3", f"--output={log}", f"--wrap={work}"], check=True)
    until(lambda: list(tmp_path.glob("results/*/report/results.csv")), 300)
    assert csv_of(tmp_path / "results") == csv_of(undisturbed), log.read_text()


def test_several_worlds_of_one_rank_are_refused_instead_of_each_doing_everything(slurm, mpiexec, tmp_path, tiny_file):
    log = tmp_path / "mpi.out"
    work = f"srun --mpi=none lottery sweep {tiny_file} --on mpi --results {tmp_path / 'results'}"
    subprocess.run(["sbatch", "--ntasks=2", f"--output={log}", f"--wrap={work}"], check=True)
    until(lambda: not slurm.queue(), 60)
    assert log.read_text().count("this MPI world has one rank") == 2
    assert not (tmp_path / "results").exists()


# ---- several trainings in an array element


def starts(home) -> int:
    """How often the work of an array element was begun, from the logs."""
    return sum(path.read_text().count(", start ") for path in home.pool.glob("slurm/logs/ticket-*.out"))


def test_160_cells_in_20_elements_start_up_20_times_and_each_is_trained_once(slurm, tmp_path):
    cluster = dataclasses.replace(SMALL, trainings_per_task=8, array_parallelism=20)
    file, home = sleeping_sweep(
        tmp_path, 0.1, cluster, epochs=10, quantiles=evenly(20), rewind=synthetic.points(*range(8))
    )
    assert "cells, 160 tasks in 20 elements" in submit(file, home).stdout
    until(lambda: not slurm.queue(), 200)
    lines = ran(home)
    assert len(lines) == len({line["cell"] for line in lines}) == 160
    assert starts(home) == 20
    assert lottery("logs", home.root, synthetic.tickets(home)[-1]).stdout, "the log of the element it was in"


def test_an_element_that_is_killed_goes_on_with_the_rest(slurm, tmp_path):
    cluster = dataclasses.replace(SMALL, trainings_per_task=4)
    file, home = sleeping_sweep(tmp_path, 0.5, cluster, quantiles=evenly(4), rewind=synthetic.points(0))
    names = synthetic.tickets(home)
    sleep_for(home, 1000.0, names[2])  # it is in the middle of this one, however slow the machine is
    submit(file, home)
    until(lambda: all((home.folder_of(name) / "result.json").exists() for name in names[:2]), 60)
    sleep_for(home, 0.1, names[2])  # from its next start on
    words, lines = ("sleeping_job.py", "train", str(home.root)), psutil.process_iter(["cmdline"])
    commands = {process: " ".join(process.info["cmdline"] or ()) for process in lines}
    (work,) = [one for one, line in commands.items() if all(word in line for word in words) and "supervise" not in line]
    work.kill()
    until(lambda: not slurm.queue(), 120)
    lines = ran(home)
    assert sorted(line["cell"] for line in lines) == sorted(synthetic.tickets(home)), "what was done was not done again"
    assert starts(home) == 2
