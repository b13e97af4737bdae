"""Figures of a sweep as PNG and SVG: accuracy against remaining weights, and the heat map of the grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from sweep.experiment.point import in_order
from sweep.files import replacing
from sweep.graph.home import Home
from sweep.graph.results import Row
from sweep.report.published import Published, published
from sweep.report.schedules import other_schedule, schedule
from sweep.report.verdict import DOUBTS, estimate

NAMES = {
    "ticket": "ticket, rewound to {k}",
    "lr_rewind": "learning-rate rewinding to {k}",
    "finetune": "fine-tuning, as long as from {k}",
    "fresh": "control: fresh initialization",
    "fresh_short": "control: fresh initialization, epochs from {k}",
    "shuffled": "control: shuffled mask, from {k}",
    "random": "control: random mask, from {k}",
    "inverted": "control: inverted mask, from {k}",
    "same_signs": "control: signs of {k}, fresh magnitudes",
    "same_magnitudes": "control: magnitudes of {k}, fresh signs",
}

SHAPES = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-left", "triangle-right",
          "arrow", "stroke"]  # by kind  # fmt: skip


def write_figures(home: Home, rows: list[Row], folder: Path) -> list[Path]:
    """The figures that the finished rows allow."""
    return [path for name, chart in charts(home, rows).items() for path in save(chart, folder / name)]


def charts(home: Home, rows: list[Row]) -> dict[str, Any]:
    """The same as Altair charts, by their names."""
    done = [row for row in rows if row.test_top1 is not None and row.kind in NAMES]
    dense = [row.test_top1 for row in rows if row.kind == "dense" and row.test_top1 is not None]
    title, out = home.experiment.name, dict[str, Any]()
    if done:
        out["accuracy"] = curves(lines_of(home, done), dense, title, published(home.experiment))
    if any(row.kind == "ticket" for row in done):
        out["heatmap"] = heat_map([row for row in rows if row.kind == "ticket"], dense, title)
    if lines := [row for row in rows if row.instability is not None]:
        out["instability"] = instabilities(lines, title)
    return out


def lines_of(home: Home, done: list[Row]) -> list[dict[str, Any]]:
    """The points of the curves: in rounds beside one-shot, where the pool has both."""
    others = other_schedule(home)
    if not others:
        return averaged(done)
    mine = schedule(home.experiment)
    return averaged(done, mine) + averaged(others, "one-shot" if mine != "one-shot" else "in rounds")


def averaged(rows: list[Row], schedule: str = "") -> list[dict[str, Any]]:
    """Mean over seeds of each point of the figures, with its 95 % interval where there are several."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        level = row.quantile if row.quantile is not None else row.threshold
        groups.setdefault((row.kind, row.method, row.rewind, row.quantile is None, level), []).append(row)
    several = len({row.method for row in rows}) > 1
    out = []
    for (kind, method, k, _, _), group in groups.items():
        accuracy = estimate([row.test_top1 or 0.0 for row in group])
        name = (f"{method}: " if several else "") + NAMES[kind].format(k=k)
        point = {
            "line": f"{name}, {schedule}" if schedule else name,
            "method": method if several else "",
            "kind": kind,
            "control": kind in DOUBTS,
            "rewind": k,
            "remaining": 100 * mean(row.density or 0.0 for row in group),
            "accuracy": 100 * accuracy.mean,
            "seeds": len(group),
        }
        if accuracy.low is not None and accuracy.high is not None:
            point |= {"low": 100 * accuracy.low, "high": 100 * accuracy.high}
        out.append(point)
    return out


