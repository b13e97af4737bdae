"""Statistics of the weights of a training at a point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweep.experiment import END, Point
from sweep.graph.home import Home
from sweep.graph.snapshot_file import read_weights
from sweep.graph.training import Task
from sweep.pruning.statistics import QUANTILES, statistics

Table = dict[str, dict[str, float]]


def weight_statistics(
    home: Home, training: Task, per_kernel: bool = False, at: Point = END, quantiles: Sequence[float] = QUANTILES
) -> Table:
    """Return statistics of the prunable weights, of all numbers and, with `per_kernel`, of each kernel.

    Rows "|…|" are of magnitudes: quantiles of "|prunable|" are the pruning thresholds.
    """
    network, weights, _ = read_weights(home.snapshot(training, at))
    parts = {"prunable": weights.kernels, "all": np.concatenate(weights)}
    if per_kernel:
        parts |= {name: part.ravel() for name, part in network.split("kernel", weights.kernels).items()}
    out: Table = {}
    for name, part in parts.items():
        out |= {f"|{name}|": statistics(np.abs(part), quantiles), name: statistics(part, quantiles)}
    return out
