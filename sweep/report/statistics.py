"""The statistics of a sweep: many tickets, few seeds, one dense run per seed that all tickets are compared with.

    d     = ticket − dense (or − control), seed by seed: n pairs
    own   = Σ (d − mean d)² / (n − 1)
    near  = Σ squares / Σ (n − 1), over the tickets of this and the neighbouring densities, ten or more of them
    level = the same over the tickets of this density alone
    v     = (10 max(near, level) + own) / 11
    t     = (mean d + margin) / √(v / n),   df = min(11 (n − 1), Σ (n − 1))

Own variance alone has two degrees of freedom at three seeds; one variance for the whole sweep is wrong where noise
grows with sparsity. What error rates this has, and why the level is 2.5 %: docs/verdict.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
WEIGHT = 10  # of the neighbours' variance against the ticket's own
NEIGHBOURS = 10  # tickets whose variance is pooled, at least
LEVEL = 0.025  # after Holm's correction over all tickets
LEAST = 5e-4  # smallest standard deviation: five of ten thousand images. No spread is no proof
SEEDS = 3  # that a claim takes
MANY = 1000  # no more are counted
POWER = 1.96 + 0.84  # standard errors between a difference and 0 that a test at 5 % detects in 80 % of cases


@dataclass(frozen=True)
class Comparison:
    """The mean difference of every ticket, its standard error and degrees of freedom; NaN and 0 where pairs lack."""

    mean: Array
    error: Array
    freedom: Array
    pairs: Array
    failed: Array

    def above(self, bound: float) -> Array:
        """p-values of "the true difference is above `bound`"."""
        return self._p(self.mean - bound)

    def below(self, bound: float) -> Array:
        return self._p(bound - self.mean)

    def _p(self, distance: Array) -> Array:
        from scipy.special import stdtr

        usable = (self.freedom > 0) & ~self.failed
        t = np.divide(distance, self.error, out=np.zeros_like(distance), where=usable)
        return np.where(usable, stdtr(np.maximum(self.freedom, 1), -t), 1.0)

    def half(self, ticket: int) -> float | None:
        """Half of the 95 % interval of one ticket by itself, not corrected for there being many."""
        if not self.freedom[ticket]:
            return None
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom[ticket], 0.975) * self.error[ticket])


def compare(differences: Array, ranks: Array, failed: Array) -> Comparison:
    """`differences`: ticket × seed, NaN where a pair is missing; `ranks`: of the densities, from 0."""
    pairs = np.isfinite(differences).sum(1)
    usable = (pairs >= 2) & ~failed
    mean = np.where(pairs > 0, np.nansum(differences, 1) / np.maximum(pairs, 1), np.nan)
    squares = np.nansum((differences - mean[:, None]) ** 2, 1)
    error, freedom = np.full(len(pairs), np.nan), np.zeros(len(pairs))
    for ticket in np.flatnonzero(usable):
        near = _neighbours(ticket, ranks, usable)
        together = float((pairs[near] - 1).sum())
        level = usable & (ranks == ranks[ticket])  # a density noisier than its neighbours must not borrow their calm
        own = squares[ticket] / (pairs[ticket] - 1)
        variance = (WEIGHT * _pooled(squares, pairs - 1, near, level) + own) / (WEIGHT + 1)
        error[ticket] = math.sqrt(max(variance, LEAST**2) / pairs[ticket])
        freedom[ticket] = min((WEIGHT + 1) * (pairs[ticket] - 1), together)
    return Comparison(mean, error, freedom, pairs, failed)


def _pooled(squares: Array, freedom: Array, *groups: Array) -> float:
    """Return the variance pooled over a group of tickets, the largest of several groups."""
    return max(float(squares[group].sum() / freedom[group].sum()) for group in groups)


def _neighbours(ticket: Any, ranks: Array, usable: Array) -> Array:
    """Tickets of this and the next densities on both sides; more of them until there are enough, or all."""
    width, last = 1, int(ranks.max())
    while True:
        near = usable & (np.abs(ranks - ranks[ticket]) <= width)
        if near.sum() >= NEIGHBOURS or width > last:
            return near
        width += 1


def holm(p: Array, to_come: int = 0) -> Array:
    """p-values corrected for there being many (Holm 1979): the smallest times their number, the next times one less …

    Those `to_come` count as 1.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    >>> holm(np.array([0.01]), to_come=2).tolist()
    [0.03]
    """
    order = np.argsort(p, kind="stable")
    out = np.empty(len(p))
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * (np.arange(len(p), 0, -1) + to_come)))
    return out


def spread(differences: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation of the differences of one ticket, pooled over all; None where no ticket has two seeds."""
    rows = [np.array(row) for row in differences if len(row) > 1]
    if not rows:
        return None
    squares = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    return max(math.sqrt(squares / sum(len(row) - 1 for row in rows)), LEAST)


def by_images(accuracy: float, images: int) -> float:
    """Return the standard deviation, by the choice of test images, of the difference of two accuracies.

    √(2 p (1 − p) / n) if the errors of both networks are independent; p = (right answers + 1) / (n + 2), so that no
    accuracy is without spread.

    >>> round(by_images(0.92, 10_000), 4), round(by_images(1.0, 15), 3)
    (0.0038, 0.086)
    """
    p = (accuracy * images + 1) / (images + 2)
    return math.sqrt(2 * p * (1 - p) / images)


def smallest_margin(deviation: float, seeds: int, tickets: int) -> float:
    """The margin that a ticket as good as the dense network stays within, seen with 80 % power.

    >>> [round(smallest_margin(1.0, seeds, 50), 2) for seeds in (3, 5, 10)]
    [2.68, 1.96, 1.34]
    """
    from scipy.special import stdtrit

    freedom = min(WEIGHT + 1, max(tickets, 1)) * (seeds - 1)  # of few tickets little variance is pooled
    quantile = stdtrit(freedom, 1 - LEVEL / max(tickets, 1))
    return float(deviation * (quantile + 0.85) / math.sqrt(seeds))


def seeds_for(margin: float, deviation: float, tickets: int) -> int:
    """How many seeds show that margin with 80 % power, or MANY.

    >>> seeds_for(0.5, 0.25, 50), seeds_for(0.5, 0.4, 50)
    (5, 12)
    """
    return next((n for n in range(SEEDS, MANY) if smallest_margin(deviation, n, tickets) <= margin), MANY)


def ranked(densities: Sequence[float]) -> Array:
    """Places of the densities asked for, the densest first."""
    levels = sorted(set(densities), reverse=True)
    return np.array([levels.index(density) for density in densities], int)
