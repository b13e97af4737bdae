"""Stability: the point from which on the data order no longer decides where a training ends (sweep/work/line.py)."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from sweep.experiment.point import Steps, in_order
from sweep.graph.results import Row

STABLE = 2.0  # percentage points of error: below, two trainings are linearly connected (Frankle et al. 2020)


def whose(row: Row) -> str:
    """Return the network whose instability a row has.

    >>> whose(Row("", "instability", 0, "0")), whose(Row("", "instability", 0, "0", method="lamp", quantile=0.8))
    ('dense network', 'ticket of lamp q0.8')
    """
    return f"ticket of {row.method} q{row.quantile:g}" if row.method else "dense network"


def instability_of(rows: Iterable[Row]) -> dict[str, dict[str, list[float]]]:
    """Return the instability of every seed in percentage points, by network and rewind point; dense network first."""
    groups: dict[str, dict[str, list[float]]] = {}
    for row in sorted(rows, key=lambda row: bool(row.method)):
        if row.instability is not None:
            groups.setdefault(whose(row), {}).setdefault(row.rewind, []).append(100 * row.instability)
    return groups


def stability(rows: Iterable[Row], step: Steps = None) -> str:
    """Return sentences: from which point on dense network and tickets are stable; "" if it was not measured."""
    said = list[str]()
    for who, found in instability_of(rows).items():
        points, seeds = in_order(found, step), max(map(len, found.values()))
        # the first point from which on all are stable
        stable = next((k for i, k in enumerate(points) if all(mean(found[later]) < STABLE for later in points[i:])), "")
        lead = f"is stable from {stable} on" if stable else "is not stable from any point measured"
        means = f"under {STABLE:g} percentage points of error between two trainings that see the data in other orders; "
        each = ", ".join(
            f"{mean(found[k]):.1f} from {k}" + f" ({len(found[k])} of {seeds} seeds)" * (len(found[k]) < seeds)
            for k in points
        )
        said.append(f"The {who} {lead} ({'' if said else means}{seeds} seed{'s' if seeds > 1 else ''}): {each}.")
    return " ".join(said)
