"""The effect of the rewind point: accuracy against it, and the gain of later points over the earliest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.experiment.point import in_order
from sweep.graph.results import Row
from sweep.report.curves import (
    AXES,
    across,
    along,
    averaged,
    densest_first,
    headed,
    intervals,
    lacking,
    level_name,
    told,
)
from sweep.report.intervals import Estimate, accuracies, asked, density_of, grouped, minus, paired


def accuracy(tickets: list[Row], dense: Mapping[int, float], title: str = "") -> Any:
    """Return the chart of test accuracy against the rewind point, a line per density; None with one point only."""
    import altair as alt

    points = averaged(tickets, dense)
    order = in_order({point["rewind"] for point in points})
    if len(order) < 2:
        return None
    for point in points:
        point["level"] = level_name(point["method"], point["remaining"])
    base = alt.Chart(alt.Data(values=points)).encode(
        x=along(order), color=alt.Color("level:N", title=AXES["remaining"], sort=densest_first(points))
    )
    lines = base.mark_line(point={"size": 45, "filled": True}).encode(
        y=alt.Y("accuracy:Q", title="test accuracy at the last epoch (%)").scale(zero=False),
        tooltip=told(alt.Tooltip("measured:Q", title="accuracy", format=".2f"), "seeds:Q"),
    )
    hollow, below = lacking(base, points, len(dense))
    layers = [lines, *hollow, *(across(list(dense.values())) if dense else [])]
    return alt.layer(*layers).properties(width=520, height=300, title=headed(title, below))


def gained(tickets: list[Row], earliest: str) -> dict[tuple[Any, str], Estimate]:
    """Return the gain over the earliest point by level and rewind point, paired by seed, with its 95 % interval."""
    measured = [row for row in tickets if row.measured]
    failed = {(row.level, row.rewind) for row in tickets if row.lost}
    failed |= {(row.level, row.rewind) for row in tickets if (row.level, earliest) in failed}
    levels = grouped(measured, lambda row: row.level)
    points = grouped(measured, lambda row: (row.level, row.rewind))
    gains = {
        (level, k): found
        for (level, k), rows in points.items()
        if k != earliest and (found := minus(accuracies(rows), accuracies(points.get((level, earliest), ()))))
    }
    return paired(gains, {(level, k): asked(levels[level]) for level, k in gains}, failed)


def gains(tickets: list[Row], title: str = "") -> Any:
    """Return the chart of the gain of later rewind points over the earliest, a colour per density, or None."""
    import altair as alt

    measured = [row for row in tickets if row.measured]
    order = in_order({row.rewind for row in measured})
    several = len({row.method for row in measured}) > 1
    points: list[dict[str, Any]] = []
    for (level, k), gain in gained(tickets, order[0]).items() if order else ():
        density = 100 * density_of([row for row in measured if row.level == level])
        point = {"level": level_name(level[0] if several else "", density), "rewind": k,
                 "gain": 100 * gain.mean, "seeds": gain.seeds, "remaining": density}  # fmt: skip
        if gain.low is not None and gain.high is not None:
            point |= {"low": 100 * gain.low, "high": 100 * gain.high}
        points.append(point)
    if not points:
        return None
    lefts = densest_first(points)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=along(order[1:]),
        xOffset=alt.XOffset("level:N", sort=lefts),
        color=alt.Color("level:N", title=AXES["remaining"], sort=lefts),
    )
    dots = base.mark_point(filled=True, size=60).encode(
        y=alt.Y("gain:Q", title=f"percentage points above the ticket from {order[0]}"),
        tooltip=told(alt.Tooltip("gain:Q", format="+.2f"), "seeds:Q"),
    )
    nothing = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(strokeDash=[2, 2]).encode(y="y:Q")
    return alt.layer(nothing, *intervals(base, points), dots).properties(width=520, height=300, title=title)
