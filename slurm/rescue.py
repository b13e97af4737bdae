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
from sweep.graph.state import states
from sweep.progress import console

TURNS = 3
TRIES, PAUSE_SECONDS = 12, 300.0  # of a submission: a full queue empties, a controller comes back


def rescue(home: Home, rest: bool = False) -> list[tuple[Job, str]]:
    """Submit what was lost, and with `rest` what was never submitted; the jobs with their numbers."""
    own = jobs.own(home)
    if not own:  # submitted by hand: nothing is known of it
        return _submitted(home, arrays.untried(home), 0) if rest else []
    turn = own[-1].turn + 1
    lost = lost_of(home) if turn <= TURNS else set()
    untried = arrays.untried(home) if rest else set()
    if lost:
        console.print(f"lost without a result, submitted again ({turn} of {TURNS} times): {', '.join(sorted(lost))}")
    return _submitted(home, lost | untried, turn if lost else own[-1].turn)


def lost_of(home: Home) -> set[str]:
    """Tasks that have no result and no failure, and whose jobs SLURM calls ended, but not cancelled; with those that
    were cancelled only because they waited for one of these."""
    numbers = jobs.elements(home)
    seen = queue.ask(number for all_of_it in numbers.values() for number in all_of_it)
    last = {task: seen[its[-1]] for task, its in numbers.items() if its[-1] in seen}
    gone = {task for task, job in last.items() if not job.live and job.state not in ("CANCELLED", "COMPLETED")}
    open_ = {one.task for one in states(home) if one.state in ("waiting", "begun")}
    out: set[str] = set()
    for training in home.graph:  # parents come first
        task = training.slug
        if task not in open_ or task not in last:
            continue
        waited = "masks" in gone or any(need.slug in out for need in training.needs)
        if task in gone or (waited and last[task].state == "CANCELLED"):
            out.add(task)
    return out


def _submitted(home: Home, tasks: set[str], turn: int) -> list[tuple[Job, str]]:
    for left in reversed(range(TRIES)):
        if not tasks:
            return []
        try:
            return arrays.submit(home, tasks, turn)
        except (Refused, queue.Silent) as error:
            if not left:
                raise
            console.print(f"{error}; tried again in {PAUSE_SECONDS:.0f} s")
            time.sleep(PAUSE_SECONDS)
    raise AssertionError
