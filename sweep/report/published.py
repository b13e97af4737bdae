"""Published curves for the same network, data and recipe, to be shown beside ours with their range.

renda2020_rewinding.csv: Renda, Frankle and Carbin 2020, pruning of ResNets on CIFAR-10, one-shot and by 20 % per round,
median, minimum and maximum of three trials.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median

from sweep.experiment import Data, Experiment, Point, Recipe, identity
from sweep.graph.results import Row
from sweep.pruning.compare import SAME

FILE = Path(__file__).with_name("renda2020_rewinding.csv")
# what their code (rewinding-iclr20-public, vision/gpu-src) does by field; curves of ours without, as recorded, are
# drawn beside theirs too, and what then differs is said
THEIRS = {
    "data.normalised": ("image", "standardises each image by itself"),
    "model.initializer": ("lecun", "begins with kernels of half our variance"),
    "recipe.decayed": ("all", "decays batch norm and biases too"),
    "recipe.norm_momentum": (0.997, "averages batch norm's statistics with 0.997"),
    "recipe.rest": ("carried", "leaves out no image of an epoch"),
    "recipe.rewind_momentum": (True, "rewinds momentum too"),
}
NETWORKS = {"resnet20": "resnet20", "resnet20_renda": "resnet20", "resnet56": "resnet56"}  # as they call them
RECIPE = Recipe(epochs=182, batch=128, learning_rate=0.1, schedule="step", milestones=(91, 136), weight_decay=2e-4)
DATA = Data("cifar10", pad=4, flip=True)
FREE = ("precision", "norm_images")  # fields that may differ: they change rounding and devices only
METHOD = "magnitude"  # one ranking over all kernels
SHARE = 0.2  # share of the kept weights that is pruned in each round
METHODS = {"ticket": "weight-rewind", "lr_rewind": "lr-rewind", "finetune": "fine-tune", "fresh": "random-reinit"}


@dataclass(frozen=True)
class Published:
    rewind_epoch: int
    density: float
    median: float
    least: float
    greatest: float

    @property
    def rewind(self) -> str:
        return str(Point(self.rewind_epoch, "ep"))


def published(experiment: Experiment) -> list[Published]:
    """Return published curves of weight rewinding for this network and data at the experiment's points, or none."""
    points = {str(k) for k in experiment.prune.rewind}
    return [one for one in _read(experiment, METHODS["ticket"]) if one.rewind in points]


def source(experiment: Experiment) -> str:
    """Return the citation of the published curves, with differences between their code and ours."""
    figures = f"{_schedule(experiment)} pruning, median and range of three trials"
    other = [said for field, (right, said) in THEIRS.items() if attrgetter(field)(experiment) != right]
    return f"Renda, Frankle and Carbin 2020, {figures}{'; their code ' if other else ''}{', '.join(other)}"


@dataclass(frozen=True)
class Beside:
    """A published figure and ours."""

    kind: str
    density: float
    rewind: str
    ours: list[float]  # accuracy of every seed
    published: Published

    @property
    def deviation(self) -> float:
        return median(self.ours) - self.published.median

    @property
    def place(self) -> str:
        """Return whether our median is inside the published range, or how far outside, in percentage points."""
        figures = (self.published.least, median(self.ours), self.published.greatest)
        least, ours, greatest = (round(100 * one, 2) for one in figures)
        if least <= ours <= greatest:
            return "inside"
        return f"{ours - greatest:.2f} above" if ours > greatest else f"{least - ours:.2f} below"


def beside(experiment: Experiment, rows: Iterable[Row]) -> list[Beside]:
    """Return all published figures that have a counterpart of ours; none if the recipe differs."""
    groups: dict[tuple[str, float, str], list[float]] = {}
    for row in rows:
        if row.kind in METHODS and row.method == METHOD and row.density and row.test_top1 is not None:
            groups.setdefault((row.kind, row.density, row.rewind), []).append(row.test_top1)
    out = []
    for (kind, density, rewind), ours in groups.items():
        for one in _read(experiment, METHODS[kind]):
            if abs(one.density - density) < SAME and one.rewind == rewind:
                out.append(Beside(kind, density, rewind, ours, one))
    return sorted(out, key=lambda one: (-one.density, list(METHODS).index(one.kind), one.published.rewind_epoch))


def _read(experiment: Experiment, method: str) -> list[Published]:
    """Return the published figures of a method for this network, data and recipe, or none."""
    if not _theirs(experiment) or differences(experiment):
        return []
    wanted = (NETWORKS[experiment.model.name], method, _schedule(experiment))
    with open(FILE, newline="") as f:
        return [
            Published(
                int(row["rewind_epoch"]), float(row["density"]), float(row["accuracy_median"]),
                float(row["accuracy_min"]), float(row["accuracy_max"]),
            )
            for row in csv.DictReader(f) if (row["network"], row["method"], row["schedule"]) == wanted
        ]  # fmt: skip


def differences(experiment: Experiment) -> list[str]:
    """Return the settings that differ from the published ones, so that curves of this network are not comparable."""
    if not _theirs(experiment):
        return []
    out = []
    for section, ours, right in (("recipe", experiment.recipe, RECIPE), ("data", experiment.data, DATA)):
        for name in sorted((identity(ours).keys() | identity(right).keys()) - set(FREE)):
            theirs = THEIRS.get(f"{section}.{name}", (getattr(right, name),))[0]
            if getattr(ours, name) not in (getattr(right, name), theirs):
                out.append(f"{name} {getattr(ours, name)} instead of {getattr(right, name)}")
    methods = [str(method) for method in experiment.prune.methods]
    if METHOD not in methods:
        out.append(f"{', '.join(methods)} instead of {METHOD}")
    if experiment.prune.budget != "weights":
        out.append(f"shares of {experiment.prune.budget} instead of weights")
    rounds = [1 - (1 - SHARE) ** (r + 1) for r in range(experiment.prune.rounds)]
    each = experiment.prune.each_quantile
    if experiment.prune.rounds > 1 and any(abs(q - right) >= SAME for q, right in zip(each, rounds, strict=True)):
        out.append(f"rounds to {', '.join(f'{q:g}' for q in each)} instead of {100 * SHARE:g} % a round")
    return out


def _schedule(experiment: Experiment) -> str:
    return "iterative" if experiment.prune.rounds > 1 else "one-shot"


def _theirs(experiment: Experiment) -> bool:
    model = experiment.model
    return experiment.data.name == "cifar10" and model.name in NETWORKS and model.width == 1.0 and not model.blur
