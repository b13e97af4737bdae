"""Masks: which prunable weights stay. numpy in, numpy out; `True` = stays.

A mask is a score and an allocation: weights are ranked by a score, and the lowest go, ties broken by position. So the
count is exact to the weight, and the mask of a higher quantile lies inside that of a lower one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models import Network
from sweep.errors import Refused
from sweep.pruning.allocations import Allocate, Costs, Shape, allocation
from sweep.pruning.scores import SCORES, Seen


@dataclass(frozen=True)
class Level:
    """How much is pruned: a quantile of the prunable weights, or an absolute threshold on their magnitude."""

    kind: str  # "quantile" or "threshold"
    value: float
    budget: str = "weights"  # what a quantile is a share of: weights, or their multiply-adds (macs)

    def __str__(self) -> str:
        return f"{self.kind[0]}{self.value!r}{self.budget if self.budget != 'weights' else ''}"


@dataclass(frozen=True)
class Pruned:
    """A mask over the flat kernels vector, and the threshold on |θ| that made it (None where no single one did)."""

    mask: np.ndarray
    threshold: float | None


def by_quantile(weights: np.ndarray, quantile: float) -> Pruned:
    """Prune exactly `round(quantile * n)` weights of smallest magnitude; of equal ones the earlier go first.

    >>> by_quantile(np.array([3.0, -1.0, 2.0, 1.0, -5.0]), 0.4)
    Pruned(mask=array([ True, False,  True, False,  True]), threshold=1.0)
    """
    return prune(Seen(weights, [weights.size]), [(weights.size, 1)], Level("quantile", quantile))


def by_threshold(weights: np.ndarray, threshold: float, inverted: bool = False) -> Pruned:
    """Prune every weight whose magnitude is at or under `threshold`; `inverted`: as many, of the largest.

    >>> by_threshold(np.array([3.0, -1.0, 2.0, 1.0, -5.0]), 1.5, inverted=True).mask
    array([False,  True,  True,  True, False])
    """
    _refuse_infinite(weights, "magnitude")
    mask = np.abs(weights) > threshold
    if not inverted:
        return Pruned(mask, threshold)
    largest = np.argsort(-np.abs(weights), kind="stable")[: np.count_nonzero(~mask)]
    mask[:] = True
    mask[largest] = False
    return Pruned(mask, None)


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
    """Return the mask at one level: inside an earlier one where there is `within`; without the highest scores where
    `inverted`. `costs`: multiply-adds of every weight, where the level is a share of these."""
    if level.kind == "threshold":
        return by_threshold(seen.weights, level.value, inverted)
    mask = _stepwise(seen, shapes, level.value, score, allocation(allocate), within, inverted, costs)
    single = score == "magnitude" and allocate == "global" and not inverted
    return Pruned(mask, float(np.abs(seen.weights[~mask]).max(initial=0.0)) if single else None)


def _stepwise(
    seen: Seen, shapes: Sequence[Shape], quantile: float, score: str, allocate: Allocate, within: np.ndarray | None,
    inverted: bool, costs: Costs,
) -> np.ndarray:  # fmt: skip
    """Scored once; or in steps that keep a fixed share each, until the next would go beyond the quantile."""
    rule, mask = SCORES[score], np.ones(seen.weights.size, bool) if within is None else within
    density = float(np.average(mask, weights=costs))
    while True:
        density *= rule.step  # as meant, not as achieved: of few weights a step takes none
        last = rule.step == 1.0 or density <= 1.0 - quantile
        scores = rule.of(replace(seen, weights=np.where(mask, seen.weights, 0)))
        _refuse_infinite(scores[mask], score)
        ranked = np.where(mask, -scores if inverted else scores, -np.inf)
        mask = allocate(ranked, shapes, quantile if last else 1.0 - density, costs)
        if last:
            return mask


def _refuse_infinite(scores: np.ndarray, name: str) -> None:
    """What is no number sorts above all others, and would stay."""
    if count := np.count_nonzero(~np.isfinite(scores)):
        raise Refused(f"{name}: {count} scores are no finite numbers; expected a training that did not diverge")


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


def kernel_shapes(network: Network) -> list[Shape]:
    return [v.shape for v in network.of("kernel")]


def remaining(mask: np.ndarray, network: Network) -> dict[str, int]:
    """Weights that stay, per kernel."""
    return {name: int(part.sum()) for name, part in network.split("kernel", mask).items()}


def emptied(mask: np.ndarray, network: Network) -> list[str]:
    """Return the layers that are fully pruned: the network can learn nothing behind them."""
    return [name for name, count in remaining(mask, network).items() if count == 0]
