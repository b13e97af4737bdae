"""Cancelling the jobs of an experiment, array element by array element, except what another experiment needs.

An experiment's jobs are those it has submitted, also for an earlier plan, those that hold one of its trainings, and its
scripts submitted by hand. If another experiment with jobs in the queue needs a training too, it is kept.
"""

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
    """A live job or array element and the trainings it carries (none for masks, report and rest)."""

    number: str
    part: str
    trainings: tuple[str, ...] = ()
    earlier: bool = False  # whether it has only trainings that the experiment no longer asks for

    @property
    def words(self) -> list[str]:
        """Return the trainings without their hashes, or the name of a job that trains nothing."""
        return [name.rpartition("-")[0] or name for name in self.trainings] or [self.part]


@dataclass(frozen=True)
class Cancelled:
    """The tasks that were cancelled, and those that were kept, by the name of the experiment that needs them."""

    gone: list[str] = field(default_factory=list)
    left: dict[str, list[str]] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)  # requested, but in one array element with others that were not


def cancel(home: Home, only: Collection[str] = (), earlier: bool = False, everything: bool = False) -> Cancelled:
    """Cancel the live jobs of an experiment.

    `only`: these tasks. `earlier`: only trainings of an earlier plan. `everything`: also trainings that another
    experiment with live jobs needs.
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
    """Yield the live jobs and array elements of this experiment, of any plan and submitted by anyone."""
    asked = {training.name for training in home.graph}
    live = {one.job for one in listed if one.live and one.state != "COMPLETING"}  # COMPLETING: ended or cancelled
    for job in (*jobs.submitted(home), *jobs.by_hand(home, listed)):
        own = job.experiment == home.root.name
        if own and (job.part in SINGLE or not job.tasks) and job.id in map(queue.parent_of, live):
            yield Element(job.id, job.part)
        for number, names in job.numbers.items():
            if number in live and (own or asked & set(names)):
                yield Element(number, job.part, names, own and not asked & set(names))


def earlier_plan(home: Home) -> list[str]:
    """Return the live tasks of an earlier plan of this experiment."""
    return [word for one in live_elements(home, queue.listing()) if one.earlier for word in one.words]


def wanted_by_others(home: Home, listed: Collection[Entry]) -> dict[str, set[str]]:
    """Return the trainings of every other experiment in this pool with live jobs, by its name.

    If its file cannot be read, these are all trainings that it has submitted.
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
