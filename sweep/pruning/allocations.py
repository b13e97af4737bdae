"""Allocations: how many weights of every kernel stay, given how many stay in all. numpy in, numpy out.

`scores` is one number per prunable weight, the lowest go first, of equal ones the earlier; `shapes` are those of the
kernels. A weight scored −∞ is gone already and stays so. `quantile` is a share of the weights or, where there are
`costs` (one number per weight, such as its multiply-adds), a share of their sum.
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
    """How many of `count` weights go at `quantile`."""
    return round(quantile * count)


def lowest_out(scores: Array, quantile: float, costs: Costs = None) -> Array:
    """Return the mask that loses the lowest scores: as many as come nearest to the quantile.

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
    """One ranking over all kernels."""
    return lowest_out(scores, quantile, costs)


def uniform(scores: Array, shapes: Sequence[Shape], quantile: float, costs: Costs = None) -> Array:
    """Prune the given quantile of each kernel: within one, all weights cost the same."""
    return np.concatenate([lowest_out(part, quantile) for part in _split(scores, shapes)])


def erk(scores: Array, shapes: Sequence[Shape], quantile: float, costs: Costs = None) -> Array:
    """Erdős–Rényi kernel (Evci et al. 2020): of a kernel stays a number ∝ in + out + height + width, or all of it.

    Seats of a parliament by Webster's rule: the r-th best weight of a kernel has the key (r − ½) / (in + out + height +
    width), and the lowest keys stay. So the count is exact, a kernel that would be denser than 1 is whole and leaves
    the rest to others, and less in all is never more in one. A depthwise kernel, written (height, width, channels, 1),
    has one input for each of its outputs: the sum of its shape counts groups.

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
    """N:M: of every M consecutive weights along the input channels the N highest stay.

    A kernel whose input channels are no multiple of M (stem, depthwise) stays whole, as hardware leaves it.
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
    """Whether the input channels of a kernel are groups of m."""
    return shape[-2] % m == 0 and not (len(shape) == 4 and shape[-1] == 1)


def _split(scores: Array, shapes: Sequence[Shape]) -> list[Array]:
    return np.split(scores, np.cumsum([prod(shape) for shape in shapes])[:-1])


ALLOCATIONS: dict[str, Allocate] = {"global": whole, "uniform": uniform, "erk": erk}


def n_and_m(word: str) -> tuple[int, int] | None:
    """
    >>> n_and_m("2:4"), n_and_m("global"), n_and_m("02:4")
    ((2, 4), None, None)
    """
    found = re.fullmatch(r"([1-9][0-9]{0,5}):([1-9][0-9]{0,5})", word)  # one word for one allocation
    return (int(found[1]), int(found[2])) if found else None


def allocation(word: str) -> Allocate:
    pair = n_and_m(word)
    return n_of_m(*pair) if pair else ALLOCATIONS[word]
