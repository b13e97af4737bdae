"""Made-up experiments and results folders: what trainings would leave, without training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from models import Network, Weights, build
from sweep import files
from sweep.errors import Refused
from sweep.experiment import Data, Experiment, Model, Point, Prune, Recipe, check
from sweep.graph.home import Home, snapshot_at


def experiment(name: str = "small", data: Data | None = None, seeds: tuple[int, ...] = (0,), **prune) -> Experiment:
    """Four epochs, two quantiles, rewound to 0 and 2 epochs, unless `prune` says otherwise."""
    prune = {"quantiles": (0.5, 0.9), "rewind": points(0, 2)} | prune
    recipe = Recipe(epochs=4, batch=8)
    made = Experiment(name, Model("mobilenet_v2_small", 0.35), data or Data("digits"), recipe, Prune(**prune), seeds)
    check(made)
    return made


def points(*epochs: int) -> tuple[Point, ...]:
    return tuple(Point(epoch, "ep") for epoch in epochs)


def tickets(home: Home) -> list[str]:
    """The tasks that prune, in the order of the plan."""
    return [training.slug for training in home.graph if training.mask]


def dense(home: Home, seed: int = 0) -> Path:
    """The folder of a dense run."""
    return home.folder_of(f"dense-seed{seed}")


@cache
def network() -> Network:
    return build("mobilenet_v2_small", image_size=8, channels=1, classes=10, width=0.35)


STEPS = 100  # of a made-up epoch


def write_snapshot(home: Home, weights: Weights, epoch: int | None, seed: int = 0) -> Path:
    """A snapshot as the dense run leaves it; `epoch` None: the final one."""
    folder = dense(home, seed)
    path = folder / "snapshots" / "final.h5" if epoch is None else snapshot_at(folder, STEPS * epoch)
    shape = {"image_size": 8, "channels": 1, "classes": 10, "width": 0.35}
    files.write_snapshot(path, network(), weights, {"step": STEPS * (epoch or 0), **shape})
    return path


def finish(home: Home, task: str, top1: float, **more) -> Path:
    """The result.json of a training."""
    folder = home.folder_of(task)
    scores = {"top1": top1, "top5": 0.99, "loss": 0.25}
    result = {"test": scores, "validation": {"top1": top1 - 0.01}, "epochs": 4, "seconds": 12.5, "devices": 1}
    files.write_json(folder / "result.json", result | {"hardware": "CPU", "steps_per_epoch": STEPS} | more)
    return folder


def fail(home: Home, task: str, reason: str) -> Path:
    folder = home.folder_of(task)
    files.write_json(folder / "failure.json", {"task": task, "reason": reason, "traceback": ""})
    return folder


def epochs(folder: Path, count: int, seconds: float = 2.0, **more) -> None:
    """The metrics of `count` epochs, each of `seconds` with half a second of evaluation."""
    for epoch in range(1, count + 1):
        files.append_metrics(folder, {"epoch": epoch, "seconds": seconds, "evaluation_seconds": 0.5} | more)


def refusal(call: Callable[[], object]) -> str:
    """The one line with which `call` refuses."""
    with pytest.raises(Refused) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def content(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with what changes when it is written."""
    return {name: ((folder / name).stat().st_ino, (folder / name).stat().st_mtime_ns) for name in files_under(folder)}
