"""On a SLURM cluster: submits what is missing as a chain of jobs and does not stay around.

What is done is known from the files; what waits or runs, from SLURM. So submitting again submits only what is in
neither.
"""

from __future__ import annotations

import fcntl
import math
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from slurm import jobs, queue, sbatch, status
from slurm.sbatch import Job, Missing
from sweep import claim
from sweep.errors import Refused
from sweep.plan import cells
from sweep.progress import Work, console
from sweep.status import predicted_seconds
from sweep.store import Store
from sweep.worker import Failure, dense_task, folder_of, missing

POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Slurm:
    """A backend as slurm.backend describes it; failures are known only where it waits for the end."""

    wait: bool = False
    untried: bool = False  # only what was never submitted
    quiet: bool = False

    def run(self, home: Store) -> list[Failure]:
        submitted = submit(home, untried(home) if self.untried else None)
        if not self.quiet:
            tell(submitted)
        return self._waited(home) if self.wait else []

    def _waited(self, home: Store) -> list[Failure]:
        tasks = sum(len(stage.tasks) for stage in missing(home))
        began = time.monotonic()
        with Work(f"{home.experiment.name} on SLURM", max(tasks, 1), quiet=self.quiet) as work:
            while True:
                with suppress(queue.Silent):  # a controller that restarts is no reason to stop waiting
                    if not _live(home):
                        break
                work.at(tasks - sum(len(stage.tasks) for stage in missing(home)))
                time.sleep(min(max(POLL_SECONDS, 0.05 * (time.monotonic() - began)), 30.0))
        ended = status.states(home).tasks
        return [Failure(one.task, one.note) for one in ended if one.state in ("failed", "lost")]


def submit(home: Store, only: Collection[str] | None = None) -> list[tuple[Job, str]]:
    """Submit everything that is missing (`only`: these tasks of it); the jobs with their numbers.

    When SLURM refuses one, those submitted before it are cancelled: nothing stays half-submitted.
    """
    with alone(home):
        live = _live(home)
        wanted = missing_of(home, live, only)
        if not wanted.any:
            return []
        chain = _chain(home, wanted)
        scripts = sbatch.write_scripts(home.root, chain)
        for task in wanted.tasks(home.experiment):
            claim.forgive(folder_of(home, task))  # whoever submits it again gives it a new chance
        done: list[tuple[Job, str]] = []
        try:
            for job, script in zip(chain, scripts, strict=True):
                options = sbatch.dependency([(how, _ids(name, done, live)) for how, name in job.waits])
                done.append((job, queue.submit(str(script), options)))
                jobs.record(home, *done[-1])
            if wanted.dense and "masks" in live:  # masks that wait already must wait for these dense runs too
                queue.set_dependency(live["masks"], f"afterany:{':'.join(_ids('dense', done, live))}")
        except Refused as error:
            with suppress(Refused, queue.Silent):
                queue.cancel(id_ for _, id_ in done)
            raise Refused(f"{error}{_field(str(error), home)}; nothing was submitted") from None
        except queue.Silent as error:
            before = ", ".join(id_ for _, id_ in done) or "none"
            raise queue.Silent(f"{error}; jobs submitted before that, and on record: {before}") from None
        if measured := limit_times(home):
            console.print(f"time limit of the cells: {measured}")
        return done


def preview(home: Store) -> list[Job]:
    """What `submit` would submit now; where no SLURM answers, what one with SLURM's default limits would get."""
    try:
        wanted = missing_of(home, _live(home))
        return _chain(home, wanted) if wanted.any else []
    except (queue.Silent, Refused):
        wanted = missing_of(home)
        return sbatch.chain(home.experiment, home.root.resolve(), wanted) if wanted.any else []


def _chain(home: Store, wanted: Missing) -> list[Job]:
    limit = queue.submit_limit(home.experiment.cluster.qos)
    room = limit - queue.waiting_or_running() if limit else None
    return sbatch.chain(home.experiment, home.root.resolve(), wanted, queue.max_array_size(), room)


def tell(submitted: list[tuple[Job, str]]) -> None:
    """Say which jobs there are now."""
    for job, id_ in submitted:
        console.print(f"job {id_}: {job.part}" + (f", {len(job.indices)} tasks" if job.indices else ""))
    if not submitted:
        console.print("nothing to submit: all is done or in the queue")


def cancel(home: Store, only: Collection[str] | None = None) -> list[str]:
    """Cancel what waits or runs; the tasks that did."""
    live = {task: job for task, job in _live(home).items() if only is None or task in only}
    queue.cancel(live.values() if only is not None else {_parent(job) for job in live.values()})
    return sorted(live)


