"""Where every task of a sweep stands, from its files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sweep import claim, store
from sweep.plan import cells, epochs_of
from sweep.store import Store
from sweep.worker import dense_task, folder_of


@dataclass(frozen=True)
class State:
    """`waiting`, `begun` (not finished, and not known to run), `running`, `failed` or `done`; on SLURM also `lost`:
    submitted, not finished, and no longer there."""

    task: str
    state: str
    epoch: int  # epochs of the schedule that are complete
    note: str = ""  # of a failure: its reason; of a running task: where
    top1: float | None = None  # of a finished training, on the test split
    starts: int = 0
    seconds_left: float | None = None  # of a begun training, at the speed it had


def state_of(task: str, folder: Path, epochs: int) -> State:
    """`epochs`: of the whole schedule."""
    if not folder.exists():
        return State(task, "waiting", 0)
    lines = store.read_metrics(folder)
    epoch = lines[-1]["epoch"] if lines else 0
    begun = claim.read(folder)
    starts = begun.starts if begun else 0
    if (folder / "result.json").exists():
        return State(task, "done", epoch, top1=store.read_json(folder / "result.json")["test"]["top1"], starts=starts)
    if (folder / "failure.json").exists():
        return State(task, "failed", epoch, store.read_json(folder / "failure.json")["reason"], starts=starts)
    left = (epochs - epoch) * _median_seconds(lines) if lines else None
    if begun and claim.works(begun):
        return State(task, "running", epoch, f"process {begun.pid} on {begun.host}", None, starts, left)
    if begun or (folder / "checkpoint.h5").exists():
        return State(task, "begun", epoch, f"on {begun.host}" if begun else "", None, starts, left)
    return State(task, "waiting", epoch)


def states(home: Store) -> list[State]:
    """Of every dense run and every cell, in the order of the plan."""
    tasks = [dense_task(seed) for seed in home.experiment.seeds] + [cell.slug for cell in cells(home.experiment)]
    return [state_of(task, folder_of(home, task), home.experiment.recipe.epochs) for task in tasks]


def epoch_seconds(home: Store) -> float | None:
    """Median time of an epoch of the dense run, evaluation included; None before it was measured."""
    lines = [line for seed in home.experiment.seeds for line in store.read_metrics(home.dense(seed))]
    return _median_seconds(lines) if lines else None


def _median_seconds(lines: list[dict[str, Any]]) -> float:
    return median(line["seconds"] + line["evaluation_seconds"] for line in lines)


def predicted_seconds(home: Store, devices: int = 0) -> dict[str, float] | None:
    """Time of each cell from the dense run's epochs, on as many devices as that had; or scaled to `devices`."""
    each = epoch_seconds(home)
    if each is None:
        return None
    if devices:
        each *= max(1.0, _dense_devices(home) / devices)
    return {cell.slug: each * epochs_of(cell, home.experiment) for cell in cells(home.experiment)}


def _dense_devices(home: Store) -> int:
    results = [home.dense(seed) / "result.json" for seed in home.experiment.seeds]
    return max((store.read_json(path)["devices"] for path in results if path.exists()), default=1)
