"""The SLURM backend: submits missing trainings as a chain of jobs and returns.

Files say what is done, SLURM says what waits or runs. So submitting again submits only what is neither.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from slurm import jobs, launch, limits, packing, queue, sbatch, status
from slurm.sbatch import Job
from sweep import files, lock
from sweep.errors import Refused, command
from sweep.graph import claim
from sweep.graph.home import AGAIN, Home
from sweep.graph.state import missing, predicted_seconds
from sweep.graph.training import Task
from sweep.progress import Work, console
from sweep.pruning.scores import SCORES
from sweep.work.worker import Failure

POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Slurm:
    """A backend (slurm.backend) that submits jobs; it knows failures only if it waits for the end."""

    wait: bool = False
    quiet: bool = False

    def run(self, home: Home) -> list[Failure]:
        submitted = submit(home)
        if not self.quiet:
            tell(submitted)
        return self.waited(home) if self.wait else []

    def waited(self, home: Home) -> list[Failure]:
        """Wait until no job of the sweep waits or runs; return the failures."""
        tasks, began = len(missing(home)), time.monotonic()
        with Work(f"{home.experiment.name} on SLURM", max(tasks, 1), quiet=self.quiet) as work:
            while True:
                with suppress(queue.Silent):  # the controller may be restarting
                    if not jobs.live(home):
                        break
                work.at(tasks - len(missing(home)))
                time.sleep(min(max(POLL_SECONDS, 0.05 * (time.monotonic() - began)), 30.0))
        ended = status.standing_of(home).tasks
        return [Failure(one.task, one.note) for one in ended if one.state in ("failed", "lost")]


def submit(home: Home, only: Collection[str] | None = None, turn: int = 0) -> list[tuple[Job, str]]:
    """Submit everything that is missing, or of it only the tasks `only`; return the jobs with their numbers.

    `turn`: how often the sweep has resubmitted lost tasks by itself. If SLURM refuses a job, those submitted before it
    are cancelled.
    """
    with alone(home):
        live = jobs.live(home)
        chain = _chain(home, live, only)
        if not chain:
            return []
        _refuse_unknown(home)
        sbatch.write_scripts(home.root, chain)  # for reading only: the jobs run the same commands
        for training in (home.training(name) for job in chain for name in job.tasks):
            folder = home.folder(training)  # a new submission is a new chance
            claim.forgive(folder / AGAIN if home.done(training) else folder)
        done: list[tuple[Job, str]] = []
        try:
            for job in chain:
                after = sbatch.clause(_clauses(home, job, done, live))
                number = launch.submit(job, home.root.resolve(), after)
                done.append((job, number))
                jobs.put_on_record(home, job, number, turn)
            new = [id_ for job, id_ in done if job.part == "dense"]
            if new and "masks" in live:  # waiting masks must wait for these dense runs too
                old = [live[one.slug] for one in home.graph.sources if one.slug in live]
                queue.update(live["masks"], f"Dependency=afterany:{':'.join([*new, *old])}")
        except (Refused, OSError) as error:  # full disk: a job that is not on record would be submitted twice
            with suppress(Refused, queue.Silent):
                queue.cancel(id_ for _, id_ in done)
            if isinstance(error, OSError):
                raise files.named(error, home.root / "slurm") from None
            raise Refused(f"{error}{field_of(str(error), home)}; nothing was submitted") from None
        except queue.Silent as error:
            before = ", ".join(id_ for _, id_ in done) or "none"
            raise queue.Silent(f"{error}; jobs submitted before that, and on record: {before}") from None
        if measured := limit_times(home):
            console.print(f"time limit of a training: {measured}")
        return done


def _refuse_unknown(home: Home) -> None:
    """Raise Refused if jobs of this experiment are not on record: submitted by hand, or submission was killed."""
    own = queue.parent_of(claim.own_job())  # this process's own job, perhaps submitted by hand
    unknown = sorted(job.id for job in jobs.by_hand(home, queue.listing()) if job.id != own)
    if unknown:
        raise Refused(f"{home.root}: of its jobs {', '.join(unknown[:5])} wait or run and are on no record (submitted "
                      f"by hand, or cut off); wait for them, or scancel {' '.join(unknown[:5])}")  # fmt: skip


def preview(home: Home) -> list[Job]:
    """Return the jobs that `submit` would submit now; if SLURM does not answer, with SLURM's default limits."""
    try:
        return _chain(home, jobs.live(home))
    except (queue.Silent, Refused):
        return _chain(home)


def _chain(home: Home, live: Collection[str] | None = None, only: Collection[str] | None = None) -> list[Job]:
    """Return the jobs to submit. `live`: tasks that wait or run; None: SLURM is not asked for limits."""
    trainings, masks = wanted_of(home, live or (), only)
    if not trainings and not masks:
        return []
    asked = () if live is None else (queue.max_array_size(), limits.room(home.experiment.cluster))
    return sbatch.chain(packing.settled_for(home, trainings), home.root.resolve(), trainings, masks, *asked)


def tell(submitted: list[tuple[Job, str]]) -> None:
    """Print the submitted jobs."""
    for job, id_ in submitted:
        shared = f" in {len(job.elements)} elements" if len(job.elements) < len(job.tasks) else ""
        console.print(f"job {id_}: {job.part}" + (f", {len(job.tasks)} tasks{shared}" if job.tasks else ""))
    if not submitted:
        console.print("nothing to submit: all is done or in the queue")


