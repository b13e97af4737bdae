"""The meaning of `auto`: how many trainings share a GPU and how many an array element carries, from measurements.

`lottery bench packing` writes `packing.json` into the results folder: for a network on one kind of GPU, the images per
second of n trainings together, and the seconds before a training begins.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from slurm import sbatch
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.graph.home import Home
from sweep.graph.speeds import FILE, Packing, measured, network_of
from sweep.graph.training import Task

ENOUGH = 0.97  # share of the best throughput that is enough: with fewer trainings, results come sooner
START_SHARE = 0.05  # largest share of an element's time for starting


def settled(experiment: Experiment, pool: Path, cells: int) -> Experiment:
    """Return the experiment with numbers in place of auto; `cells`: number of trainings of its largest array."""
    cluster = experiment.cluster
    if "auto" not in (cluster.trainings_per_gpu, cluster.trainings_per_task):
        return experiment
    rows = [row for row in measured(pool) if row.network == network_of(experiment)]
    if not rows:
        field = "trainings_per_gpu" if cluster.trainings_per_gpu == "auto" else "trainings_per_task"
        raise Refused(f"cluster.{field}: auto needs a measurement of {network_of(experiment)} in "
                      f"{pool / FILE}; run lottery bench packing on a node, or write a number")  # fmt: skip
    rows = [row for row in rows if row.hardware == rows[-1].hardware]  # the GPU measured last
    per_gpu = best(rows) if cluster.trainings_per_gpu == "auto" else cluster.trainings_per_gpu
    per_task = cluster.trainings_per_task
    if per_task == "auto":
        row = min(rows, key=lambda row: abs(row.per_gpu - per_gpu))
        # so few that every GPU has work
        fair = cells // (sbatch.together(cluster) * per_gpu)
        per_task = per_gpu * max(1, min(in_a_row(row, experiment.recipe.epochs), fair))
    per_task = max(per_task, per_gpu)  # at least as many as share a GPU
    return replace(experiment, cluster=replace(cluster, trainings_per_gpu=per_gpu, trainings_per_task=per_task))


def settled_for(home: Home, trainings: Iterable[Task]) -> Experiment:
    """Return the experiment with numbers in place of auto, for a chain of these trainings."""
    generations = Counter(one.generation for one in trainings if not one.dense)
    return settled(home.experiment, home.pool, max(generations.values(), default=0))


def best(rows: list[Packing]) -> int:
    """Return the smallest number of trainings per GPU that reaches ENOUGH of the best throughput."""
    enough = ENOUGH * max(row.images_per_second for row in rows)
    return min(row.per_gpu for row in rows if row.images_per_second >= enough)


def in_a_row(row: Packing, epochs: int) -> int:
    """Return how many trainings to run one after the other so that starting takes at most START_SHARE of the time."""
    seconds = epochs * row.epoch_images * row.per_gpu / row.images_per_second
    return math.ceil(row.start_seconds * (1 / START_SHARE - 1) / seconds)
