"""The effect of the rewind point: accuracy against it, the gain of later points over the earliest, instability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import mean
from typing import Any

import altair as alt

from sweep.experiment.point import Steps, in_order
from sweep.graph.results import Row
from sweep.report import curves
from sweep.report.intervals import density_of, gained
from sweep.report.stability import STABLE, instability_of


def accuracy(tickets: list[Row], dense: Mapping[int, float], title: str = "", step: Steps = None) -> Any:
    """Return the chart of test accuracy against the rewind point, a line per density; None with one point only."""
    points = curves.averaged(tickets, dense)
    order = in_order({point["rewind"] for point in points}, step)
    if len(order) < 2:
        return None
    base = alt.Chart(alt.Data(values=points)).encode(
        x=curves.along(order),
        color=alt.Color("level:N", title=curves.AXES["remaining"], sort=curves.densest_first(points)),
    )
    lines = base.mark_line(point={"size": 45, "filled": True}).encode(
        y=alt.Y("accuracy:Q", title="test accuracy at the last epoch (%)").scale(zero=False),
        tooltip=curves.told(alt.Tooltip("measured:Q", title="accuracy", format=".2f"), "seeds:Q"),
    )
    hollow, below = curves.lacking(base, points, len(dense))
    layers = [lines, *hollow, *(curves.across(list(dense.values())) if dense else [])]
    return alt.layer(*layers).properties(width=520, height=300, title=curves.headed(title, below))


def gains(tickets: list[Row], title: str = "", step: Steps = None) -> Any:
    """Return the chart of the gain of later rewind points over the earliest, a colour per density, or None."""
    measured = [row for row in tickets if row.measured]
    order = in_order({row.rewind for row in measured}, step)
    levels = curves.level_names(measured)
    points: list[dict[str, Any]] = []
    for (level, k), gain in gained(tickets, order[0]).items() if order else ():
        density = 100 * density_of([row for row in measured if row.level == level])
        point = {"level": levels[level], "rewind": k, "gain": 100 * gain.mean, "seeds": gain.seeds,
                 "remaining": density}  # fmt: skip
        if gain.low is not None and gain.high is not None:
            point |= {"low": 100 * gain.low, "high": 100 * gain.high}
        points.append(point)
    if not points:
        return None
    lefts = curves.densest_first(points)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=curves.along(order[1:]),
        xOffset=alt.XOffset("level:N", sort=lefts),
        color=alt.Color("level:N", title=curves.AXES["remaining"], sort=lefts),
    )
    dots = base.mark_point(filled=True, size=60).encode(
        y=alt.Y("gain:Q", title=f"percentage points above the ticket from {order[0]}"),
        tooltip=curves.told(alt.Tooltip("gain:Q", format="+.2f"), "seeds:Q"),
    )
    nothing = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(strokeDash=[2, 2]).encode(y=alt.Y("y:Q"))
    return alt.layer(nothing, *curves.intervals(base, points), dots).properties(width=520, height=300, title=title)


def instabilities(rows: Iterable[Row], title: str = "", step: Steps = None) -> Any:
    """Return the chart of instability against the starting point, a line per network; None if it was not measured."""
    lines = instability_of(rows)
    if not lines:
        return None
    order = in_order({k for found in lines.values() for k in found}, step)
    points = [  # a line has a gap where it was not measured
        {"line": who, "point": k, "instability": mean(found[k]) if k in found else None}
        for who, found in lines.items() for k in order
    ]  # fmt: skip
    base = alt.Chart(alt.Data(values=points)).encode(
        x=curves.along(order, "point:O", "point the children begin from"),
        y=alt.Y("instability:Q", title="instability (percentage points of error)"),
        color=alt.Color("line:N", title=None),
        tooltip=curves.tips("line:N", "point:O", alt.Tooltip("instability:Q", format=".2f")),
    )  # fmt: skip
    stable = alt.Chart(alt.Data(values=[{"y": STABLE}])).mark_rule(strokeDash=[2, 2]).encode(y=alt.Y("y:Q"))
    return (base.mark_line(point=True) + stable).properties(width=520, height=300, title=title)
