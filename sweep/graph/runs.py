"""Which run of a training another one came from.

A name says what is trained, not which run of it: trained a second time on a GPU, it ends with other weights. So
result.json has `run`, a hash of its own final weights, and `runs`, those of the trainings it came from. Where one of
these was trained again and came out different, what the first run led to is not shown beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models import Weights
from sweep import files
from sweep.errors import Refused
from sweep.graph.home import RESULT, Home
from sweep.graph.training import Training


def run_of(weights: Weights) -> str:
    """The same as a mask keeps of the weights it was taken from."""
    return hashlib.sha256(weights.kernels.tobytes()).hexdigest()


def runs_of(home: Home, training: Training) -> dict[str, str]:
    """Of the trainings it comes from, by their names, as they lie there now."""
    found = {parent.name: run_there(home.pool, parent.name) for parent in training.needs}
    return {name: run for name, run in found.items() if run}


def run_there(pool: Path, name: str) -> str | None:
    """None where it is not done, or was recorded before runs were."""
    result = files.read_json_if_there(pool / "trainings" / name / "result.json", RESULT)
    return result.get("run") if result else None


def of_another_run(result: Mapping[str, Any], run: Callable[[str], str | None]) -> str:
    """The first training of which a result came from another run than is there; empty: none."""
    return next((name for name, first in (result.get("runs") or {}).items() if run(name) not in (None, first)), "")


def refuse_other_runs(folder: Path, result: Mapping[str, Any], run: Callable[[str], str | None]) -> None:
    if parent := of_another_run(result, run):
        raise Refused(f"{folder}: came from another run of {parent} than the one there; put that one back, or delete "
                      "what came from it (lottery tidy lists it) and run again")  # fmt: skip
