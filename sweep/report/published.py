"""Published curves for the same network and data, to be drawn beside ours with their spread.

results/reference/published/renda2020_rewinding.csv: Renda, Frankle and Carbin 2020, one-shot pruning of ResNets on
CIFAR-10, median, least and greatest of three trials.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from sweep.experiment import Experiment

FILE = Path(__file__).parents[2] / "results" / "reference" / "published" / "renda2020_rewinding.csv"
SOURCE = "Renda, Frankle and Carbin 2020, one-shot weight rewinding, median and range of three trials"


@dataclass(frozen=True)
class Published:
    rewind_epoch: int
    density: float
    median: float
    least: float
    greatest: float


def published(experiment: Experiment) -> list[Published]:
    """Weight rewinding of this network on this data, at the published rewind epochs nearest to ours; or nothing."""
    if experiment.model.width != 1.0 or experiment.data.name != "cifar10" or not FILE.is_file():
        return []
    with open(FILE, newline="") as f:
        rows = [
            row for row in csv.DictReader(f)
            if row["network"] == experiment.model.name and row["method"] == "weight-rewind"
            and int(row["dense_epochs"]) == experiment.recipe.epochs
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


def _epochs(experiment: Experiment) -> list[int]:
    return [k.count for k in experiment.prune.rewind if k.unit == "ep"]
