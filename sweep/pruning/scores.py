"""Scores: one number per prunable weight; those with the lowest go first. numpy in, numpy out.

`weights` is the flat vector of all kernels, `sizes` the lengths of the kernels in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Score = Callable[[np.ndarray, Sequence[int]], np.ndarray]


def magnitude(weights: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """|w|: one threshold for all kernels."""
    return np.abs(weights)


def lamp(weights: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Layer-adaptive magnitude (Lee et al. 2021): w_i² / Σ w_j², over the w_j of its kernel that are at least as large.

    The largest weight of every kernel scores 1, so no kernel is emptied while another has more than one weight left.

    >>> lamp(np.array([1.0, -2.0, 3.0]), [2, 1]).tolist()
    [0.2, 1.0, 1.0]
    """
    out = np.zeros(weights.size, np.float64)
    first = 0
    for size in sizes:
        square = np.square(weights[first : first + size].astype(np.float64))
        order = np.argsort(square, kind="stable")
        rising = square[order]
        as_large = np.cumsum(rising[::-1])[::-1]  # of itself and all that come after it
        scores = np.divide(rising, as_large, out=np.zeros(size), where=as_large > 0)
        out[first + order] = scores
        first += size
    return out


SCORES: dict[str, Score] = {"magnitude": magnitude, "lamp": lamp}
