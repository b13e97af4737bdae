"""Accuracy against weights or multiply-adds remaining: tickets, controls, other retraining, published curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

import altair as alt

from sweep.experiment.controls import CONTROLS
from sweep.experiment.point import Steps, in_order
from sweep.graph.home import Home
from sweep.graph.results import Row
from sweep.report.intervals import density_of, from_dense, grouped, top1
from sweep.report.published import Published
from sweep.report.schedules import other_schedule, schedule
from sweep.report.statistics import Estimate
from sweep.report.verdict import DOUBTS

NAMES = {
    "ticket": "ticket, rewound to {k}",
    "lr_rewind": "learning-rate rewinding to {k}",
    "finetune": "fine-tuning, as long as from {k}",
    **{kind: f"control: {control.title}" for kind, control in CONTROLS.items()},
}

MOST_TICKS = 12  # up to so many levels, an axis names these and no round numbers
AXES = {"remaining": "weights remaining", "macs": "multiply-adds remaining"}  # fields of points, in percent
SHAPES = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-left", "triangle-right",
          "arrow", "stroke"]  # by kind  # fmt: skip


def lines_of(home: Home, rows: list[Row], dense: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return the points of the curves; iterative and one-shot pruning together, if the pool has both."""
    others = other_schedule(home)
    if not others:
        return averaged(rows, dense)
    mine = schedule(home.experiment)
    several = len({row.method for row in (*rows, *others)}) > 1
    theirs = "one-shot" if mine != "one-shot" else "in rounds"
    return averaged(rows, dense, mine, several) + averaged(others, dense, theirs, several)


def averaged(
    rows: list[Row], dense: Mapping[int, float], schedule: str = "", several: bool = False
) -> list[dict[str, Any]]:
    """Return the mean accuracy of each point over seeds, with the 95 % interval of its difference from `dense`.

    A point that lacks seeds is placed at dense mean + its mean paired difference, because its seeds may be better or
    worse than the average. Lines are named by method if there are `several` methods.
    """
    failed = {(row.kind, row.rewind, row.level) for row in rows if row.lost}
    groups = grouped([row for row in rows if row.measured], lambda row: (row.kind, row.rewind, row.level))
    several = several or len({level[0] for _, _, level in groups} - {""}) > 1
    levels = level_names(rows, several)
    away: dict[tuple[Any, ...], Estimate] = {}
    for kind in {key[0] for key in groups}:  # one at a time: random masks vary far more than tickets
        away |= from_dense({key: group for key, group in groups.items() if key[0] == kind}, dense, failed)
    out = []
    for (kind, k, level), group in groups.items():
        method = level[0]
        measured, difference = mean(map(top1, group)), away.get((kind, k, level))
        accuracy = measured
        if difference and {row.seed for row in group} != dense.keys():
            accuracy = mean(dense.values()) + difference.mean
        name = (f"{method or 'not pruned'}: " if several else "") + NAMES[kind].format(k=k)
        point = {
            "line": f"{name}, {schedule}" if schedule else name,
            "level": levels.get(level, ""),
            "kind": kind,
            "control": kind in DOUBTS,
            "rewind": k,
            "remaining": 100 * density_of(group),
            "accuracy": 100 * accuracy,
            "measured": 100 * measured,
            "seeds": len(group),
        }
        if (costs := [row.macs for row in group if row.macs]) and len(costs) == len(group):
            point["macs"] = 100 * mean(costs)
        if difference and difference.half is not None:
            point |= {"low": 100 * (accuracy - difference.half), "high": 100 * (accuracy + difference.half)}
        out.append(point)
    return out


