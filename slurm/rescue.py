"""The net under a sweep on SLURM: before its last job writes the report, it submits again what was lost.

A batch process that is killed, a node that dies at the wrong moment, a submission cut off half-way: SLURM calls such a
job ended, and nobody would train what it had. What a person cancelled stays cancelled, and so does what failed for a
reason of its own. A lost training gets `TURNS` more chances; what never had one for want of room in the queue is
submitted as often as that takes.
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
TRIES, PAUSE_SECONDS = 12, 300.0  # of a submission: a full queue empties, a controller comes back


def rescue(home: Home, rest: bool = False) -> list[tuple[Job, str]]:
    """Submit what was lost, and with `rest` what was never submitted; the jobs with their numbers."""
    for left in reversed(range(TRIES)):
        try:
            return _submitted(home, rest)
        except (Refused, queue.Silent) as error:
            busy = isinstance(error, queue.Silent) or "a limit of yours" in str(error)
            if not busy or not left:
                raise
            console.print(f"{error}; tried again in {PAUSE_SECONDS:.0f} s")
            time.sleep(PAUSE_SECONDS)
    raise AssertionError


def _submitted(home: Home, rest: bool) -> list[tuple[Job, str]]:
    own = jobs.own(home)
    turn = own[-1].turn if own else 0
    lost = lost_of(home) if own and turn < TURNS else set()  # of what was submitted by hand nothing is known
    untried = {training.slug for training in missing(home)} - set(jobs.elements(home)) if rest else set()
    tasks = lost | untried
    done = arrays.submit(home, tasks, turn + bool(lost)) if tasks else []
    if again := lost & {home.training(name).slug for job, _ in done for name in job.tasks}:
        console.print(f"lost, and submitted again ({turn + 1} of {TURNS} times): {', '.join(sorted(again))}")
    return done


def lost_of(home: Home) -> set[str]:
    """Tasks that have no result and no failure, and whose jobs SLURM calls ended, but not cancelled; with those that
    were cancelled, or failed, only because they waited for one of these."""
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
        failed = orphan and at[task] == "failed"  # it found nothing to start from
        if (open_ and (task in gone or cancelled)) or failed:
            out.add(task)
    return out
