"""Which run of a training another one came from.

A name says what is trained, not which run of it: trained a second time on another GPU, it ends with other weights. So
result.json has `run`, a hash of its own final weights, and `runs`, those of the trainings it came from. Where one of
these was trained again and came out different, what the first run led to is not shown beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from models import Weights
from sweep import files
from sweep.errors import Refused
from sweep.graph.snapshot_file import read_weights
from sweep.graph.training import Task

RUNS: files.Shape = {"run?": str, "runs?": {}, "fingerprint?": str}


def run_of(weights: Weights) -> str:
    """Return the digest that identifies a run: that of its final kernels, which a mask keeps too."""
    return hashlib.sha256(weights.kernels.tobytes()).hexdigest()


@cache
def _run_of_file(path: Path, changed: int) -> str:
    return run_of(read_weights(path)[1])


class Runs:
    """Which runs of the trainings of a pool are there now; each is looked at once."""

    def __init__(self, pool: Path) -> None:
        self.pool = pool
        self._records: dict[str, dict[str, Any] | None] = {}
        self._there: dict[str, str | None] = {}
        self._replaced: dict[str, str] = {}

    def there(self, name: str) -> str | None:
        """Return the run of a training that is there; None where it is not done, or nothing says which run it was."""
        if name not in self._there:
            record, final = self.record(name), self.pool / "trainings" / name / "snapshots" / "final.h5"
            run = record.get("run") if record else None
            if record and run is None and final.exists():  # recorded before runs were
                run = _run_of_file(final, final.stat().st_mtime_ns)
            self._there[name] = run
        return self._there[name]

    def before(self, training: Task) -> dict[str, str]:
        """Return the runs of the trainings that a training comes from, by name."""
        found = {parent.name: self.there(parent.name) for parent in training.needs}
        return {name: run for name, run in found.items() if run}

    def origins(self, training: Task) -> dict[str, str]:
        """Return the runs a training comes from, by name. Refuse where one is not done, or came from a lost run."""
        for parent in training.needs:
            if not self.record(parent.name):
                said = f"{parent.slug}: is not done, and {training.slug} starts from it; lottery sweep does both"
                raise Refused(said)
        self.refuse_replaced(*training.needs)
        return self.before(training)

    def other(self, record: Mapping[str, Any]) -> str:
        """The first training of whose other run a record is; empty: none."""
        runs = record.get("runs") or {}
        return next((name for name, run in runs.items() if self.there(name) not in (None, run)), "")

    def replaced(self, training: Task) -> str:
        """The training that was replaced since it, or something it came from, was trained; empty: none."""
        waiting = [training]
        while waiting:  # of a thousand rounds each comes from the one before
            one = waiting[-1]
            if unknown := [need for need in one.needs if need.name not in self._replaced]:
                waiting += unknown
                continue
            own = self.other({"runs": self.recorded(one.name)})
            before = (self._replaced[need.name] for need in one.needs)
            self._replaced[one.name] = own or next(filter(None, before), "")
            waiting.pop()
        return self._replaced[training.name]

    def refuse_replaced(self, *trainings: Task) -> None:
        """The first of these that came from a run that is no longer there."""
        for training in trainings:
            if not (parent := self.replaced(training)):
                continue
            raise Refused(f"{self.pool / 'trainings' / training.name}: came from another run of {parent} than the one "
                          "there; put that one back, or lottery tidy --replaced --delete and run again")  # fmt: skip

    def record(self, name: str) -> dict[str, Any] | None:
        """Return what result.json of a training says; None where it is not done."""
        if name not in self._records:
            self._records[name] = files.read_json_if_there(self.pool / "trainings" / name / "result.json", RUNS)
        return self._records[name]

    def recorded(self, name: str) -> dict[str, str]:
        """Return the runs a training came from, as its result says or, where it is not finished, its beginning."""
        begun = self.pool / "trainings" / name / "training.json"
        record = self.record(name) or files.read_json_if_there(begun, RUNS) or {}
        return record.get("runs") or {}
