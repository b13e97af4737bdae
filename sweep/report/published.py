"""Published curves for the same network, data and recipe, to be drawn beside ours with their spread.

renda2020_rewinding.csv: Renda, Frankle and Carbin 2020, one-shot pruning of ResNets on CIFAR-10, median, least and
greatest of three trials.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sweep.experiment import Data, Experiment, Point, Recipe, identity
from sweep.graph.results import Row
from sweep.pruning.compare import SAME

FILE = Path(__file__).with_name("renda2020_rewinding.csv")
TRIALS = "Renda, Frankle and Carbin 2020, one-shot pruning, median and range of three trials"
# rewinding-iclr20-public, cifar10_main.py; what is compared below is the recipe of our files, which has these otherwise
OTHERWISE = "their code has weight decay 2e-4 on all weights, plain momentum, and standardises each image by itself"
SOURCE = f"{TRIALS.replace('pruning', 'weight rewinding')}; {OTHERWISE}"
NETWORKS = ("resnet20", "resnet56")
RECIPE = Recipe(
    epochs=182, batch=128, learning_rate=0.1, nesterov=True, schedule="step", milestones=(91, 136), weight_decay=1e-4
)
DATA = Data("cifar10", pad=4, flip=True)
FREE = ("precision", "norm_images")  # what rounding and devices may change
METHOD = "magnitude"  # over all kernels together
METHODS = {"ticket": "weight-rewind", "lr_rewind": "lr-rewind", "finetune": "fine-tune", "fresh": "random-reinit"}


@dataclass(frozen=True)
class Published:
    rewind_epoch: int
    density: float
    median: float
    least: float
    greatest: float


def published(experiment: Experiment) -> list[Published]:
    """Weight rewinding of this network on this data, at the published rewind epochs nearest to ours; or nothing."""
    if not _theirs(experiment) or differences(experiment):
        return []
    there = _read(experiment.model.name, METHODS["ticket"])
    wanted = {min((one.rewind_epoch for one in there), key=lambda k: abs(k - ours)) for ours in _epochs(experiment)}
    return [one for one in there if one.rewind_epoch in wanted]


@dataclass(frozen=True)
class Beside:
    """A published figure and ours."""

    kind: str
    density: float
    rewind: str
    ours: list[float]  # of every seed
    published: Published

    @property
    def deviation(self) -> float:
        return median(self.ours) - self.published.median

    @property
    def inside(self) -> bool:
        return self.published.least <= round(median(self.ours), 4) <= self.published.greatest


def beside(experiment: Experiment, rows: Iterable[Row]) -> list[Beside]:
    """Every kind of one-shot training that was published too; nothing where the recipe is another."""
    if not _theirs(experiment) or differences(experiment):
        return []
    groups: dict[tuple[str, float, str], list[float]] = {}
    for row in rows:
        if (
            row.kind in METHODS
            and row.round == 1
            and row.method == METHOD
            and row.density
            and row.test_top1 is not None
        ):
            groups.setdefault((row.kind, row.density, row.rewind), []).append(row.test_top1)
    out = []
    for (kind, density, rewind), ours in groups.items():
        for one in _read(experiment.model.name, METHODS[kind]):
            if abs(one.density - density) < SAME and str(Point(one.rewind_epoch, "ep")) == rewind:
                out.append(Beside(kind, density, rewind, ours, one))
    return sorted(out, key=lambda one: (-one.density, list(METHODS).index(one.kind), one.published.rewind_epoch))


def _read(network: str, method: str) -> list[Published]:
    with open(FILE, newline="") as f:
        return [
            Published(
                int(row["rewind_epoch"]), float(row["density"]), float(row["accuracy_median"]),
                float(row["accuracy_min"]), float(row["accuracy_max"]),
            )
            for row in csv.DictReader(f) if (row["network"], row["method"]) == (network, method)
        ]  # fmt: skip


def differences(experiment: Experiment) -> list[str]:
    """What keeps curves of this network from being compared: what is not as published."""
    if not _theirs(experiment):
        return []
    out = []
    for ours, right in ((experiment.recipe, RECIPE), (experiment.data, DATA)):
        for name in sorted((identity(ours).keys() | identity(right).keys()) - set(FREE)):
            if getattr(ours, name) != getattr(right, name):
                out.append(f"{name} {getattr(ours, name)} instead of {getattr(right, name)}")
    methods = [str(method) for method in experiment.prune.methods]
    return out + ([] if METHOD in methods else [f"{', '.join(methods)} instead of {METHOD}"])


def _theirs(experiment: Experiment) -> bool:
    return experiment.data.name == "cifar10" and experiment.model.name in NETWORKS and experiment.model.width == 1.0


def _epochs(experiment: Experiment) -> list[int]:
    return [k.count for k in experiment.prune.rewind if k.unit == "ep"]
