"""Cancel the jobs of an experiment, array element by array element, and leave alone what another experiment wants.

An experiment's jobs are those it has submitted, of an earlier plan too, those that hold one of its trainings, whoever
submitted them, and scripts of it that a person submitted. Two experiments may share a training: while the other one
has jobs in the queue, the training they share is its own as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from slurm import jobs, queue
from slurm.queue import Entry
from slurm.sbatch import SINGLE
from sweep.errors import Refused
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home, descriptions
from sweep.graph.plan import graph_of
from sweep.progress import console


@dataclass(frozen=True)
class Element:
    """A job or an array element that waits or runs, and the trainings it carries (masks, report and rest: none)."""

    number: str
    part: str
    trainings: tuple[str, ...] = ()
    earlier: bool = False  # submitted by the experiment, which asks for none of its trainings any more

    @property
    def words(self) -> list[str]:
        """Return the trainings without their hashes, or the name of a job that trains nothing."""
        return [name.rpartition("-")[0] or name for name in self.trainings] or [self.part]


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled, and what was left alone: by the name of the experiment that still wants it."""

    gone: list[str] = field(default_factory=list)
    left: dict[str, list[str]] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)  # named by a person, but in one element with others that were not


def cancel(home: Home, only: Collection[str] = (), earlier: bool = False, everything: bool = False) -> Cancelled:
    """Cancel the jobs of an experiment that wait or run.

    `only`: these tasks. `earlier`: only trainings of an earlier plan, which the experiment no longer asks for.
    `everything`: also trainings that another experiment under way wants.
    """
    listed = queue.listing()
    names = {home.training(task).name for task in only}
    others = {} if everything else wanted_by_others(home, listed)
    out, numbers = Cancelled(), []
    for element in live_elements(home, listed):
        if earlier and not element.earlier:
            continue
        if names and not names & set(element.trainings):
            continue
        done = {name for name in element.trainings if (home.pool / "trainings" / name / "result.json").exists()}
        if names and not set(element.trainings) - done <= names:
            out.shared.extend(element.words)
            continue
        claimants = [name for name, wanted in others.items() if wanted & set(element.trainings)]
        for name in claimants:
            out.left.setdefault(name, []).extend(element.words)
        if not claimants:
            numbers.append(element.number)
            out.gone.extend(element.words)
    queue.cancel(numbers)
    return out


def live_elements(home: Home, listed: Collection[Entry]) -> Iterator[Element]:
    """Yield what waits or runs of this experiment, whoever submitted it and whichever plan it was of."""
    asked = {training.name for training in home.graph}
    live = {one.job for one in listed if one.live and one.state != "COMPLETING"}  # those have ended, or been cancelled
    for job in (*jobs.submitted(home), *jobs.by_hand(home, listed)):
        own = job.experiment == home.root.name
        if own and (job.part in SINGLE or not job.tasks) and job.id in map(queue.parent_of, live):
            yield Element(job.id, job.part)
        for number, names in job.numbers.items():
            if number in live and (own or asked & set(names)):
                yield Element(number, job.part, names, own and not asked & set(names))


def earlier_plan(home: Home) -> list[str]:
    """Return what still waits or runs of an earlier plan of this experiment."""
    return [word for one in live_elements(home, queue.listing()) if one.earlier for word in one.words]


def wanted_by_others(home: Home, listed: Collection[Entry]) -> dict[str, set[str]]:
    """Return, for every other experiment of this results root with jobs in the queue, the trainings it asks for.

    Where its file cannot be read, these are all that it has submitted itself.
    """
    out: dict[str, set[str]] = {}
    for described in descriptions(home.pool):
        name, folder = described.parent.name, described.parent.resolve()
        if folder == home.root.resolve() or not queue.under(folder / "slurm", listed):
            continue
        try:
            out[name] = {training.name for training in graph_of(experiment_file.load(described))}
        except Refused as error:
            console.print(f"{error}; all that it has submitted is left alone")
            out[name] = {task for job in jobs.submitted(home) if job.experiment == name for task in job.tasks}
    return out