def refuse_live(home: Home) -> None:
    """Raise Refused if the sweep has jobs on SLURM: a sweep here or under MPI would train the same tasks."""
    if "SLURM_JOB_ID" in os.environ or not jobs.elements(home):  # inside a job of the sweep itself
        return
    try:
        live = jobs.live(home)
    except queue.Silent as error:
        raise Refused(f"{home.root}: was submitted to SLURM, which does not answer ({error}); expected it to, or "
                      "--take-over to train here whatever it does") from None  # fmt: skip
    except Refused:  # no SLURM here: a copy of the results
        return
    if live:
        raise Refused(f"{home.root}: {len(live)} of its jobs wait or run on SLURM ({', '.join(sorted(live)[:3])}, …); "
                      f"see lottery status, or {command('cancel', home.root)} and --take-over")  # fmt: skip


def limit_times(home: Home) -> str:
    """Lower the time limit of waiting trainings to the prediction, so that SLURM starts them sooner; say so in words.

    It is optional: if SLURM does not answer or refuses, the partition's limit stays, and a training that needs more
    time continues in another turn.
    """
    limit = predicted_limit(home)
    if not limit or home.experiment.cluster.time_limit:
        return ""
    tickets = {training.slug for training in home.graph if training.generation}
    try:
        waiting = {queue.parent_of(job) for task, job in jobs.live(home).items() if task in tickets}
        for job in sorted(waiting):
            queue.update(job, f"TimeLimit={limit}")
    except (Refused, queue.Silent) as error:
        return f"left to the partition ({error})"
    return f"{limit} minutes" if waiting else ""


def predicted_limit(home: Home) -> int:
    """Return the predicted minutes of an array element: 1.5 × the longest one, plus ten for the start; 0 if unknown."""
    predicted = predicted_seconds(home, home.experiment.cluster.gpus_per_cell)
    several = packing.settled_for(home, home.graph).cluster.trainings_per_task
    assert several != "auto"
    return math.ceil(1.5 * several * max(predicted.values()) / 60) + 10 if predicted else 0


def wanted_of(home: Home, live: Collection[str], only: Collection[str] | None) -> tuple[list[Task], bool]:
    """Return the trainings to submit, and whether masks must be made.

    They are neither done nor `live`, and all trainings they need are done or will be.
    """
    open_ = missing(home)
    to_come: list[Task] = []
    lacking = {training.name for training in open_}
    coming = {training.name for training in open_ if training.slug in live}
    for training in open_:  # parents come before their children
        chosen = training.slug not in live and (only is None or training.slug in only)
        after = home.waits_for(training) if chosen else ()
        if chosen and all(need.name not in lacking or need.name in coming for need in after):
            to_come.append(training)
            coming.add(training.name)
    # masks of dense runs only: trainings make those that need gradients, or that belong to later rounds
    unmade = any(
        (mask := training.mask) is not None and mask.of.dense and not SCORES[mask.method.score].gradients
        and not mask.at_start and not home.mask(mask.as_made).exists()
        and (training.name in coming or not any(need.name in lacking for need in training.needs))
        for training in home.graph
    )  # fmt: skip
    return to_come, "masks" not in live and unmade and (only is None or bool(to_come))


def _clauses(home: Home, job: Job, done: list[tuple[Job, str]], live: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return what a job waits for: jobs of its chain, and live jobs submitted before, by any experiment."""
    numbers = live | {one.name: id_ for one, id_ in done}  # the masks' job may be live already
    clauses = [(how, [numbers[name]]) for how, name in job.waits if name in numbers]
    needed = {need.slug for task in job.tasks for need in home.training(task).needs}
    if job.part == "masks":
        needed = {one.slug for one in home.graph.sources}
    elif job.part in ("report", "rest"):
        needed = {training.slug for training in home.graph}
    submitted = {home.training(task).slug for one, _ in done for task in one.tasks}
    submitted_before = sorted({queue.parent_of(live[task]) for task in needed - submitted if task in live})
    return [*clauses, ("afterany", submitted_before)]


# the field of an experiment that causes an error message of sbatch
_CAUSES = {
    "account": r"invalid account",  # before partition: "Invalid account or account/partition combination"
    "partition": r"partition",
    "qos": r"qos",
    "time_limit": r"time limit|time specification",
    "memory_per_gpu": r"memory",
    # SLURM has one message for all of these
    "gpus_per_node, gpus_per_cell, cpus_per_gpu or memory_per_gpu": r"node configuration|CPU count|generic|gres|gpu",
    "options": r"unrecognized option|invalid option|constraint|feature",
}


def field_of(said: str, home: Home) -> str:
    """Return which field of the experiment an error message of sbatch is about, in words, or ""."""
    if "violates accounting/QOS policy" in said:
        return " (a limit of yours on this cluster: jobs, their size or their time)"
    for field, pattern in _CAUSES.items():
        if re.search(pattern, said, re.IGNORECASE):
            value = getattr(home.experiment.cluster, field, None)
            return f" (cluster.{field}{f' is {value!r}' if value else ''})"
    return ""


def alone(home: Home) -> AbstractContextManager[None]:
    """Hold the lock on submissions, so that two commands do not submit the same training."""
    return lock.alone(home.pool / "slurm" / "submit.lock")
