"""The common face of the places where a sweep runs, and the order in which they take up its trainings."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Protocol

from sweep.graph.home import Home
from sweep.graph.state import missing
from sweep.progress import console, duration
from sweep.work.worker import Failure

AGAIN_SECONDS = 2.0  # until a training that another process has is asked for again


class Backend(Protocol):
    """Does everything of an experiment that is missing."""

    def run(self, home: Home) -> list[Failure]:
        """Returns what failed. A task that fails does not stop those that do not need it."""
        ...


class Ready:
    """The missing trainings of an experiment (`only`: of these tasks), handed out as soon as all they need is done."""

    def __init__(self, home: Home, only: Collection[str] | None = None) -> None:
        self.home = home
        self.waiting = {one.name: one for one in missing(home) if only is None or one.slug in only}
        self._after = {name: {need.name for need in home.waits_for(one)} for name, one in self.waiting.items()}
        self.total = len(self.waiting)
        self.failures: list[Failure] = []
        self._given: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._broken: set[str] = set()

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
    def left(self) -> bool:
        return bool(self.waiting)

    @property
    def ended(self) -> int:
        return self.total - len(self.waiting)

    def again(self, task: str) -> None:
        """Another process has it, or its own died: it is handed out once more, a little later."""
        name = self.home.training(task).name
        self._given.discard(name)
        self._not_before[name] = time.monotonic() + AGAIN_SECONDS

    def end(self, task: str, failure: Failure | None) -> None:
        """Of a task that was handed out. What needs one that failed is not to come, but from a point it has."""
        name = self.home.training(task).name
        del self.waiting[name]
        if failure:
            self.failures.append(failure)
            self._drop({name})

    def _drop(self, names: set[str]) -> None:
        for training in list(self.waiting.values()):  # in the order of the plan: parents come first
            if any(need.name in names for need in self.home.waits_for(training)):
                names.add(training.name)
                del self.waiting[training.name]


def say(number: int, total: int, task: str, failure: Failure | None, seconds: float) -> None:
    """One line for a task that ended."""
    end = f"FAILED: {failure.reason}" if failure else f"done in {duration(seconds)}"
    console.print(f"[{number}/{total}] {task} {end}")
