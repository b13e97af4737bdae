"""The record of submitted jobs: a line per job in slurm/jobs.jsonl of the results root, written at submission.

All experiments share it: a training that another experiment has submitted is waited for, not submitted again.
"""

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm import queue, sbatch
from slurm.queue import Entry
from slurm.sbatch import SINGLE, Job, logs_of
from sweep import files
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.state import missing


@dataclass(frozen=True)
class Submitted:
    """A submitted job, as a line of slurm/jobs.jsonl."""

    id: str
    experiment: str
    part: str  # dense, cells, …, masks, report, rest or tune
    tasks: tuple[str, ...]  # names of the trainings of an array
    indices: tuple[int, ...]  # array element of each
    at: float  # seconds since 1970
    array: bool = True  # False for a single training, which submitit submits as a plain job
    turn: int = 0  # how often the sweep has resubmitted lost tasks (slurm/rescue.py)

    @property
    def numbers(self) -> dict[str, tuple[str, ...]]:
        """Return the trainings of every array element, by its SLURM job id."""
        out: dict[str, tuple[str, ...]] = {}
        for name, index in zip(self.tasks, self.indices, strict=False):
            number = f"{self.id}_{index}" if self.array else self.id
            out[number] = (*out.get(number, ()), name)
        return out


def path_of(home: Home) -> Path:
    return home.pool / "slurm" / "jobs.jsonl"


def put_on_record(home: Home, job: Job, id_: str, turn: int = 0) -> None:
    several = len(job.elements) > 1
    line = Submitted(id_, home.root.name, job.part, job.tasks, job.indices, time.time(), several, turn)
    files.append_line(path_of(home), line)


def submitted(home: Home) -> list[Submitted]:
    """Return the recorded jobs of all experiments in the pool."""
    path = path_of(home)
    return [files.as_record(line, Submitted, path) for line in files.read_lines(path)]


def own(home: Home) -> list[Submitted]:
    """Return the recorded jobs of this experiment."""
    return [job for job in submitted(home) if job.experiment == home.root.name]


def by_hand(home: Home, listed: Collection[Entry]) -> list[Submitted]:
    """Return live jobs of this experiment that are not on record: submitted by hand, or submission was killed."""
    known = {job.id for job in submitted(home)}
    out = []
    for number, elements in queue.under(home.root.resolve() / "slurm", listed).items():
        if number not in known:
            script, part = "", Path(elements[0].script).stem
            with suppress(Refused):  # only the owner may read it, or the job has just ended
                script = queue.output(["scontrol", "write", "batch_script", number, "-"])
            job, array = Job(part, part, elements=sbatch.elements_in(script)), any("_" in one.job for one in elements)
            out.append(Submitted(number, home.root.name, part, job.tasks, job.indices, 0.0, array))
    return out


def elements(home: Home, listed: Collection[Entry] = ()) -> dict[str, tuple[str, ...]]:
    """Return the SLURM job ids of every submitted task of this experiment, the latest last.

    Trainings may have been submitted by another experiment; masks and report are the experiment's own. With `listed`
    (what squeue shows), jobs that are not on record are included.
    """
    numbers: dict[str, list[str]] = {}
    for job in (*submitted(home), *(by_hand(home, listed) if listed else ())):
        if job.part in SINGLE and job.experiment == home.root.name:
            numbers.setdefault(job.part, []).append(job.id)
        for number, names in job.numbers.items():
            for name in names:
                numbers.setdefault(name, []).append(number)
    wanted = {training.name: training.slug for training in home.graph} | {part: part for part in SINGLE}
    return {wanted[name]: tuple(found) for name, found in numbers.items() if name in wanted}


def known(home: Home, listed: Collection[Entry] | None = None) -> dict[str, list[Entry]]:
    """Return the jobs, as SLURM sees them and the latest last, of every task that is submitted and not done.

    Masks, report and rest are included. A job that SLURM does not know has no state. `listed` as in `elements`.
    """
    open_ = {*SINGLE, *(training.slug for training in missing(home))}
    numbers = {task: its for task, its in elements(home, listed or ()).items() if task in open_}
    seen = queue.ask((number for its in numbers.values() for number in its), listed)
    return {task: [seen.get(number, Entry(number, "")) for number in its] for task, its in numbers.items()}


def live(home: Home) -> dict[str, str]:
    """Return the SLURM job id of every task that waits or runs, also masks and report; several tasks may share one."""
    return {task: one.job for task, its in known(home).items() for one in its if one.live}


def log_of(home: Home, task: str) -> Path:
    """Return the log of a training, masks, report or rest, whichever job it ran in.

    If several trainings shared an array element, it is the log of the first.
    """
    if task in SINGLE:
        return logs_of(home.pool) / f"{home.root.name}-{task}.out"
    name = home.training(task).name
    shared = (names[0] for job in submitted(home) for names in job.numbers.values() if name in names)
    own = logs_of(home.pool) / f"{name}.out"
    return own if own.exists() else own.with_name(f"{next(shared, name)}.out")
