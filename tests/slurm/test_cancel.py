"""Cancelling on a real SLURM: element by element, and nothing that another experiment under way wants."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from slurm import jobs, queue
from slurm.cancel import cancel
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from tests import synthetic
from tests.commands import home_of, lottery, status_of
from tests.sleeping_sweep import SLEEPING_JOB, SMALL, sleeping_sweep, submit
from tests.slurm_cluster import until


@pytest.fixture
def asleep(tmp_path):
    """Make an experiment whose trainings, dense runs too, sleep until they are cancelled."""

    def make(name: str, seeds: tuple[int, ...] = (0,), **recipe) -> tuple:
        made = synthetic.experiment(name, seeds=seeds, quantiles=(0.5,), rewind=synthetic.points(0))
        experiment = dataclasses.replace(
            made, cluster=dataclasses.replace(SMALL, container=SLEEPING_JOB),
            recipe=dataclasses.replace(made.recipe, norm_images=1, **recipe),
        )  # fmt: skip
        file = tmp_path / f"{name}.yaml"
        file.write_text(experiment_file.dump(experiment))
        home = Home(tmp_path / "results" / name, experiment)
        seconds = {training.name: 1000.0 for training in home.graph}
        synthetic.files.write_json(home.root / "sleep.json", {"seconds": seconds, "masks": []})
        return file, home

    return make


def in_state(home: Home, state: str) -> set[str]:
    return {task for task, row in status_of(home.root).items() if row["state"] == state}


def test_what_another_experiment_wants_is_left_alone_and_named(slurm, asleep):
    (x_file, x), (y_file, y) = asleep("x", seeds=(0, 1)), asleep("y")
    submit(x_file, x)
    submit(y_file, y)
    until(lambda: in_state(x, "running") == {"dense-seed0", "dense-seed1"})
    said = lottery("cancel", y.root).stdout
    assert "left alone, because x wants them too: dense-seed0, ticket-q0.5-k0-seed0" in said, said
    until(lambda: not [job for job in jobs.own(home_of(y.root)) if job.id in map(queue.parent_of, slurm.queue())])
    assert in_state(x, "running") == {"dense-seed0", "dense-seed1"} and not in_state(x, "lost")
    said = lottery("cancel", y.root, "--all").stdout
    assert "cancelled: dense-seed0, ticket-q0.5-k0-seed0" in said, said
    until(lambda: in_state(x, "running") == {"dense-seed1"})
    assert "cancelled:" in lottery("cancel", x.root).stdout
    until(lambda: not slurm.queue())


def test_jobs_of_an_earlier_plan_are_said_by_sweep_and_reached_by_cancel(slurm, asleep):
    file, home = asleep("y")
    submit(file, home)
    until(lambda: in_state(home, "running") == {"dense-seed0"})
    again = submit(file, home, "recipe.epochs=5").stdout
    assert (
        "of an earlier plan of this experiment 2 trainings still wait or run (dense-seed0, ticket-q0.5-k0-seed0)"
        in again
    )
    assert "--earlier ends them" in again
    old = {job.id for job in jobs.own(home) if home.training("dense-seed0").name in job.tasks}
    said = lottery("cancel", home.root, "--earlier").stdout
    assert said.startswith("cancelled: dense-seed0, ticket-q0.5-k0-seed0")
    until(lambda: not any(number.partition("_")[0] in old for number in slurm.queue()))
    assert slurm.queue(), "the new plan goes on"
    lottery("cancel", home.root)
    until(lambda: not slurm.queue())


def test_scripts_submitted_by_hand_are_seen_by_status_and_reached_by_cancel(slurm, asleep):
    file, home = asleep("y", seeds=(0, 1))
    said = lottery("sbatch", file, "--results", home.pool).stdout
    commands = said.partition("before:\n")[2].replace("\n", "; ").replace("; ;", ";")
    subprocess.run(["bash", "-ec", commands.strip("; ")], check=True)
    until(lambda: in_state(home, "running") == {"dense-seed0", "dense-seed1"})
    assert "in the queue" in status_of(home.root)["ticket-q0.5-k0-seed0"]["note"]
    assert lottery("cancel", home.root, "dense-seed1").stdout == "cancelled: dense-seed1\n"
    until(lambda: in_state(home, "running") == {"dense-seed0"})
    assert "cancelled: dense-seed0, masks, report" in lottery("cancel", home.root).stdout
    until(lambda: not slurm.queue())


def test_trainings_that_share_an_element_are_all_in_the_queue_and_cancelled_together(slurm, tmp_path):
    cluster = dataclasses.replace(SMALL, trainings_per_task=4, options=("--hold",))
    file, home = sleeping_sweep(tmp_path, 1000.0, cluster)
    submit(file, home)
    assert "nothing to submit" in submit(file, home).stdout
    names = synthetic.tickets(home)
    assert in_state(home, "waiting") == set(names)
    found = cancel(home_of(home.root), names[:1])
    assert not found.gone and sorted(found.shared) == sorted(names), "the others would be lost with it"
    slurm.run("scontrol", "release", *(job.id for job in jobs.own(home)))
    until(lambda: "waits for its turn in a job on node" in status_of(home.root)[names[1]]["note"])
    assert not in_state(home, "running"), "none of them has begun: what sleeps there leaves no claim"
    assert sorted(cancel(home_of(home.root)).gone) == sorted([*names, "report"])
    until(lambda: not slurm.queue())


def test_an_experiment_that_cannot_be_read_keeps_what_it_has_submitted(slurm, asleep):
    (x_file, x), (y_file, y) = asleep("x"), asleep("y", seeds=(0, 1))
    submit(x_file, x)
    submit(y_file, y)
    (x.root / "experiment.yaml").write_text("damaged: [")
    found = cancel(home_of(y.root))
    assert found.left == {"x": ["dense-seed0", "ticket-q0.5-k0-seed0"]} and "dense-seed1" in found.gone
    slurm.clear()


def test_jobs_are_called_by_their_experiment_and_part(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 1.0, dataclasses.replace(SMALL, options=("--hold",)))
    submit(file, home)
    names = set(slurm.run("squeue", "--noheader", "--format=%j").split())
    assert names == {"small-masks", "small-cells", "small-report"}
    slurm.clear()