def curves(
    points: list[dict[str, Any]], dense: list[float], title: str, others: Sequence[Published] = (), page: bool = False,
    field: str = "remaining", step: Steps = None,
) -> Any:  # fmt: skip
    """Return the chart of test accuracy against weights remaining or another field of AXES.

    A line per rewind point, controls dashed, the dense network as a horizontal line. On a page, a click in the legend
    selects a line.
    """
    levels = {float(f"{p[field]:.3g}") for p in [*points, *({field: 100 * one.density} for one in others)]}
    named = sorted(levels) if len(levels) <= MOST_TICKS else alt.Undefined
    axis = alt.Axis(labelSeparation=4, format="~g", values=named)  # 100 and 90 are close on a log scale
    remaining = alt.X(f"{field}:Q", title=f"{AXES[field]} (%)", sort="descending", axis=axis)
    remaining = remaining.scale(type="log", nice=False, padding=16)  # not up to the next power of ten
    accuracy = alt.Y("accuracy:Q", title="test accuracy at the last epoch (%)").scale(zero=False)
    order = in_order({p["rewind"] for p in points}, step)
    place = {p["line"]: (list(NAMES).index(p["kind"]), order.index(p["rewind"]), p["line"]) for p in points}
    present = sorted(place, key=lambda line: place[line])
    shapes = [SHAPES[place[line][0] % len(SHAPES)] for line in present]
    colour = alt.Color("line:N", title=None).scale(domain=present)
    base = alt.Chart(alt.Data(values=points)).encode(x=remaining, color=colour)
    # on an edge, clipping would cut markers and bars in half, so their data are filtered at the frame
    whole = base.transform_calculate(high="min(datum.high, 100)")
    within, bars, below, marks = base, whole, list[str](), list[Any]()
    if bottom := frame(points, [*([100 * mean(dense)] if dense else []), *(100 * one.least for one in others)]):
        accuracy = accuracy.scale(zero=False, domainMin=bottom, nice=False)
        below = _outside(points, bottom)
        within = base.transform_filter(f"datum.accuracy >= {bottom}")
        bars = whole.transform_filter(f"datum.high > {bottom}").transform_calculate(low=f"max(datum.low, {bottom})")
        off_scale = alt.Chart(alt.Data(values=[p | {"accuracy": bottom} for p in points if p["accuracy"] < bottom]))
        off_scale = off_scale.encode(x=remaining, y=accuracy, color=colour, tooltip=tips("line:N", "measured:Q"))
        marks = [off_scale.mark_point(shape="triangle-down", filled=True, size=70, opacity=1.0)]
    costs = [alt.Tooltip(f"{name}:Q", title=said, format=".3g") for name, said in AXES.items() if name in points[0]]
    reached = alt.Tooltip("measured:Q", title="accuracy", format=".2f")
    channels: dict[str, Any] = {"y": accuracy, "tooltip": tips("line:N", *costs, reached, "seeds:Q")}
    lines = base.mark_line(clip=True)
    if page:
        picked = alt.selection_point(fields=["line"], bind="legend")
        channels["opacity"] = alt.condition(picked, alt.value(1.0), alt.value(0.1))
        lines = lines.add_params(picked)
    dashes = alt.StrokeDash("control:N", legend=None).scale(domain=[False, True])
    lines = lines.encode(strokeDash=dashes, **channels)
    dots = within.mark_point(filled=True, size=45, opacity=1.0).encode(
        shape=alt.Shape("line:N", title=None).scale(domain=present, range=shapes),  # merged with the colour's legend
        **channels,
    )
    hollow, said = lacking(within, [p for p in points if p["accuracy"] >= (bottom or 0.0)], len(dense))
    layers = [lines, dots, *intervals(bars, points), *hollow, *marks]
    below += said
    if dense:
        layers += across(dense)
    if others:
        layers += _published(others, remaining)
        below += [] if page else ["grey: published, by rewind point, with the range of its trials"]
    chart = alt.layer(*layers).properties(width=520, height=340, title=headed(title, below))
    return chart.configure_legend(labelLimit=320)


def headed(title: str, below: list[str]) -> Any:
    """Return a chart's title with lines below it; Vega omits these if the title is empty."""
    return alt.Title(title or " ", subtitle=below) if below else title


