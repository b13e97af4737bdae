"""What gets lost on a real SLURM is submitted again by the sweep's last job; what a person cancelled is not."""

from __future__ import annotations

from contextlib import suppress

import psutil

from slurm import jobs, queue, rescue
from slurm.rescue import TURNS
from slurm.sbatch import Job
from sweep.graph.home import Home
from tests import synthetic
from tests.commands import status_of
from tests.sleeping_sweep import ran, sleep_for, sleeping_sweep, submit
from tests.slurm_cluster import until


def running(home, task: str) -> str:
    """The number of its array element that runs now; empty where none does."""
    numbers = jobs.elements(home).get(task, ())
    return next((number for number, seen in queue.ask(numbers).items() if seen.state == "RUNNING"), "")


def kill_all(number: str) -> int:
    """Every process of a job, its batch process and supervisor too: SLURM calls that failed, and forgets it."""
    array, _, element = number.partition("_")
    own = {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": element} if element else {"SLURM_JOB_ID": array}
    killed = 0
    for process in psutil.process_iter(["environ", "name"]):
        if own.items() <= (process.info["environ"] or {}).items() and process.info["name"] != "slurmstepd":
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed += 1
    return killed


def test_a_lost_training_is_resubmitted_up_to_the_limit_and_a_cancelled_one_is_not(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 0.5)
    lost, cancelled, *others = synthetic.tickets(home)
    sleep_for(home, 1000.0, lost, cancelled)  # as long as this test may take
    submit(file, home)
    until(lambda: running(home, cancelled), 60)
    slurm.run("scancel", running(home, cancelled))
    for _ in range(1 + TURNS):
        number: list[str] = []
        until(lambda number=number: number.append(running(home, lost)) or number[-1], 60)
        until(lambda number=number: kill_all(number[-1]), 60)
        until(lambda number=number: running(home, lost) != number[-1], 60)
    until(lambda: not slurm.queue(), 120)
    assert sorted(line["cell"] for line in ran(home)) == sorted(others), "nothing twice, and the two not"
    states = status_of(home.root)
    assert states[lost]["state"] == states[cancelled]["state"] == "lost"
    assert "FAILED" in states[lost]["note"] and "CANCELLED" in states[cancelled]["note"]
    assert [job.turn for job in jobs.own(home) if job.part == "report"] == list(range(1 + TURNS))
    log = (home.pool / "slurm" / "logs" / f"{home.root.name}-report.out").read_text()
    assert log.count(f"of {TURNS} times): {lost}\n") == TURNS
    # whoever submits it again begins to count anew
    sleep_for(home, 0.1, lost, cancelled)
    assert "2 tasks" in submit(file, home).stdout
    until(lambda: len(ran(home)) == 4, 120)


def standing(home, monkeypatch, **seen: str) -> None:
    """Every task on record as submitted, each in a job of its own that SLURM says ended so."""
    names = {training.slug: training.name for training in home.graph} | {"masks": "masks"}
    ended = {}
    for number, (task, name) in enumerate(names.items()):
        tasks = () if task == "masks" else (name,)
        job = Job(task, "masks" if task == "masks" else "cells", elements=tuple((name,) for name in tasks))
        jobs.put_on_record(home, job, str(number))
        state = seen.get(task.replace("-", "_").replace(".", "_"), "COMPLETED")
        ended[str(number)] = queue.Entry(str(number), state)
    monkeypatch.setattr(queue, "ask", lambda numbers, listed: {n: ended[n] for n in numbers})


def test_tickets_that_ended_because_their_dense_run_was_lost_are_resubmitted_with_it(tmp_path, monkeypatch):
    """A real cluster would take long to get there: one of two dense runs is lost, and its tickets find nothing."""
    home = Home(tmp_path / "small", synthetic.experiment(seeds=(0, 1), quantiles=(0.5,), rewind=synthetic.points(0, 2)))
    synthetic.finish(home, "dense-seed0", 0.5)
    synthetic.fail(home, "ticket-q0.5-k2ep-seed1", "dense-seed1: is not done")
    synthetic.fail(home, "ticket-q0.5-k2ep-seed0", "loss is nan")
    standing(
        home, monkeypatch, dense_seed1="NODE_FAIL", ticket_q0_5_k0_seed1="CANCELLED", ticket_q0_5_k2ep_seed1="FAILED",
        ticket_q0_5_k2ep_seed0="FAILED", ticket_q0_5_k0_seed0="CANCELLED",
    )  # fmt: skip
    assert rescue.lost_of(home) == {"dense-seed1", "ticket-q0.5-k0-seed1", "ticket-q0.5-k2ep-seed1"}


def test_tickets_that_waited_for_lost_masks_are_resubmitted_unless_the_masks_exist(tmp_path, monkeypatch):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,), rewind=synthetic.points(0, 2)))
    synthetic.finish(home, "dense-seed0", 0.5)
    both = ("ticket-q0.5-k0-seed0", "ticket-q0.5-k2ep-seed0")
    standing(home, monkeypatch, masks="NODE_FAIL", ticket_q0_5_k0_seed0="CANCELLED", ticket_q0_5_k2ep_seed0="CANCELLED")
    assert rescue.lost_of(home) == set(both)
    synthetic.files.write_text(home.mask(home.training(both[0]).mask.as_made), "")
    assert rescue.lost_of(home) == set(), "a person cancelled them"
