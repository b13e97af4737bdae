"""Runs: which of several runs of a training another one came from.

A name says what is trained, not which run it was: done again on another GPU, a training ends with other weights. So
result.json has `run`, a hash of its final weights, and `runs`, those of the trainings it came from. If one of these was
trained again with another result, trainings that came from the first run are not shown beside it.
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
    """Return the digest that identifies a run: the SHA-256 of its final kernels."""
    return hashlib.sha256(weights.kernels.tobytes()).hexdigest()


@cache
def _run_of_file(path: Path, changed: int) -> str:
    return run_of(read_weights(path)[1])


class Runs:
    """The runs of the trainings that are in a pool now; each file is read once."""

    def __init__(self, pool: Path) -> None:
        self.pool = pool
        self.record, self.there = cache(self._record), cache(self._run)
        self._replaced: dict[str, str] = {}

    def _run(self, name: str) -> str | None:
        """Return the run of a training in the pool; None if it is not done, or its run is unknown."""
        record, final = self.record(name), self.pool / "trainings" / name / "snapshots" / "final.h5"
        run = record.get("run") if record else None
        if record and run is None and final.exists():  # written by a version that did not record runs
            run = _run_of_file(final, final.stat().st_mtime_ns)
        return run

    def before(self, training: Task) -> dict[str, str]:
        """Return the runs of the trainings that a training comes from, by name."""
        found = {parent.name: self.there(parent.name) for parent in training.needs}
        return {name: run for name, run in found.items() if run}

    def origins(self, training: Task) -> dict[str, str]:
        """Return the runs a training comes from, by name; raise Refused if one is not done or came from a lost run."""
        for parent in training.needs:
            if not self.record(parent.name):
                said = f"{parent.slug}: is not done, and {training.slug} starts from it; lottery sweep does both"
                raise Refused(said)
        self.refuse_replaced(*training.needs)
        return self.before(training)

    def other(self, runs: Mapping[str, str]) -> str:
        """Return the first training whose run in the pool is not the one in `runs`, or ""."""
        return next((name for name, run in runs.items() if self.there(name) not in (None, run)), "")

    def replaced(self, training: Task) -> str:
        """Return the training that was replaced by another run after `training` or its ancestors used it, or ""."""
        waiting = [training]
        while waiting:  # no recursion: a chain may have a thousand rounds
            one = waiting[-1]
            if unknown := [need for need in one.needs if need.name not in self._replaced]:
                waiting += unknown
                continue
            own = self.other(self.recorded(one.name))
            before = (self._replaced[need.name] for need in one.needs)
            self._replaced[one.name] = own or next(filter(None, before), "")
            waiting.pop()
        return self._replaced[training.name]

    def refuse_replaced(self, *trainings: Task) -> None:
        """Raise Refused if one of the trainings came from a run that is no longer in the pool."""
        for training in trainings:
            if parent := self.replaced(training):
                folder = self.pool / "trainings" / training.name
                raise Refused(f"{folder}: came from another run of {parent} than the one there; put that one back, or "
                              "lottery tidy --replaced --delete and run again")  # fmt: skip

    def _record(self, name: str) -> dict[str, Any] | None:
        """Return the content of result.json of a training, or None if it is not done."""
        return files.read_json_if_there(self.pool / "trainings" / name / "result.json", RUNS)

    def recorded(self, name: str) -> dict[str, str]:
        """Return the runs a training came from, from its result or, before it is finished, from training.json."""
        begun = self.pool / "trainings" / name / "training.json"
        record = self.record(name) or files.read_json_if_there(begun, RUNS) or {}
        return record.get("runs") or {}
