"""Where every task of a sweep stands, from its files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sweep import store
from sweep.plan import cells, epochs_of
from sweep.store import Store
from sweep.worker import dense_task, folder_of


@dataclass(frozen=True)
class State:
    """`waiting`, `begun` (has results of some epochs, not of all), `failed` or `done`."""

    task: str
    state: str
    epoch: int  # epochs of the schedule that are complete
    note: str = ""  # of a failure: its reason
    top1: float | None = None  # of a finished training, on the test split


def state_of(task: str, folder: Path) -> State:
    lines = store.read_metrics(folder)
    epoch = lines[-1]["epoch"] if lines else 0
    if (folder / "result.json").exists():
        return State(task, "done", epoch, top1=store.read_json(folder / "result.json")["test"]["top1"])
    if (folder / "failure.json").exists():
        return State(task, "failed", epoch, store.read_json(folder / "failure.json")["reason"])
    return State(task, "begun" if (folder / "checkpoint.h5").exists() else "waiting", epoch)


def states(home: Store) -> list[State]:
    """Of every dense run and every cell, in the order of the plan."""
    tasks = [dense_task(seed) for seed in home.experiment.seeds] + [cell.slug for cell in cells(home.experiment)]
    return [state_of(task, folder_of(home, task)) for task in tasks]


def epoch_seconds(home: Store) -> float | None:
    """Median time of an epoch of the dense run, evaluation included; None before it was measured."""
    lines = [line for seed in home.experiment.seeds for line in store.read_metrics(home.dense(seed))]
    return median(line["seconds"] + line["evaluation_seconds"] for line in lines) if lines else None


def predicted_seconds(home: Store) -> dict[str, float] | None:
    """Time of each cell on one device like the dense run's, from the dense run's epochs."""
    each = epoch_seconds(home)
    if each is None:
        return None
    return {cell.slug: each * epochs_of(cell, home.experiment) for cell in cells(home.experiment)}
