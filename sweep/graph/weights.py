"""Statistics of the final weights: what a threshold would take away, before anything is pruned."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweep.graph.home import Home
from sweep.graph.mask_file import final_weights
from sweep.graph.training import Training

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def statistics(values: np.ndarray) -> dict[str, float]:
    """Count, range and mean of the values; quantiles of their magnitude, which are pruning thresholds."""
    magnitude = np.abs(values)
    return {
        "count": int(values.size),
        "min": float(values.min()),
        "max": float(values.max()),
        "mean": float(values.mean()),
        "zeros": int((values == 0).sum()),
        **{f"|w| q{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(magnitude, QUANTILES), strict=True)},
    }


def weight_statistics(home: Home, training: Training, per_layer: bool) -> dict[str, dict[str, float]]:
    """Of the prunable weights and of all weights of the dense run's final snapshot; of each kernel on request."""
    network, weights, _ = final_weights(home, training)
    out = {"prunable": statistics(weights.kernels), "all": statistics(np.concatenate(weights))}
    if per_layer:
        out |= {name: statistics(part.ravel()) for name, part in network.split("kernel", weights.kernels).items()}
    return out


def histogram(home: Home, training: Training, bins: int = 60) -> list[dict[str, Any]]:
    """Counts of log10 |w| of the prunable weights, for the figure."""
    magnitude = np.abs(final_weights(home, training)[1].kernels)
    counts, edges = np.histogram(np.log10(np.maximum(magnitude, 1e-12)), bins)
    return [{"from": 10 ** float(a), "to": 10 ** float(b), "weights": int(n)}
            for n, a, b in zip(counts, edges[:-1], edges[1:], strict=True)]  # fmt: skip
