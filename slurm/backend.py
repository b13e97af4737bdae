"""The common face of the places where a sweep runs, and the order in which they take up its trainings."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.state import epochs_left, folders, missing
from sweep.progress import Work, console, duration
from sweep.work.worker import Failure

AGAIN_SECONDS = 2.0  # until a training that another process has is asked for again
LOOK_SECONDS = 5.0  # between two looks at how far the trainings under way are


class Backend(Protocol):
    """Does everything of an experiment that is missing."""

    def run(self, home: Home) -> list[Failure]:
        """Returns what failed. A task that fails does not stop those that do not need it."""
        ...


class Ready:
    """The missing trainings of an experiment (`only`: of these tasks), handed out as soon as all they need is done."""

    def __init__(self, home: Home, only: Collection[str] | None = None, quiet: bool = True) -> None:
        self.home, self.quiet = home, quiet
        self.waiting = {one.name: one for one in missing(home) if only is None or one.slug in only}
        self._after = {name: {need.name for need in home.waits_for(one)} for name, one in self.waiting.items()}
        self.total = len(self.waiting)
        self._lacking = home.missing_points()
        begun = folders(home)
        self._epochs = {name: self._left(name) if name in begun else one.epochs for name, one in self.waiting.items()}
        self.failures: list[Failure] = []
        self._given: set[str] = set()
        self._said: set[str] = set()  # trainings of which was said that another process has them
        self._not_before: dict[str, float] = {}

    def next(self) -> str | None:
        """A task that can be done now; None where all that are left wait for others."""
        now = time.monotonic()
        for name, training in self.waiting.items():
            free = name not in self._given and self._not_before.get(name, 0.0) <= now
            if free and not any(need in self.waiting for need in self._after[name]):
                self._given.add(name)
                return training.slug
        return None

    @property
    def epochs(self) -> float:
        """All that there is to train; each training counts one more, for its start and its end."""
        return sum(epochs + 1 for epochs in self._epochs.values())

    @property
    def trained(self) -> float:
        """What of `epochs` is behind us."""
        left = (self._left(name) if name in self._given else self._epochs[name] for name in self.waiting)
        return self.epochs - sum(left) - len(self.waiting)

    def _left(self, name: str) -> float:
        training, lacking = self.waiting[name], self._lacking.get(name, ())
        try:
            if self._skipped(name):  # it counts as done, but nothing was trained
                return training.epochs
            return epochs_left(self.home, training, lacking) if lacking or not self.home.done(training) else 0.0
        except (Refused, OSError, ArithmeticError):  # a damaged file or disk: said by who takes the training up,
            return training.epochs  # which is no reason to leave the others

    def _skipped(self, name: str) -> str:
        """Return why a training was skipped: a layer is fully pruned; empty where it was not."""
        try:
            return self.home.skipped(self.waiting[name])
        except (Refused, OSError):  # as above
            return ""

    def again(self, task: str, why: str = "") -> None:
        """Hand a task out once more, a little later: its process died, or another one has it. `why` is said once."""
        name = self.home.training(task).name
        if why and name not in self._said:
            self._said.add(name)
            console.print(f"{why}; waiting for it")
        self._given.discard(name)
        self._not_before[name] = time.monotonic() + AGAIN_SECONDS

    def end(self, task: str, failure: Failure | None, seconds: float = 0.0) -> None:
        """Take a task that was handed out as ended, and say so. What needs one that failed is not to come, but from a
        point it has."""
        name = self.home.training(task).name
        skipped = self._skipped(name)
        if failure or skipped:  # what it did not train is not to come
            self._epochs[name] -= min(self._left(name), self._epochs[name])
        del self.waiting[name]
        if failure:
            self.failures.append(failure)
            self._drop({name})
        if not self.quiet:
            said = f"skipped: {skipped}" if skipped else f"done in {duration(seconds)}"
            said = f"FAILED: {failure.reason}" if failure else said
            console.print(f"[{self.total - len(self.waiting)}/{self.total}] {task} {said}")

    @contextmanager
    def watched(self) -> Iterator[Course]:
        """Yield what tells how far all of it is, until it has ended."""
        label = f"{self.total} trainings of {self.home.experiment.name}"
        with Work(label, max(self.epochs, 1), quiet=self.quiet) as work:
            yield Course(self, work)

    def _drop(self, names: set[str]) -> None:
        for training in list(self.waiting.values()):  # in the order of the plan: parents come first
            if any(need.name in names for need in self.home.waits_for(training)):
                names.add(training.name)
                del self.waiting[training.name], self._epochs[training.name]


class Course:
    """How far a sweep is, told to its watcher.

    Trainings side by side end their epochs in bursts. So it is told when one is over: nothing has moved since the last
    look, or every training under way has moved once. The time left is reckoned anew when more trainings are under way
    than ever before: the speed of the one dense run is not that of many tickets.
    """

    def __init__(self, ready: Ready, work: Work) -> None:
        self.ready, self.work = ready, work
        self.looked, self.most = time.monotonic(), 0
        self.seen = self.told = ready.trained

    def look(self, under_way: int) -> None:
        more = under_way > self.most
        if not more and time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self.looked, trained = time.monotonic(), self.ready.trained
        burst = trained > self.told and (trained == self.seen or trained - self.told >= under_way)
        self.seen, self.work.total = trained, self.ready.epochs
        if more:
            self.most, self.told = under_way, trained
            self.work.start_clock()
        elif burst:
            self.told = trained
            self.work.at(trained)