def curves(
    points: list[dict[str, Any]], dense: list[float], title: str, others: Sequence[Published] = (), page: bool = False
) -> Any:
    """Test accuracy against remaining weights: a line per rewind point, controls dashed, the dense network across.

    On a page, a click in the legend picks a line.
    """
    import altair as alt

    remaining = alt.X("remaining:Q", title="remaining prunable weights (%)", sort="descending").scale(type="log")
    accuracy = alt.Y("accuracy:Q", title="test accuracy at the last epoch (%)").scale(zero=False)
    order = in_order({p["rewind"] for p in points})
    place = {p["line"]: (list(NAMES).index(p["kind"]), order.index(p["rewind"]), p["line"]) for p in points}
    present = sorted(place, key=lambda line: place[line])
    shapes = [SHAPES[place[line][0] % len(SHAPES)] for line in present]
    colour = alt.Color("line:N", title=None).scale(domain=present)
    base = alt.Chart(alt.Data(values=points)).encode(x=remaining, color=colour)
    lines = base.mark_line(point={"size": 45, "filled": True}).encode(
        y=accuracy,
        strokeDash=alt.StrokeDash("control:N", legend=None).scale(domain=[False, True]),
        shape=alt.Shape("line:N", title=None).scale(domain=present, range=shapes),  # in the legend with the colour
        tooltip=[
            "line:N",
            alt.Tooltip("remaining:Q", format=".3g"),
            alt.Tooltip("accuracy:Q", format=".2f"),
            "seeds:Q",
        ],
    )
    if page:
        picked = alt.selection_point(fields=["line"], bind="legend")
        lines = lines.encode(opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1))).add_params(picked)
    layers = [lines]
    if any("low" in point for point in points):
        layers.append(
            base.mark_rule().encode(y=alt.Y("low:Q", title=""), y2="high:Q").transform_filter("isValid(datum.low)")
        )
    if dense:
        layers += across(dense)
    if others:
        layers += _published(others, remaining)
    return alt.layer(*layers).properties(width=520, height=340, title=title).configure_legend(labelLimit=320)


def across(dense: list[float]) -> list[Any]:
    """The dense network's accuracy as a line with its name."""
    import altair as alt

    whole = alt.Chart(alt.Data(values=[{"accuracy": 100 * mean(dense), "name": "dense network"}]))
    whole = whole.encode(y="accuracy:Q")
    return [whole.mark_rule(strokeDash=[2, 2]), whole.mark_text(align="left", x=4, dy=-6).encode(text="name:N")]


def _published(others: Sequence[Published], remaining: Any) -> list[Any]:
    """Grey, with the range of its trials, named at its end."""
    import altair as alt

    points = [
        {
            "remaining": 100 * one.density,
            "accuracy": 100 * one.median,
            "least": 100 * one.least,
            "greatest": 100 * one.greatest,
            "published": f"published, rewound to epoch {one.rewind_epoch}",
        }
        for one in others
    ]
    base = alt.Chart(alt.Data(values=points)).encode(x=remaining, detail="published:N")
    area = base.mark_area(opacity=0.12, color="grey").encode(y=alt.Y("least:Q", title=""), y2="greatest:Q")
    line = base.mark_line(color="grey", strokeDash=[1, 3]).encode(
        y="accuracy:Q", tooltip=["published:N", alt.Tooltip("accuracy:Q", format=".2f")]
    )
    least = min(one.density for one in others)
    ends = alt.Chart(alt.Data(values=[p for p in points if p["remaining"] == 100 * least])).encode(x=remaining)
    names = ends.mark_text(align="right", dx=-4, dy=10, color="grey").encode(y="accuracy:Q", text="published:N")
    return [area, line, names]


