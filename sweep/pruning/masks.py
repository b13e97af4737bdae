"""Masks: which prunable weights stay. numpy in, numpy out; `True` = stays.

All masks of one dense run come from one ranking of its final weights by magnitude, ties broken by position. So the
count is exact to the weight, and the mask of a higher quantile lies inside that of a lower one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models import Network
from sweep.pruning.scores import SCORES


@dataclass(frozen=True)
class Level:
    """How much is pruned: a quantile of the prunable weights, or an absolute threshold on their magnitude."""

    kind: str  # "quantile" or "threshold"
    value: float

    def __str__(self) -> str:
        return f"{self.kind[0]}{self.value!r}"


@dataclass(frozen=True)
class Pruned:
    """A mask over the flat kernels vector, and the threshold that made it (None where each kernel has its own)."""

    mask: np.ndarray
    threshold: float | None


def count_pruned(quantile: float, count: int) -> int:
    """How many of `count` weights go at `quantile`."""
    return round(quantile * count)


def by_quantile(weights: np.ndarray, quantile: float) -> Pruned:
    """Prune exactly `round(quantile * n)` weights of smallest magnitude; of equal ones the earlier go first.

    >>> by_quantile(np.array([3.0, -1.0, 2.0, 1.0, -5.0]), 0.4)
    Pruned(mask=array([ True, False,  True, False,  True]), threshold=1.0)
    """
    magnitude = np.abs(weights)
    going = np.argsort(magnitude, kind="stable")[: count_pruned(quantile, weights.size)]
    mask = np.ones(weights.size, bool)
    mask[going] = False
    return Pruned(mask, float(magnitude[going[-1]]) if going.size else 0.0)


def by_threshold(weights: np.ndarray, threshold: float) -> Pruned:
    """Prune every weight whose magnitude is at or under `threshold`."""
    return Pruned(np.abs(weights) > threshold, threshold)


def layerwise(weights: np.ndarray, sizes: Sequence[int], quantile: float) -> Pruned:
    """The same quantile of each kernel; `sizes` are the kernels' lengths in the flat vector."""
    parts = np.split(weights, np.cumsum(sizes)[:-1])
    return Pruned(np.concatenate([by_quantile(part, quantile).mask for part in parts]), None)


def prune(weights: np.ndarray, network: Network, level: Level, scope: str, score: str = "magnitude") -> Pruned:
    """The mask of some kernels at one level; its threshold is one on |w|, and None where kernels have their own."""
    sizes = kernel_sizes(network)
    if level.kind == "threshold":
        return by_threshold(weights, level.value)
    if scope == "layerwise":
        return layerwise(weights, sizes, level.value)
    found = by_quantile(SCORES[score](weights, sizes), level.value)
    return found if score == "magnitude" else Pruned(found.mask, None)


def shuffled(mask: np.ndarray, sizes: Sequence[int], stream: np.random.Generator) -> np.ndarray:
    """Control: other positions, the same count in every kernel."""
    return np.concatenate([stream.permutation(part) for part in np.split(mask, np.cumsum(sizes)[:-1])])


def random(mask: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Control: the same count over all kernels together, anywhere."""
    return stream.permutation(mask)


def stream(seed: int, *words: object) -> np.random.Generator:
    """Random numbers that depend on the seed and on what they are for, and on nothing else."""
    return np.random.Generator(np.random.Philox([seed, zlib.crc32(" ".join(map(str, words)).encode())]))


def kernel_sizes(network: Network) -> list[int]:
    return [v.size for v in network.of("kernel")]


def remaining(mask: np.ndarray, network: Network) -> dict[str, int]:
    """Weights that stay, per kernel."""
    return {name: int(part.sum()) for name, part in network.split("kernel", mask).items()}


def emptied(mask: np.ndarray, network: Network) -> list[str]:
    """Kernels with nothing left: there the network is cut through and can learn nothing behind."""
    return [name for name, count in remaining(mask, network).items() if count == 0]
