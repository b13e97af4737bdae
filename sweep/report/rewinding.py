"""The rewind point: accuracy against it, and what a later one gains over the earliest."""

from __future__ import annotations

from statistics import mean
from typing import Any

from sweep.experiment.point import in_order
from sweep.graph.results import Row
from sweep.report.curves import across, averaged
from sweep.report.verdict import estimate


def accuracy(tickets: list[Row], dense: list[float], title: str = "") -> Any:
    """Test accuracy against the rewind point, a line per density; nothing where there is one point."""
    import altair as alt

    points = averaged(tickets)
    order = in_order({point["rewind"] for point in points})
    if len(order) < 2:
        return None
    for point in points:
        point["left"] = f"{point['method']} {point['remaining']:.3g} %".strip()
    lefts = list(dict.fromkeys(p["left"] for p in sorted(points, key=lambda p: -p["remaining"])))
    lines = (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=True)
        .encode(
            x=alt.X("rewind:O", title="rewind point", sort=order, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("accuracy:Q", title="test accuracy at the last epoch (%)").scale(zero=False),
            color=alt.Color("left:N", title="remaining", sort=lefts),
            tooltip=["left:N", "rewind:O", alt.Tooltip("accuracy:Q", format=".2f"), "seeds:Q"],
        )
    )
    return alt.layer(lines, *(across(dense) if dense else [])).properties(width=520, height=300, title=title)


def gains(tickets: list[Row], title: str = "") -> Any:
    """What rewinding to a later point gains over the earliest: differences by seed, with their 95 % interval."""
    import altair as alt

    order = in_order({row.rewind for row in tickets})
    several = len({row.method for row in tickets}) > 1
    earliest = {(row.level, row.seed): row for row in tickets if row.rewind == order[0]} if order else {}
    groups: dict[tuple[Any, ...], list[float]] = {}
    densities: dict[tuple[Any, ...], list[float]] = {}
    for row in tickets:
        densities.setdefault(row.level, []).append(100 * (row.density or 0.0))
        if row.rewind != order[0] and (first := earliest.get((row.level, row.seed))):
            gain = 100 * ((row.test_top1 or 0.0) - (first.test_top1 or 0.0))
            groups.setdefault((row.level, row.rewind), []).append(gain)
    points: list[dict[str, Any]] = []
    for (level, k), found in groups.items():
        gained, density = estimate(found), mean(densities[level])
        point = {"left": f"{level[0] if several else ''} {density:.3g} %".strip(), "rewind": k, "gain": gained.mean,
                 "seeds": gained.seeds, "remaining": density}  # fmt: skip
        points.append(point | ({"low": gained.low, "high": gained.high} if gained.half is not None else {}))
    if not points:
        return None
    lefts = list(dict.fromkeys(p["left"] for p in sorted(points, key=lambda p: -p["remaining"])))
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("rewind:O", title="rewind point", sort=order[1:], axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("left:N", sort=lefts),
        color=alt.Color("left:N", title="remaining", sort=lefts),
    )
    dots = base.mark_point(filled=True, size=60).encode(
        y=alt.Y("gain:Q", title=f"points above the ticket from {order[0]}"),
        tooltip=["left:N", "rewind:O", alt.Tooltip("gain:Q", format="+.2f"), "seeds:Q"],
    )
    nothing = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(strokeDash=[2, 2]).encode(y="y:Q")
    bars = base.mark_rule().encode(y=alt.Y("low:Q", title=""), y2="high:Q").transform_filter("isValid(datum.low)")
    intervals = [bars] if any("low" in point for point in points) else []
    return alt.layer(nothing, *intervals, dots).properties(width=520, height=300, title=title)