def limit_times(home: Store) -> str:
    """Lower the time limit of cells that wait to what the dense run predicts: what is short finds a place sooner.

    Nothing depends on it: where SLURM cannot be asked or refuses (it lets nobody raise a limit), the partition's stays,
    and a cell that needs more time goes on in another turn.
    """
    limit = predicted_limit(home)
    if not limit or home.experiment.cluster.time_limit:
        return ""
    slugs = {cell.slug for cell in cells(home.experiment)}
    try:
        waiting = {_parent(job) for task, job in _live(home).items() if task in slugs}
        for job in sorted(waiting):
            queue.set_time_limit(job, limit)
    except (Refused, queue.Silent) as error:
        return f"left to the partition ({error})"
    return f"{limit} minutes" if waiting else ""


def predicted_limit(home: Store) -> str:
    """Half as much again as the longest cell is predicted to take, and ten minutes to start; in minutes."""
    predicted = predicted_seconds(home, home.experiment.cluster.gpus_per_cell)
    return str(math.ceil(1.5 * max(predicted.values(), default=0.0) / 60) + 10) if predicted else ""


def missing_of(home: Store, live: Collection[str] = (), only: Collection[str] | None = None) -> Missing:
    """What is neither done nor `live`, and can be done: not the cells of a dense run that is not to come."""
    open_ = {task for stage in missing(home) for task in stage.tasks}
    chosen = {task for task in open_ - set(live) if only is None or task in only}
    seeds = home.experiment.seeds
    dense = tuple(i for i, seed in enumerate(seeds) if dense_task(seed) in chosen)
    coming = {seed for i, seed in enumerate(seeds) if i in dense or dense_task(seed) not in open_ - set(live)}
    return Missing(
        dense=dense,
        masks="masks" not in live and any(f"masks-seed{seed}" in open_ for seed in coming),
        cells=tuple(i for i, cell in enumerate(cells(home.experiment)) if cell.slug in chosen and cell.seed in coming),
    )


def untried(home: Store) -> set[str]:
    """Tasks that were never submitted."""
    tasks = {task for stage in missing(home) for task in stage.tasks}
    return tasks - set(jobs.elements(home))


def _live(home: Store) -> dict[str, str]:
    """The number of every task that waits or runs."""
    numbers = {
        number: task
        for task, all_of_it in jobs.elements(home).items()
        for number in all_of_it
        if task in jobs.SINGLE or not (folder_of(home, task) / "result.json").exists()
    }
    return {numbers[number]: number for number, seen in queue.ask(numbers).items() if seen.live}


def _ids(name: str, done: list[tuple[Job, str]], live: dict[str, str]) -> list[str]:
    """The numbers of a job of the chain, and of what was submitted of its part before and still lives."""
    new = [id_ for job, id_ in done if job.name == name]
    part = name.partition("-")[0]
    if part == "masks":
        return new or [live["masks"]] if new or "masks" in live else []
    if part == "dense":
        old = {_parent(id_) for task, id_ in live.items() if task.startswith("dense-")}
    else:
        old = {_parent(id_) for task, id_ in live.items() if not task.startswith("dense-") and task not in jobs.SINGLE}
    return [*new, *sorted(old)]


# What in an experiment makes sbatch say so.
_CAUSES = {
    "account": r"invalid account",  # before partition: "Invalid account or account/partition combination"
    "partition": r"partition",
    "qos": r"qos",
    "time_limit": r"time limit|time specification",
    "memory_per_gpu": r"memory",
    "gpus_per_node, gpus_per_cell or cpus_per_gpu": r"node configuration|CPU count|generic resource|gres|gpu",
    "options": r"unrecognized option|invalid option|constraint|feature",
}


def _field(said: str, home: Store) -> str:
    """Which field of the experiment an error of sbatch is about."""
    if "violates accounting/QOS policy" in said:
        return " (a limit of yours on this cluster: jobs, their size or their time)"
    for field, pattern in _CAUSES.items():
        if re.search(pattern, said, re.IGNORECASE):
            value = getattr(home.experiment.cluster, field, None)
            return f" (cluster.{field}{f' is {value!r}' if value else ''})"
    return ""


def _parent(job: str) -> str:
    return job.partition("_")[0]


@contextmanager
def alone(home: Store) -> Iterator[None]:
    """One submission at a time, so that two commands do not submit the same cell."""
    path = home.root / "slurm" / "submit.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
