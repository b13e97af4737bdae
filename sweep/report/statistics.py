"""The statistics of a sweep: many tickets, few seeds, and per seed one dense run to compare all tickets with.

    d     = ticket − dense (or − control), seed by seed: n pairs
    own   = Σ (d − mean d)² / (n − 1)
    near  = Σ squares / Σ (n − 1), over the tickets of this and the neighbouring densities, ten or more of them
    level = the same over the tickets of this density alone
    v     = (10 max(near, level) + own) / 11
    t     = (mean d + margin) / √(v / n),   df = min(11 (n − 1), Σ (n − 1))

A ticket's own variance has two degrees of freedom at three seeds; one variance for the whole sweep is wrong if noise
grows with sparsity. The error rates of this test, and why the level is 2.5 %, are in docs/verdict.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
WEIGHT = 10  # weight of the pooled variance, the ticket's own has 1
NEIGHBOURS = 10  # least number of tickets whose variance is pooled
LEVEL = 0.025  # significance level after Holm's correction over all tickets
LEAST = 5e-4  # smallest standard deviation assumed: five of ten thousand images
SEEDS = 3  # least number of seeds for a claim
MANY = 1000  # upper limit of `seeds_for`
POWER = 1.96 + 0.84  # difference in standard errors that a test at 5 % detects with 80 % power


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval, if there are enough seeds."""

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
        """Return the interval of a difference in percentage points, or "".

        >>> Estimate(0.01, 3, 0.005).interval
        '[+0.50, +1.50]'
        """
        if self.half is None:
            return ""
        return f"[{100 * (self.mean - self.half):+.2f}, {100 * (self.mean + self.half):+.2f}]"


@dataclass(frozen=True)
class Comparison:
    """Mean difference, standard error and degrees of freedom per ticket, each `[tickets]`.

    A ticket with fewer than two pairs, or a failed one, has the error NaN and the freedom 0.
    """

    mean: Array
    error: Array
    freedom: Array
    pairs: Array

    def above(self, bound: float) -> Array:
        """Return the p-values of the claim "the true difference is above `bound`", one-sided t tests."""
        return self._p(self.mean - bound)

    def below(self, bound: float) -> Array:
        return self._p(bound - self.mean)

    def _p(self, distance: Array) -> Array:
        from scipy.special import stdtr

        usable = self.freedom > 0
        t = np.divide(distance, self.error, out=np.zeros_like(distance), where=usable)
        return np.where(usable, stdtr(np.maximum(self.freedom, 1), -t), 1.0)

    def estimate(self, ticket: int) -> Estimate | None:
        """Return the mean difference of one ticket; None if it shares no seed with what it is compared to.

        Its interval is not corrected for the number of tickets.
        """
        from scipy.special import stdtrit

        pairs, freedom = int(self.pairs[ticket]), self.freedom[ticket]
        half = float(stdtrit(freedom, 0.975) * self.error[ticket]) if freedom else None
        return Estimate(float(self.mean[ticket]), pairs, half) if pairs else None


def compare(differences: Array, ranks: Array, failed: Array) -> Comparison:
    """Return the tests of `differences` `[tickets, seeds]` (NaN: no pair); `ranks`: density ranks from 0."""
    pairs = np.isfinite(differences).sum(1)
    usable = (pairs >= 2) & ~failed
    mean = np.where(pairs > 0, np.nansum(differences, 1) / np.maximum(pairs, 1), np.nan)
    squares = np.nansum((differences - mean[:, None]) ** 2, 1)
    error, freedom = np.full(len(pairs), np.nan), np.zeros(len(pairs))
    for ticket in np.flatnonzero(usable):
        distance = np.abs(ranks - ranks[ticket])  # as many neighbouring densities as give NEIGHBOURS tickets
        near = usable & (distance <= max(1, *np.sort(distance[usable])[:NEIGHBOURS]))
        together = float((pairs[near] - 1).sum())
        level = usable & (ranks == ranks[ticket])  # a density noisier than its neighbours keeps its own variance
        own = squares[ticket] / (pairs[ticket] - 1)
        variance = (WEIGHT * _pooled(squares, pairs - 1, near, level) + own) / (WEIGHT + 1)
        error[ticket] = math.sqrt(max(variance, LEAST**2) / pairs[ticket])
        freedom[ticket] = min((WEIGHT + 1) * (pairs[ticket] - 1), together)
    return Comparison(mean, error, freedom, pairs)


def _pooled(squares: Array, freedom: Array, *groups: Array) -> float:
    """Return the largest of the variances pooled over each group of tickets."""
    return max(float(squares[group].sum() / freedom[group].sum()) for group in groups)


def holm(p: Array, to_come: int = 0) -> Array:
    """Return p-values corrected for multiple tests (Holm 1979): the smallest × their number, the next × one less, ….

    The tests `to_come` count as p = 1.

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
    """Return the standard deviation of a ticket's differences, pooled over all tickets; None if none has two seeds."""
    rows = [np.array(row) for row in differences if len(row) > 1]
    if not rows:
        return None
    squares = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    return max(math.sqrt(squares / sum(len(row) - 1 for row in rows)), LEAST)


def by_images(accuracy: float, images: int) -> float:
    """Return the standard deviation of the difference of two accuracies due to the choice of test images.

    √(2 p (1 − p) / n) if both networks err independently; p = (right answers + 1) / (n + 2), so that it is never 0.

    >>> round(by_images(0.92, 10_000), 4), round(by_images(1.0, 15), 3)
    (0.0038, 0.086)
    """
    p = (accuracy * images + 1) / (images + 2)
    return math.sqrt(2 * p * (1 - p) / images)


def smallest_margin(deviation: float, seeds: int, tickets: int) -> float:
    """Return the smallest margin that can be shown with 80 % power for a ticket as good as the dense network.

    >>> [round(smallest_margin(1.0, seeds, 50), 2) for seeds in (3, 5, 10)]
    [2.68, 1.96, 1.34]
    """
    from scipy.special import stdtrit

    freedom = min(WEIGHT + 1, max(tickets, 1)) * (seeds - 1)  # with few tickets, little variance is pooled
    quantile = stdtrit(freedom, 1 - LEVEL / max(tickets, 1))
    return float(deviation * (quantile + 0.85) / math.sqrt(seeds))


def seeds_for(margin: float, deviation: float, tickets: int) -> int:
    """Return the number of seeds that show this margin with 80 % power, at most MANY.

    >>> seeds_for(0.5, 0.25, 50), seeds_for(0.5, 0.4, 50)
    (5, 12)
    """
    return next((n for n in range(SEEDS, MANY) if smallest_margin(deviation, n, tickets) <= margin), MANY)
