"""The common face of the places where a sweep runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sweep.store import Store


@dataclass(frozen=True)
class Failure:
    task: str
    reason: str


class Backend(Protocol):
    """Does everything of an experiment that is missing."""

    def run(self, home: Store) -> list[Failure]:
        """Returns what failed. A task that fails does not stop those that do not need it."""
        ...
