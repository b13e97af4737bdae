"""The comparison of two masks: how many weights they share, and how many they would share by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SAME = 1e-3  # densities that differ by less count as equal


@dataclass(frozen=True)
class Overlap:
    """The overlap of two masks A and B of n weights, as shares of the smaller one."""

    shared: float  # |A ∩ B|
    chance: float  # expected if both were drawn at random: |A|·|B| / n
    chance_in_kernels: float  # expected if both were drawn at random within each kernel l: Σ |A_l|·|B_l| / n_l


def overlap(one: np.ndarray, other: np.ndarray, sizes: Sequence[int]) -> Overlap:
    """Return the overlap of two masks `[prunable]`; `sizes` are the lengths of the kernels.

    >>> overlap(np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool), [2, 2])
    Overlap(shared=0.5, chance=0.5, chance_in_kernels=0.5)
    """
    smaller = min(int(one.sum()), int(other.sum()))
    if not smaller:
        return Overlap(0.0, 0.0, 0.0)
    places = np.cumsum(sizes)[:-1]
    counts = [np.array([part.sum() for part in np.split(mask, places)], np.float64) for mask in (one, other)]
    return Overlap(
        float((one & other).sum() / smaller),
        float(one.sum() * other.sum() / one.size / smaller),
        float((counts[0] * counts[1] / np.array(sizes)).sum() / smaller),
    )
