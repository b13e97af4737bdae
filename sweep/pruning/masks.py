"""Masks: which prunable weights are kept. numpy in, numpy out; `True` = kept.

A mask is made by a score and an allocation: weights are ranked by score and the lowest are pruned, of equal ones the
earlier first. So the count is exact, and the mask of a higher quantile is a subset of that of a lower one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models import Network
from sweep.errors import Refused
from sweep.pruning.allocations import Costs, Shape, allocation, lowest_out
from sweep.pruning.scores import SCORES, Seen


@dataclass(frozen=True)
class Level:
    """The amount of pruning: a quantile of the prunable weights, or an absolute threshold on their magnitude."""

    kind: str  # "quantile" or "threshold"
    value: float
    budget: str = "weights"  # what a quantile is a share of: weights, or their multiply-adds (macs)

    def __str__(self) -> str:
        return f"{self.kind[0]}{self.value!r}{self.budget if self.budget != 'weights' else ''}"


@dataclass(frozen=True)
class Pruned:
    """A mask `[prunable]`, and the threshold on |θ| that made it (None if no single threshold did)."""

    mask: np.ndarray
    threshold: float | None


def by_threshold(weights: np.ndarray, threshold: float, inverted: bool = False) -> Pruned:
    """Return the mask that prunes magnitudes at or under `threshold`; `inverted`: as many of the largest instead.

    >>> by_threshold(np.array([3.0, -1.0, 2.0, 1.0, -5.0]), 1.5, inverted=True).mask
    array([False,  True,  True,  True, False])
    """
    _refuse_infinite(weights, "magnitude")
    mask = np.abs(weights) > threshold
    if inverted:
        return Pruned(lowest_out(-np.abs(weights), 1.0 - mask.mean()), None)
    return Pruned(mask, threshold)


def prune(
    seen: Seen,
    shapes: Sequence[Shape],
    level: Level,
    score: str = "magnitude",
    allocate: str = "global",
    within: np.ndarray | None = None,
    inverted: bool = False,
    costs: Costs = None,
) -> Pruned:
    """Return the mask at one level, inside the mask `within` if given; `inverted` prunes the highest scores.

    A score is taken once, or again after every step that keeps a fixed share of the weights. `costs`: multiply-adds of
    every weight, if the level is a share of these.

    >>> five = np.array([3.0, -1.0, 2.0, 1.0, -5.0])
    >>> prune(Seen(five, [5]), [(5, 1)], Level("quantile", 0.4))
    Pruned(mask=array([ True, False,  True, False,  True]), threshold=1.0)
    """
    if level.kind == "threshold":
        return by_threshold(seen.weights, level.value, inverted)
    rule, mask = SCORES[score], np.ones(seen.weights.size, bool) if within is None else within
    density, last = float(np.average(mask, weights=costs)), False
    while not last:
        density *= rule.step  # the intended density, not the achieved one: with few weights a step may prune none
        last = rule.step == 1.0 or density <= 1.0 - level.value
        scores = rule.of(replace(seen, weights=np.where(mask, seen.weights, 0)))
        _refuse_infinite(scores[mask], score)
        ranked = np.where(mask, -scores if inverted else scores, -np.inf)
        mask = allocation(allocate)(ranked, shapes, level.value if last else 1.0 - density, costs)
    single = score == "magnitude" and allocate == "global" and not inverted
    return Pruned(mask, float(np.abs(seen.weights[~mask]).max(initial=0.0)) if single else None)


def _refuse_infinite(scores: np.ndarray, name: str) -> None:
    """Raise Refused if a score is NaN or infinite: NaN sorts above all numbers, so its weight would be kept."""
    if count := np.count_nonzero(~np.isfinite(scores)):
        raise Refused(f"{name}: {count} scores are no finite numbers; expected a training that did not diverge")


def shuffled(mask: np.ndarray, sizes: Sequence[int], stream: np.random.Generator) -> np.ndarray:
    """Return the mask of the control `shuffled`: other positions, the same count in every kernel."""
    return np.concatenate([stream.permutation(part) for part in np.split(mask, np.cumsum(sizes)[:-1])])


def random(mask: np.ndarray, stream: np.random.Generator, costs: Costs = None) -> np.ndarray:
    """Return the mask of the control `random`: other positions, the same count over all kernels together.

    With `costs`, as near as it can the same sum of costs instead.

    >>> found = random(np.array([True] + 7 * [False]), stream(0), np.array([4] + 7 * [1]))
    >>> int(found @ np.array([4] + 7 * [1]))
    4
    """
    if costs is None:
        return stream.permutation(mask)
    return lowest_out(stream.random(mask.size), 1.0 - costs[mask].sum() / costs.sum(), costs)


def stream(seed: int, *words: object) -> np.random.Generator:
    """Return a random generator that depends only on the seed and on `words`, which say what it is for."""
    return np.random.Generator(np.random.Philox([seed, zlib.crc32(" ".join(map(str, words)).encode())]))


def kernel_sizes(network: Network) -> list[int]:
    return [v.size for v in network.of("kernel")]


def kernel_shapes(network: Network) -> list[Shape]:
    return [v.shape for v in network.of("kernel")]


def remaining(mask: np.ndarray, network: Network) -> dict[str, int]:
    """Return the number of weights kept in every kernel, by its name."""
    return {name: int(part.sum()) for name, part in network.split("kernel", mask).items()}


def emptied(mask: np.ndarray, network: Network) -> list[str]:
    """Return the names of fully pruned kernels: no signal passes through such a layer."""
    return [name for name, count in remaining(mask, network).items() if count == 0]
