"""Published curves for the same network, data and recipe, to be drawn beside ours with their spread.

renda2020_rewinding.csv: Renda, Frankle and Carbin 2020, one-shot pruning of ResNets on CIFAR-10, median, least and
greatest of three trials.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from sweep.experiment import Experiment

FILE = Path(__file__).with_name("renda2020_rewinding.csv")
SOURCE = "Renda, Frankle and Carbin 2020, one-shot weight rewinding, median and range of three trials"
NETWORKS = ("resnet20", "resnet56")
RECIPE = {
    "epochs": 182, "batch": 128, "learning_rate": 0.1, "schedule": "step", "milestones": (91, 136),
    "weight_decay": 1e-4,
}  # fmt: skip
METHOD = "magnitude"  # over all kernels together


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
    with open(FILE, newline="") as f:
        rows = [
            row for row in csv.DictReader(f)
            if row["network"] == experiment.model.name and row["method"] == "weight-rewind"
        ]  # fmt: skip
    there = {int(row["rewind_epoch"]) for row in rows}
    wanted = {min(there, key=lambda k: abs(k - ours)) for ours in _epochs(experiment)} if there else set()
    return [
        Published(
            int(row["rewind_epoch"]), float(row["density"]), float(row["accuracy_median"]),
            float(row["accuracy_min"]), float(row["accuracy_max"]),
        )
        for row in rows if int(row["rewind_epoch"]) in wanted
    ]  # fmt: skip


def differences(experiment: Experiment) -> list[str]:
    """What keeps curves of this network from being compared: fields of the recipe that are not as published."""
    if not _theirs(experiment):
        return []
    ours = {name: getattr(experiment.recipe, name) for name in RECIPE}
    out = [f"{name} {ours[name]} instead of {right}" for name, right in RECIPE.items() if ours[name] != right]
    methods = [str(method) for method in experiment.prune.methods]
    return out + ([] if METHOD in methods else [f"{', '.join(methods)} instead of {METHOD}"])


def _theirs(experiment: Experiment) -> bool:
    return experiment.data.name == "cifar10" and experiment.model.name in NETWORKS and experiment.model.width == 1.0


def _epochs(experiment: Experiment) -> list[int]:
    return [k.count for k in experiment.prune.rewind if k.unit == "ep"]
