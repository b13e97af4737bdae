"""The common face of the places where a sweep runs."""

from __future__ import annotations

from typing import Protocol

from sweep.progress import console, duration
from sweep.store import Store
from sweep.worker import Failure, Stage


class Backend(Protocol):
    """Does everything of an experiment that is missing."""

    def run(self, home: Store) -> list[Failure]:
        """Returns what failed. A task that fails does not stop those that do not need it."""
        ...


def say(number: int, stage: Stage, task: str, failure: Failure | None, seconds: float) -> None:
    """One line for a task that ended."""
    end = f"FAILED: {failure.reason}" if failure else f"done in {duration(seconds)}"
    console.print(f"[{number}/{len(stage.tasks)}] {task} {end}")
