"""Allocations: how many weights of every kernel are kept, given how many are kept in all. numpy in, numpy out.

`scores` `[prunable]` has one number per prunable weight; the lowest are pruned first, of equal ones the earlier.
`shapes` are those of the kernels. A score of −∞ marks a weight that is pruned already. `quantile` is a share of the
weights or, with `costs` (one number per weight, such as its multiply-adds), a share of their sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

Array = np.ndarray
Shape = tuple[int, ...]
Costs = Array | None
Allocate = Callable[[Array, Sequence[Shape], float, Costs], Array]


def count_pruned(quantile: float, count: int) -> int:
    """Return how many of `count` weights are pruned at `quantile`."""
    return round(quantile * count)


def lowest_out(scores: Array, quantile: float, costs: Costs = None) -> Array:
    """Return the mask that prunes the lowest scores, as many as come nearest to the quantile.

    >>> lowest_out(np.array([3.0, 1.0, 2.0, 1.0]), 0.5).tolist()
    [True, False, True, False]
    >>> lowest_out(np.array([3.0, 1.0, 2.0, 1.0]), 0.5, np.array([1, 4, 1, 4])).tolist()
    [True, False, True, True]
    """
    order, going = np.argsort(scores, kind="stable"), count_pruned(quantile, scores.size)
    if costs is not None:
        spent = np.concatenate([[0], np.cumsum(costs[order])])
        going = int(np.abs(spent - quantile * spent[-1]).argmin())
    mask = np.ones(scores.size, bool)
    mask[order[:going]] = False
    return mask


def whole(scores: Array, shapes: Sequence[Shape], quantile: float, costs: Costs = None) -> Array:
    """Return the mask of one ranking over all kernels."""
    return lowest_out(scores, quantile, costs)


def uniform(scores: Array, shapes: Sequence[Shape], quantile: float, costs: Costs = None) -> Array:
    """Return the mask that prunes `quantile` of every kernel; within a kernel all weights cost the same."""
    return np.concatenate([lowest_out(part, quantile) for part in _split(scores, shapes)])


def erk(scores: Array, shapes: Sequence[Shape], quantile: float, costs: Costs = None) -> Array:
    """Return the Erdős–Rényi-kernel mask (Evci et al. 2020): kernel l keeps ∝ in + out + height + width, at most all.

    Webster's rounding: weight of rank r in its kernel (1 = highest score) has the key (r − ½) / (in + out + height +
    width), and the lowest keys are kept. So the total is exact, a kernel whose share exceeds its size is kept whole and
    the others share the rest, and a higher quantile never keeps more of a kernel. A depthwise kernel (height, width,
    channels, 1) has one input per output, so the sum of its shape is right with groups.

    >>> mask = erk(np.arange(68.0), [(1, 1, 2, 2), (1, 1, 8, 8)], 0.5)
    >>> int(mask[:4].sum()), int(mask[4:].sum())
    (4, 30)
    """
    keys = []
    for part, shape in zip(_split(scores, shapes), shapes, strict=True):
        best_first = np.argsort(np.argsort(-part, kind="stable"), kind="stable")
        keys.append(np.where(np.isneginf(part), np.inf, (best_first + 0.5) / sum(shape)))
    return lowest_out(-np.concatenate(keys), quantile, costs)


def n_of_m(n: int, m: int) -> Allocate:
    """Return the N:M allocation: of every M consecutive weights along the input channels, keep the N highest.

    A kernel whose input channels are not a multiple of M (stem, depthwise) is kept whole, as hardware requires.
    """

    def allocate(scores: Array, shapes: Sequence[Shape], quantile: float, costs: Costs = None) -> Array:
        parts = []
        for part, shape in zip(_split(scores, shapes), shapes, strict=True):
            if not divides(shape, m):
                parts.append(np.isfinite(part))
                continue
            inputs_last = np.moveaxis(part.reshape(shape), -2, -1)
            rows = inputs_last.reshape(-1, m)
            kept = np.ones_like(rows, bool)
            np.put_along_axis(kept, np.argsort(rows, axis=1, kind="stable")[:, : m - n], False, axis=1)
            parts.append(np.moveaxis(kept.reshape(inputs_last.shape), -1, -2).ravel())
        return np.concatenate(parts)

    return allocate


def divides(shape: Shape, m: int) -> bool:
    """Whether a kernel can be pruned N:M: not depthwise, and its number of input channels is a multiple of m."""
    return shape[-2] % m == 0 and not (len(shape) == 4 and shape[-1] == 1)


def _split(scores: Array, shapes: Sequence[Shape]) -> list[Array]:
    return np.split(scores, np.cumsum([prod(shape) for shape in shapes])[:-1])


ALLOCATIONS: dict[str, Allocate] = {"global": whole, "uniform": uniform, "erk": erk}


def n_and_m(word: str) -> tuple[int, int] | None:
    """Return N and M of an allocation such as 2:4, or None if the word is no N:M allocation.

    >>> n_and_m("2:4"), n_and_m("global"), n_and_m("02:4")
    ((2, 4), None, None)
    """
    found = re.fullmatch(r"([1-9][0-9]{0,5}):([1-9][0-9]{0,5})", word)  # each allocation has one spelling
    return (int(found[1]), int(found[2])) if found else None


def allocation(word: str) -> Allocate:
    pair = n_and_m(word)
    return n_of_m(*pair) if pair else ALLOCATIONS[word]