def heat_map(rows: list[Row], dense: list[float], title: str, difference: bool = False) -> Any:
    """Test accuracy of every ticket, or how far it is from the dense network; grey: not trained, or it failed."""
    import altair as alt

    points = averaged([row for row in rows if math.isfinite(row.test_top1 or math.nan)])
    several = len({row.method for row in rows}) > 1
    for point in points:
        point["accuracy"] -= 100 * mean(dense) if difference else 0.0
        point["left"] = f"{point['method']} {point['remaining']:.3g} %".strip()
    there = {(point["left"], point["rewind"]) for point in points}
    empty: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row.quantile is not None or row.density is not None:
            remaining = 100 * (row.density if row.density is not None else 1 - (row.quantile or 0.0))
            left = f"{row.method if several else ''} {remaining:.3g} %".strip()
            if (left, row.rewind) not in there:
                empty[left, row.rewind] = {"left": left, "rewind": row.rewind, "remaining": remaining,
                                           "state": row.state if row.state != "done" else "failed"}  # fmt: skip
    every = [*points, *empty.values()]
    order = list(dict.fromkeys(p["left"] for p in sorted(every, key=lambda p: -p["remaining"])))
    values = [p["accuracy"] for p in points]
    middle = (min(values) + max(values)) / 2
    base = alt.Chart(alt.Data(values=every)).encode(
        x=alt.X(
            "rewind:O", title="rewind point", sort=in_order({p["rewind"] for p in every}), axis=alt.Axis(labelAngle=0)
        ),
        y=alt.Y("left:O", title="remaining weights", sort=order),
    )
    # of square and text alike: the pointer over a square is mostly over its text
    filled = base.transform_filter("isValid(datum.accuracy)").encode(
        tooltip=["left:O", "rewind:O", alt.Tooltip("accuracy:Q", format=".2f"), "seeds:Q"]
    )
    farthest = max(map(abs, values)) or 1.0
    colour = alt.Color("accuracy:Q", title="points" if difference else "test accuracy (%)")
    scale = (
        colour.scale(scheme="redblue", domain=[-farthest, farthest])  # nothing at the middle: as good as dense
        if difference
        else colour.scale(scheme="viridis", zero=False)
    )
    # white text where the square is dark
    dark = abs(alt.datum.accuracy) > farthest / 2 if difference else alt.datum.accuracy < middle
    squares = filled.mark_rect().encode(color=scale)
    text = filled.mark_text().encode(
        text=alt.Text("accuracy:Q", format="+.2f" if difference else ".2f"),
        color=alt.condition(dark, alt.value("white"), alt.value("black")),
    )
    layers = [squares, text]
    if empty:
        bare = base.transform_filter("!isValid(datum.accuracy)").encode(tooltip=["left:O", "rewind:O", "state:N"])
        layers += [bare.mark_rect(color="grey", opacity=0.15), bare.mark_text(color="grey").encode(text="state:N")]
    subtitle = f"dense network: {100 * mean(dense):.2f} %" if dense else ""
    return alt.layer(*layers).properties(
        width=alt.Step(70), height=36 * len(order), title=alt.Title(title, subtitle=subtitle)
    )


def instabilities(rows: list[Row], title: str) -> Any:
    """Instability against the point the two children began from: the dense network and its tickets."""
    import altair as alt

    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        line = "dense network" if not row.method else f"ticket, {row.method} q{row.quantile:g}"
        groups.setdefault((line, row.rewind), []).append(100 * (row.instability or 0.0))
    points = [{"line": line, "point": k, "instability": mean(found)} for (line, k), found in groups.items()]
    order = in_order({k for _, k in groups})
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("point:O", title="point the children begin from", sort=order, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("instability:Q", title="instability (points of error)"),
        color=alt.Color("line:N", title=None),
        tooltip=["line:N", "point:O", alt.Tooltip("instability:Q", format=".2f")],
    )
    stable = alt.Chart(alt.Data(values=[{"y": 2.0}])).mark_rule(strokeDash=[2, 2]).encode(y="y:Q")
    return (base.mark_line(point=True) + stable).properties(width=520, height=300, title=title)


def weight_figure(bins: list[dict[str, Any]], title: str) -> Any:
    """Histogram of the magnitudes of the prunable weights, on a logarithmic axis."""
    import altair as alt

    return (
        alt.Chart(alt.Data(values=bins))
        .mark_rect()
        .encode(
            x=alt.X("from:Q", title="|final weight|, prunable").scale(type="log"),
            x2="to:Q",
            y=alt.Y("weights:Q", title="number of weights"),
            y2=alt.value(300),
        )
        .properties(width=520, height=300, title=title)
    )


def save(chart: Any, stem: Path) -> list[Path]:
    """The chart as PNG (at twice the screen's resolution) and SVG."""
    out = []
    for suffix, options in ((".png", {"ppi": 144}), (".svg", {})):
        path = stem.with_suffix(suffix)
        with replacing(path) as beside:
            chart.save(str(beside), format=suffix[1:], **options)
        out.append(path)
    return out
