"""Means over seeds with their 95 % intervals: of accuracies, and of differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, TypeVar

import numpy as np

from sweep.graph.results import Row
from sweep.report import statistics
from sweep.report.statistics import SEEDS, Comparison, Estimate

Item = TypeVar("Item")
Named = TypeVar("Named")


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of accuracies with Student's interval; no interval for two seeds (± 9 standard deviations).

    >>> one = estimate([0.90, 0.91, 0.92])
    >>> round(one.mean, 4), round(one.half, 4)
    (0.91, 0.0248)
    """
    if not values:
        return Estimate(math.nan, 0, None)
    if len(values) < SEEDS:
        return Estimate(mean(values), len(values), None)
    from scipy.special import stdtrit

    width = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean(values), len(values), width)


def compared(
    differences: Mapping[Named, Mapping[int, float]], densities: Mapping[Named, float], failed: Collection[Named]
) -> Comparison:
    """Return the tests of differences by seed, in the order of their names, with pooled variances.

    Names in `failed` get no interval, and their variance is not pooled.
    """
    seeds = sorted({seed for found in differences.values() for seed in found})
    table = np.array([[found.get(seed, math.nan) for seed in seeds] for found in differences.values()])
    ranks = np.unique([-densities[name] for name in differences], return_inverse=True)[1]  # 0 for the highest density
    return statistics.compare(table, ranks, np.array([name in failed for name in differences]))


def paired(
    differences: Mapping[Named, Mapping[int, float]], densities: Mapping[Named, float], failed: Collection[Named]
) -> dict[Named, Estimate]:
    """Return means of differences by seed, with intervals whose variance is pooled with neighbouring densities."""
    if not differences:
        return {}
    tests = compared(differences, densities, failed)
    return {name: one for g, name in enumerate(differences) if (one := tests.estimate(g)) is not None}


def from_dense(
    groups: Mapping[Named, Sequence[Row]], dense: Mapping[int, float], failed: Collection[Named]
) -> dict[Named, Estimate]:
    """Return the mean difference of each group of measured trainings from the dense runs with the same seeds."""
    differences = {name: minus(accuracies(group), dense) for name, group in groups.items()}
    return paired(differences, by_level(groups), failed)


def gained(tickets: list[Row], earliest: str) -> dict[tuple[Any, str], Estimate]:
    """Return the gain over the earliest point by level and rewind point, paired by seed, with its 95 % interval."""
    measured = [row for row in tickets if row.measured]
    failed = {(row.level, row.rewind) for row in tickets if row.lost}
    failed |= {(row.level, row.rewind) for row in tickets if (row.level, earliest) in failed}
    points = grouped(measured, lambda row: (row.level, row.rewind))
    gains = {
        (level, k): found
        for (level, k), rows in points.items()
        if k != earliest and (found := minus(accuracies(rows), accuracies(points.get((level, earliest), ()))))
    }
    return paired(gains, by_level(points), failed)


# Functions of rows that several parts of the report use -------------------------------------------------------------


def grouped(items: Iterable[Item], key: Callable[[Item], Named]) -> dict[Named, list[Item]]:
    """Return items by key, keys in the order of their first item."""
    groups: dict[Named, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def top1(row: Row) -> float:
    """Return the test accuracy of a measured training."""
    assert row.test_top1 is not None
    return row.test_top1


def accuracies(rows: Iterable[Row]) -> dict[int, float]:
    """Return the test accuracies of trainings that differ in their seed, by seed; without unmeasured ones."""
    return {row.seed: top1(row) for row in rows if row.measured}


def dense_of(rows: Iterable[Row]) -> dict[int, float]:
    """Return the test accuracies of the dense runs, by seed."""
    return accuracies(row for row in rows if row.kind == "dense")


def minus(ones: Mapping[int, float], others: Mapping[int, float]) -> dict[int, float]:
    """Return the differences ones − others, for the seeds that both have."""
    return {seed: ones[seed] - others[seed] for seed in sorted(ones.keys() & others.keys())}


def by_level(groups: Mapping[Named, Sequence[Row]]) -> dict[Named, float]:
    """Return the density of each group of rows, one for all groups of a level: they share their masks.

    Groups of an absolute threshold may have other seeds, whose masks keep more or less.
    """
    levels = grouped((row for group in groups.values() for row in group), lambda row: row.level)
    return {name: asked(levels[group[0].level]) for name, group in groups.items()}


def asked(rows: Sequence[Row]) -> float:
    """Return the density that the quantile asks for; for an absolute threshold, the mean one that resulted."""
    return 1 - rows[0].quantile if rows[0].quantile is not None else density_of(rows)


def density_of(rows: Collection[Row]) -> float:
    """Return the mean density of the rows that have one, else of their quantiles."""
    known = [row.density for row in rows if row.density is not None]
    planned = [1 - row.quantile for row in rows if row.quantile is not None]
    return mean(known or planned or [0.0])
