"""Statistics of weights, to see what a threshold would prune. numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models import Network, Weights

# the quantiles that weight statistics show by default
QUANTILES = (0.6, 0.65, 0.7, 0.75, 0.8, *(q / 100 for q in range(85, 100)))


def statistics(values: np.ndarray, quantiles: Sequence[float] = QUANTILES) -> dict[str, float]:
    """Return count, number of zeros, range, mean and quantiles of the values.

    >>> statistics(np.array([-2.0, 0.0, 1.0]), [0.5])
    {'count': 3, 'zeros': 1, 'min': -2.0, 'max': 1.0, 'mean': -0.3333333333333333, 'q0.5': 0.0}
    """
    return {
        "count": int(values.size),
        "zeros": int((values == 0).sum()),
        "min": float(values.min()),
        "max": float(values.max()),
        "mean": float(values.mean(dtype=np.float64)),
        **{f"q{q:g}": float(v) for q, v in zip(quantiles, np.quantile(values, quantiles), strict=True)},
    }


def weight_statistics(
    network: Network, weights: Weights, per_kernel: bool = False, quantiles: Sequence[float] = QUANTILES
) -> dict[str, dict[str, float]]:
    """Return statistics of the prunable weights, of all numbers and, with `per_kernel`, of each kernel.

    Rows "|…|" are of magnitudes: quantiles of "|prunable|" are the pruning thresholds.
    """
    parts = {"prunable": weights.kernels, "all": np.concatenate(weights)}
    if per_kernel:
        parts |= {name: part.ravel() for name, part in network.split("kernel", weights.kernels).items()}
    out: dict[str, dict[str, float]] = {}
    for name, part in parts.items():
        out |= {f"|{name}|": statistics(np.abs(part), quantiles), name: statistics(part, quantiles)}
    return out


def histogram(values: np.ndarray, bins: int = 60) -> list[dict[str, Any]]:
    """Return the counts of non-zero |values| in `bins` bins of equal width in log10."""
    magnitude = np.abs(values[values != 0])
    if not magnitude.size:
        return []
    counts, edges = np.histogram(np.log10(magnitude), bins)
    return [{"from": 10 ** float(a), "to": 10 ** float(b), "weights": int(n)}
            for n, a, b in zip(counts, edges[:-1], edges[1:], strict=True)]  # fmt: skip
