"""What was submitted: one line per job in slurm/jobs.jsonl of the results root, written as soon as it has its number.

One record for all experiments: a training that another experiment has submitted is waited for, not submitted again.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm.sbatch import SINGLE, Job, logs_of
from sweep import files
from sweep.graph.home import Home


@dataclass(frozen=True)
class Submitted:
    id: str
    experiment: str
    part: str  # dense, cells, …, masks, report, rest or tune
    tasks: tuple[str, ...]  # of an array: the names of its trainings
    indices: tuple[int, ...]  # the element of each
    at: float  # seconds since 1970
    array: bool = True  # of trainings: one alone is no array where submitit submits it
    turn: int = 0  # how often the sweep has submitted again by itself (slurm/rescue.py)


SUBMITTED: files.Shape = {"id": str, "experiment": str, "part": str, "tasks": list, "indices": list, "at": float}


def path_of(home: Home) -> Path:
    return home.pool / "slurm" / "jobs.jsonl"


def record(home: Home, job: Job, id_: str, array: bool = True, turn: int = 0) -> None:
    line = Submitted(id_, home.root.name, job.part, job.tasks, job.indices, time.time(), array, turn)
    files.append_line(path_of(home), asdict(line))


def submitted(home: Home) -> list[Submitted]:
    """Of all experiments."""
    lines = files.read_lines(path_of(home), SUBMITTED)
    return [
        Submitted(
            line["id"], line["experiment"], line["part"], tuple(line["tasks"]), tuple(line["indices"]), line["at"],
            line.get("array", True), line.get("turn", 0),
        )
        for line in lines
    ]  # fmt: skip


def own(home: Home) -> list[Submitted]:
    """Of this experiment."""
    return [job for job in submitted(home) if job.experiment == home.root.name]


def elements(home: Home) -> dict[str, tuple[str, ...]]:
    """Of every task of this experiment that was submitted, by whichever: the numbers SLURM gave it, the latest last.

    Masks and report are the experiment's own.
    """
    numbers: dict[str, list[str]] = {}
    for job in submitted(home):
        if job.part in SINGLE and job.experiment == home.root.name:
            numbers.setdefault(job.part, []).append(job.id)
        for name, index in zip(job.tasks, job.indices, strict=False):
            numbers.setdefault(name, []).append(f"{job.id}_{index}" if job.array else job.id)
    wanted = {training.name: training.slug for training in home.graph} | {part: part for part in SINGLE}
    return {wanted[name]: tuple(found) for name, found in numbers.items() if name in wanted}


def log_of(home: Home, task: str) -> Path:
    """The log of a training, whichever job of whichever experiment it ran in; of several that shared an array element,
    that of the first. Also of masks, report and rest."""
    if task in SINGLE:
        return logs_of(home.pool) / f"{home.root.name}-{task}.out"
    name = home.training(task).name
    for job in submitted(home):
        if name in job.tasks:
            index = job.indices[job.tasks.index(name)]
            name = job.tasks[job.indices.index(index)]
            break
    own = logs_of(home.pool) / f"{home.training(task).name}.out"
    return own if own.exists() else logs_of(home.pool) / f"{name}.out"
