"""Means over seeds with their 95 % intervals: of accuracies, and of differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TypeVar

import numpy as np

from sweep.graph.results import Row
from sweep.report import statistics
from sweep.report.statistics import SEEDS, Comparison

Named = TypeVar("Named")


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds, and its 95 % interval where there are enough of them."""

    mean: float
    seeds: int
    half: float | None  # half of the interval's width

    def __str__(self) -> str:
        if not self.seeds:
            return "–"
        return f"{self.mean:.2%}" + (f" ± {100 * self.half:.2f}" if self.half is not None else "")

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half

    @property
    def interval(self) -> str:
        """Of a difference, in points; nothing where there is none.

        >>> Estimate(0.01, 3, 0.005).interval
        '[+0.50, +1.50]'
        """
        if self.half is None:
            return ""
        return f"[{100 * (self.mean - self.half):+.2f}, {100 * (self.mean + self.half):+.2f}]"


def estimate(values: Sequence[float]) -> Estimate:
    """Of accuracies, with Student's interval. Of two seeds that would be 9 standard deviations wide on each side.

    >>> one = estimate([0.90, 0.91, 0.92])
    >>> round(one.mean, 4), round(one.half, 4)
    (0.91, 0.0248)
    """
    if len(values) < SEEDS:
        return Estimate(mean(values), len(values), None)
    from scipy.special import stdtrit

    width = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean(values), len(values), width)


def paired(
    differences: Mapping[Named, Mapping[int, float]], densities: Mapping[Named, float], failed: Collection[Named] = ()
) -> dict[Named, Estimate]:
    """Means of differences by seed, and their intervals by the rule's variance: pooled with neighbouring densities.

    What `failed` in any seed has no interval, and its spread says nothing of others.
    """
    if not differences:
        return {}
    seeds = sorted({seed for found in differences.values() for seed in found})
    table = np.array([[found.get(seed, math.nan) for seed in seeds] for found in differences.values()])
    ranks = statistics.ranked([densities[name] for name in differences])
    tests = statistics.compare(table, ranks, np.array([name in failed for name in differences]))
    return {name: one for g, name in enumerate(differences) if (one := estimated(tests, g)) is not None}


def estimated(tests: Comparison, ticket: int) -> Estimate | None:
    """Of one of several; None where it has no pair."""
    pairs = int(tests.pairs[ticket])
    return Estimate(float(tests.mean[ticket]), pairs, tests.half(ticket)) if pairs else None


def asked(quantile: float | None, rows: Collection[Row]) -> float:
    """The density asked for; of an absolute threshold, the one that came out."""
    return 1 - quantile if quantile is not None else density_of(rows)


def density_of(rows: Collection[Row]) -> float:
    known = [row.density for row in rows if row.density is not None]
    planned = [1 - row.quantile for row in rows if row.quantile is not None]
    return mean(known or planned or [0.0])
