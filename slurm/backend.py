"""The interface of all backends, and the order in which they start trainings."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.state import epochs_left, missing
from sweep.progress import Work, console, duration
from sweep.work.worker import Failure

AGAIN_SECONDS = 2.0  # wait before trying again a training that another process has
LOOK_SECONDS = 5.0  # time between two looks at the progress of running trainings


class Backend(Protocol):
    """A place that does everything of an experiment that is missing."""

    def run(self, home: Home) -> list[Failure]:
        """Do what is missing and return the failures. A failed task does not stop tasks that do not need it."""
        ...


class Ready:
    """The queue of missing trainings (or of `only` these tasks); each is handed out once all it needs is done."""

    def __init__(self, home: Home, only: Collection[str] | None = None, quiet: bool = True) -> None:
        self.home, self.quiet = home, quiet
        self.waiting = {one.slug: one for one in missing(home) if only is None or one.slug in only}
        self._after = {task: {need.slug for need in home.waits_for(one)} for task, one in self.waiting.items()}
        self.total = len(self.waiting)
        self._lacking, begun = home.missing_points(), home.folders()
        self._epochs = {
            task: self._left(task) if one.name in begun else one.epochs for task, one in self.waiting.items()
        }
        self.failures: list[Failure] = []
        self._given: dict[str, float] = {}  # trainings handed out, and when
        self._said: set[str] = set()  # trainings already reported as busy
        self._not_before: dict[str, float] = {}

    def next(self) -> str | None:
        """Return a task that can be started now, or None if all that are left wait for others."""
        now = time.monotonic()
        for task in self.waiting:
            free = task not in self._given and self._not_before.get(task, 0.0) <= now
            if free and not any(need in self.waiting for need in self._after[task]):
                self._given[task] = now
                return task
        return None

    @property
    def epochs(self) -> float:
        """Return the total work in epochs; each training counts one more, for its start and end."""
        return sum(epochs + 1 for epochs in self._epochs.values())

    @property
    def trained(self) -> float:
        """Return how much of `epochs` is done."""
        left = (self._left(task) if task in self._given else self._epochs[task] for task in self.waiting)
        return self.epochs - sum(left) - len(self.waiting)

    def _left(self, task: str) -> float:
        training = self.waiting[task]
        lacking = self._lacking.get(training.name, ())
        try:
            if self._skipped(task):  # done, but nothing was trained
                return training.epochs
            return epochs_left(self.home, training, lacking) if lacking or not self.home.done(training) else 0.0
        except (Refused, OSError, ArithmeticError):  # damaged file: reported when the training starts;
            return training.epochs  # the others continue

    def _skipped(self, task: str) -> str:
        """Return why a training was skipped (a layer is fully pruned), or ""."""
        try:
            return self.home.skipped(self.waiting[task])
        except (Refused, OSError):  # damaged file: reported when the training starts
            return ""

    def again(self, task: str, why: str = "") -> None:
        """Hand a task out again a little later: its process died, or another process has it (`why`, printed once)."""
        if why and task not in self._said:
            self._said.add(task)
            console.print(f"{why}; waiting for it")
        self._given.pop(task, None)
        self._not_before[task] = time.monotonic() + AGAIN_SECONDS

    def end(self, task: str, failure: Failure | None, seconds: float | None = None) -> None:
        """Remove an ended task from the queue and print its outcome; if it failed, drop the tasks that wait for it.

        `seconds`: the time it took; None: since it was handed out.
        """
        seconds = time.monotonic() - self._given[task] if seconds is None else seconds
        skipped = self._skipped(task)
        if failure or skipped:  # the rest of its epochs will not be trained
            self._epochs[task] -= min(self._left(task), self._epochs[task])
        del self.waiting[task]
        if failure:
            self.failures.append(failure)
            self._drop({task})
        if not self.quiet:
            said = f"skipped: {skipped}" if skipped else f"done in {duration(seconds)}"
            said = f"FAILED: {failure.reason}" if failure else said
            console.print(f"[{self.total - len(self.waiting)}/{self.total}] {task} {said}")

    @contextmanager
    def watched(self) -> Iterator[Course]:
        """Yield the progress display of the whole sweep."""
        label = f"{self.total} trainings of {self.home.experiment.name}"
        with Work(label, max(self.epochs, 1), quiet=self.quiet) as work:
            yield Course(self, work)

    def _drop(self, tasks: set[str]) -> None:
        for task, training in list(self.waiting.items()):  # in the order of the plan: parents before children
            if any(need.slug in tasks for need in self.home.waits_for(training)):
                tasks.add(task)
                del self.waiting[task], self._epochs[task]


class Course:
    """The progress of a sweep as it is displayed.

    Parallel trainings end their epochs in bursts. So progress is updated when a burst is over: nothing has changed
    since the last look, or every running training has advanced once. The time left is estimated anew when more
    trainings run than ever before: one dense run has another speed than many tickets.
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
