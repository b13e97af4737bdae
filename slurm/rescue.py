"""The resubmission of lost tasks by the last job of a sweep on SLURM, before it writes the report.

A killed batch process, a node that dies at the wrong moment, a submission that was killed half-way: SLURM considers
such jobs ended, and their trainings would stay undone. Cancelled tasks stay cancelled, failed ones stay failed. A lost
training gets `TURNS` more chances; one that was never submitted, because the queue was full, is submitted as often as
needed.
"""

from __future__ import annotations

import time

from slurm import arrays, jobs, queue
from slurm.sbatch import Job
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.state import missing, states
from sweep.progress import console

TURNS = 3
TRIES, PAUSE_SECONDS = 12, 300.0  # for a submission: a full queue empties, a controller restarts


def rescue(home: Home, rest: bool = False) -> list[tuple[Job, str]]:
    """Submit lost tasks and, with `rest`, those never submitted; return the jobs with their ids."""
    for _ in range(TRIES - 1):
        try:
            return _submitted(home, rest)
        except (Refused, queue.Silent) as error:
            if not isinstance(error, queue.Silent) and "a limit of yours" not in str(error):
                raise
            console.print(f"{error}; tried again in {PAUSE_SECONDS:.0f} s")
            time.sleep(PAUSE_SECONDS)
    return _submitted(home, rest)


def _submitted(home: Home, rest: bool) -> list[tuple[Job, str]]:
    own = jobs.own(home)
    turn = own[-1].turn if own else 0
    lost = lost_of(home) if own and turn < TURNS else set()  # nothing is known about jobs submitted by hand
    untried = {training.slug for training in missing(home)} - set(jobs.elements(home)) if rest else set()
    tasks = lost | untried
    done = arrays.submit(home, tasks, turn + bool(lost)) if tasks else []
    if again := lost & {home.training(name).slug for job, _ in done for name in job.tasks}:
        console.print(f"lost, and submitted again ({turn + 1} of {TURNS} times): {', '.join(sorted(again))}")
    return done


def lost_of(home: Home) -> set[str]:
    """Return tasks without result or failure whose jobs SLURM considers ended but not cancelled.

    Tasks that were cancelled, or failed, only because they waited for one of these are included.
    """
    last = {task: its[-1] for task, its in jobs.known(home).items() if its[-1].state}
    gone = {task for task, job in last.items() if not job.live and job.state not in ("CANCELLED", "COMPLETED")}
    at = {one.task: one.state for one in states(home, home.missing_points())}
    out: set[str] = set()
    for training in home.graph:  # parents come first
        task, open_ = training.slug, at[training.slug] in ("waiting", "begun")
        if task not in last or last[task].live:
            continue
        unmasked = training.mask is not None and not home.mask(training.mask.as_made).exists()
        orphan = any(need.slug in out for need in training.needs)
        waited = orphan or ("masks" in gone and unmasked)
        cancelled = waited and last[task].state == "CANCELLED"
        failed = orphan and at[task] == "failed"  # it had nothing to start from
        if (open_ and (task in gone or cancelled)) or failed:
            out.add(task)
    return out
