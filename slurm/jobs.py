"""What was submitted: one line per job in slurm/jobs.jsonl, written as soon as SLURM has given the job its number."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm import sbatch
from slurm.sbatch import Job
from sweep import store
from sweep.plan import cells
from sweep.store import Store
from sweep.worker import dense_task

SINGLE = ("masks", "report", "rest")  # jobs that are no arrays of trainings


@dataclass(frozen=True)
class Submitted:
    id: str
    part: str  # dense, masks, cells, report, rest or tune
    first: int  # of an array: what index 0 stands for
    indices: tuple[int, ...]
    at: float  # seconds since 1970


def path_of(home: Store) -> Path:
    return home.root / "slurm" / "jobs.jsonl"


def record(home: Store, job: Job, id_: str) -> None:
    store.append_line(path_of(home), asdict(Submitted(id_, job.part, job.first, job.indices, time.time())))


def submitted(home: Store) -> list[Submitted]:
    return [Submitted(**line) for line in store.read_lines(path_of(home))]


def elements(home: Store) -> dict[str, tuple[str, ...]]:
    """Of every task that was submitted, and of masks and report: the numbers SLURM gave it, the latest last."""
    out: dict[str, tuple[str, ...]] = {}
    for job in submitted(home):
        if job.part in SINGLE:
            out[job.part] = (*out.get(job.part, ()), job.id)
        for task, index in _tasks(home, job):
            out[task] = (*out.get(task, ()), f"{job.id}_{index}")
    return out


def log_of(home: Store, task: str) -> Path | None:
    """The log of a task, if it was ever submitted; all its jobs append to the same one."""
    for job in reversed(submitted(home)):
        for name, index in _tasks(home, job):
            if name == task:
                return sbatch.log_of(home.root, job.part, job.first, index)
    return None


def _tasks(home: Store, job: Submitted) -> list[tuple[str, int]]:
    """The tasks of an array, each with its index."""
    if job.part == "dense":
        names = [dense_task(seed) for seed in home.experiment.seeds]
    elif job.part == "cells":
        names = [cell.slug for cell in cells(home.experiment)]
    else:
        return []
    return [(names[job.first + index], index) for index in job.indices]
