"""The common face of the places where a sweep runs."""

from __future__ import annotations

from typing import Protocol

from sweep.store import Store
from sweep.worker import Failure


class Backend(Protocol):
    """Does everything of an experiment that is missing."""

    def run(self, home: Store) -> list[Failure]:
        """Returns what failed. A task that fails does not stop those that do not need it."""
        ...