def intervals(base: Any, points: list[dict[str, Any]]) -> list[Any]:
    """Return the bars of the 95 % intervals for the points that have one."""
    bars = (
        base.mark_rule().encode(y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q")).transform_filter("isValid(datum.low)")
    )
    return [bars] if any("low" in point for point in points) else []


def told(*more: Any) -> list[Any]:
    """Return the tooltip of the tickets of a level and rewind point."""
    return tips(alt.Tooltip("level:N", title=AXES["remaining"]), "rewind:O", *more)


def tips(*shown: Any) -> list[Any]:
    """Return a tooltip of fields, given by name or as `alt.Tooltip`.

    Charts name the class of every channel. For a bare string Altair hashes its schema again, 14 ms each time, which
    was a fifth of the processor time of a report.
    """
    return [alt.Tooltip(one) if isinstance(one, str) else one for one in shown]


def along(points: Sequence[str], field: str = "rewind:O", title: str = "rewind point") -> Any:
    """Return the axis of rewind points, in this order."""
    return alt.X(field, title=title, sort=points, axis=alt.Axis(labelAngle=0))


def level_names(rows: Iterable[Row], several: bool = False) -> dict[tuple[str, float | None, float | None], str]:
    """Return the names of the levels whose density is known: weights remaining in percent.

    After the method if there are `several`. Three digits, or as many as tell the levels apart.
    """
    known = grouped((row for row in rows if row.density is not None or row.quantile is not None), lambda row: row.level)
    several = several or len({method for method, _, _ in known} - {""}) > 1
    shares = {
        level: 100 * density_of([row for row in found if row.measured] or found) for level, found in known.items()
    }
    for digits in (3, 4, 5, 6):
        names = {
            level: f"{level[0] if several else ''} {share:.{digits}g} %".strip() for level, share in shares.items()
        }
        if len(set(names.values())) == len(names):
            break
    return names


def densest_first(points: list[dict[str, Any]]) -> list[str]:
    """Return the levels of the points, most weights remaining first."""
    return list(dict.fromkeys(point["level"] for point in sorted(points, key=lambda point: -point["remaining"])))


def lacking(base: Any, points: list[dict[str, Any]], dense: int) -> tuple[list[Any], list[str]]:
    """Return white dots for points with fewer seeds than others, and a line that explains them; or nothing."""
    most = max([dense, *(point["seeds"] for point in points)])
    if all(point["seeds"] == most for point in points):
        return [], []
    dots = base.transform_filter(f"datum.seeds < {most}").mark_circle(size=12, opacity=1.0)
    return [dots.encode(y=alt.Y("accuracy:Q"), color=alt.value("white"))], [f"white inside: fewer than {most} seeds"]


def frame(points: list[dict[str, Any]], beside: Sequence[float] = ()) -> float | None:
    """Return the lower end of the axis if a control lies so low that the tickets' curves would merge; None: show all.

    >>> frame([{"accuracy": top1, "control": top1 < 50} for top1 in (92.0, 82.0, 10.0)])
    72.0
    """
    shown = [point["accuracy"] for point in points if not point["control"]]
    if not shown:
        return None
    least = min([*shown, *beside])
    bottom = math.floor(least - max(max(shown) - least, 5.0))
    return float(bottom) if min(point["accuracy"] for point in points) < bottom else None


def _outside(points: list[dict[str, Any]], bottom: float) -> list[str]:
    """Return a line of text for each curve that is off scale."""
    out, below = [], sorted((p for p in points if p["accuracy"] < bottom), key=lambda point: point["remaining"])
    for name, found in grouped(below, lambda point: point["line"].removeprefix("control: ")).items():
        accuracies = sorted({f"{point['measured']:.1f}" for point in found}, key=float)
        remaining = list(dict.fromkeys(f"{point['remaining']:.3g}" for point in found))
        ends = [" to ".join(dict.fromkeys((each[0], each[-1]))) for each in (accuracies, remaining)]
        out.append(f"off scale (▼): {name}: {ends[0]} % at {ends[1]} % of weights remaining")
    return out


def across(dense: list[float]) -> list[Any]:
    """Return the dense network's accuracy as a horizontal line with its name."""
    whole = alt.Chart(alt.Data(values=[{"accuracy": 100 * mean(dense), "name": "dense"}]))
    whole = whole.encode(y=alt.Y("accuracy:Q"))
    name = whole.mark_text(align="right", dx=-4, dy=-6).encode(x=alt.value("width"), text=alt.Text("name:N"))
    return [whole.mark_rule(strokeDash=[2, 2]), name]


def _published(others: Sequence[Published], remaining: Any) -> list[Any]:
    """Return published curves in grey, with the range of their trials and names at their ends."""
    points = [
        {
            "remaining": 100 * one.density,
            "accuracy": 100 * one.median,
            "least": 100 * one.least,
            "greatest": 100 * one.greatest,
            "published": f"published, rewound to epoch {one.rewind_epoch}",
            "name": one.rewind,
        }
        for one in others
    ]
    base = alt.Chart(alt.Data(values=points)).encode(x=remaining, detail=alt.Detail("published:N"))
    area = base.mark_area(opacity=0.12, color="grey").encode(y=alt.Y("least:Q", title=""), y2=alt.Y2("greatest:Q"))
    line = base.mark_line(color="grey", strokeDash=[1, 3]).encode(
        y=alt.Y("accuracy:Q"), tooltip=tips("published:N", alt.Tooltip("accuracy:Q", format=".2f"))
    )
    least = min(one.density for one in others)
    ends = alt.Chart(alt.Data(values=[p for p in points if p["remaining"] == 100 * least])).encode(x=remaining)
    names = ends.mark_text(align="left", dx=6, color="grey").encode(y=alt.Y("accuracy:Q"), text=alt.Text("name:N"))
    return [area, line, names]
