"""The charts of the page: those for papers, and interactive ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt

from sweep.experiment.point import Steps
from sweep.graph.home import Home, epochs_of
from sweep.graph.results import Row, evaluations
from sweep.report import figures
from sweep.report.curves import tips
from sweep.report.kept import kept, masks_of

# text in the figures has the colour of the page's text, light or dark
INK = {"labelColor": "currentColor", "titleColor": "currentColor", "domainColor": "#8888", "tickColor": "#8888"}
CONFIG = {
    "background": None,
    "axis": {**INK, "gridColor": "#8883", "labelFontSize": 12, "titleFontSize": 12},
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelLimit": 320,
        "orient": "bottom",
        "layout": {"bottom": {"direction": "vertical"}},
        "columns": 2,  # 1 on a phone (page.html)
    },
    "title": {"color": "currentColor", "subtitleColor": "currentColor"},
    "view": {"stroke": None},
    "rule": {"color": "#888"},
    "text": {"color": "#888"},
}
# keys of metrics.jsonl, some with the prefix train_ or validation_: title, and factor for the chart
MEASURES = {
    "top1": ("accuracy (%)", 100),
    "loss": ("loss", 1),
    "top5": ("accuracy among the first five (%)", 100),
    "learning_rate": ("learning rate", 1),
    "images_per_second": ("images per second", 1),
    "data_wait_share": ("share of the time waiting for data (%)", 100),
    "gpu_busy_share": ("share of the time its GPU was busy (%)", 100),
    "gpu_memory_gib": ("memory in use on its GPU (GiB)", 1),
    "gpu_clock_mhz": ("clock of its GPU (MHz)", 1),
    "gpu_power_watts": ("power of its GPU (W)", 1),
    "step_ms_p95": ("step time, 95 % of calls below (ms)", 1),
    "trainings_on_gpu": ("trainings on its GPU", 1),
}
CLASSES = 40  # most classes of a readable confusion matrix
IDS = {"accuracy": "curves", "heatmap": "grid"}  # HTML ids that differ from the chart's name
SPLITS = {"validation": ("validation_",), "training": ("train_", "")}  # prefixes of their keys


def specifications(home: Home, rows: list[Row], step: Steps = None) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the charts of the page as Vega-Lite specifications, and the lines below them, by HTML id.

    Subtitles become text below the chart, where it can wrap on a phone.
    """
    found = figures.charts(home, rows, page=True, step=step)
    evaluated = {task: one for task, one in evaluations(home).items() if len(one["per_class"]) <= CLASSES}
    found |= {"confusion": confusion(evaluated), "learning": learning(home), "layers": layers(home)}
    if len({row.rewind for row in rows if row.kind == "ticket" and row.measured}) < 2:  # the curves show the same
        found |= {"heatmap": None, "differences": None}
    drawn = {IDS.get(name, name): _on_page(chart) for name, chart in found.items() if chart is not None}
    titles = {name: spec.pop("title", None) for name, spec in drawn.items()}
    notes = {name: title.get("subtitle") or [] for name, title in titles.items() if isinstance(title, dict)}
    return drawn, {name: [said] if isinstance(said, str) else said for name, said in notes.items()}


def _on_page(chart: Any) -> dict[str, Any]:
    """Return a chart's specification with the width and colours of the page."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    if spec.get("width") == 520 or "step" in (spec.get("width") or {}):  # drawn for paper: use the page's width
        spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    spec["config"] = CONFIG
    return spec


def learning(home: Home) -> Any:
    """Return the chart of every epoch's metrics for one selected training, beside the dense runs, or None."""
    points = []
    for training in home.graph:
        for line in epochs_of(home.folder(training)):
            for split, prefixes in SPLITS.items():
                found = {
                    name: float(f"{times * value:.4g}")
                    for prefix in prefixes for name, (_, times) in MEASURES.items()
                    if isinstance(value := line.get(f"{prefix}{name}"), int | float) and math.isfinite(value)
                }  # fmt: skip
                if found:
                    points.append({"training": training.slug, "epoch": line["epoch"], "split": split} | found)
    drawn = list(dict.fromkeys(point["training"] for point in points))
    measures = [name for name in MEASURES if any(name in point for point in points)]
    if not measures:
        return None
    first = next((name for name in drawn if not name.startswith("dense")), drawn[0])
    titles = [MEASURES[name][0] for name in measures]
    choice = alt.param("chosen", value=first, bind=alt.binding_select(options=drawn, name="training: "))
    measure = alt.param(
        "measured", value=measures[0], bind=alt.binding_select(options=measures, labels=titles, name="measured: ")
    )
    dashes = alt.StrokeDash("split:N", title=None).scale(domain=["validation", "training"], range=[[1, 0], [4, 3]])
    lines = alt.Chart(alt.Data(values=points)).mark_line().encode(
        x=alt.X("epoch:Q", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("value:Q", title=None).scale(zero=False),
        color=alt.Color("training:N", title=None),
        strokeDash=dashes,
        tooltip=tips("training:N", "split:N", "epoch:Q", "value:Q"),
    )  # fmt: skip
    lines = lines.transform_filter("datum.training == chosen || indexof(datum.training, 'dense-') == 0")
    lines = lines.transform_calculate(value="datum[measured]").transform_filter("isValid(datum.value)")
    return lines.add_params(choice, measure).properties(width=520, height=300)


def confusion(found: Mapping[str, dict[str, Any]]) -> Any:
    """Return the confusion matrix of one selected training of `found`, evaluations by name; None if there is none."""
    if not found:
        return None
    points = [
        {"training": task, "class": f"{name} ({'–' if right is None else f'{right:.0%}'})", "place": row,
         "answer": list(one["per_class"])[column], "images": count, "share": count / (sum(one["confusion"][row]) or 1)}
        for task, one in found.items() for row, (name, right) in enumerate(one["per_class"].items())
        for column, count in enumerate(one["confusion"][row])
    ]  # fmt: skip
    names, order = list(found), list(next(iter(found.values()))["per_class"])
    choice = alt.param("evaluated", value=names[0], bind=alt.binding_select(options=names, name="training: "))
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("answer:N", sort=order, title="answer", axis=alt.Axis(labelAngle=-90)),
        y=alt.Y("class:N", sort=alt.EncodingSortField("place", op="min"), title="class (share of right answers)"),
        tooltip=tips("class:N", "answer:N", "images:Q", alt.Tooltip("share:Q", format=".1%")),
    )  # fmt: skip
    squares = base.mark_rect().encode(color=alt.Color("share:Q", title="share of the class").scale(scheme="blues"))
    dark = alt.condition("datum.share > 0.5", alt.value("white"), alt.value("black"))
    counts = base.mark_text(fontSize=9).encode(text=alt.Text("images:Q"), color=dark)
    chart = alt.layer(squares, counts).transform_filter("datum.training == evaluated").add_params(choice)
    return chart.properties(width=520, height=20 * len(order))


def layers(home: Home) -> Any:
    """Return the chart of weights remaining per layer at one selected level (first seed with masks), or None."""
    found, made = kept(home), dict[str, str]()
    there = [mask for mask in masks_of(home) if mask.name in found.kept]
    seed = next((seed for seed in home.experiment.seeds if any(mask.of.origin == seed for mask in there)), None)
    several = len(home.experiment.prune.methods) > 1
    for mask in sorted(there, key=lambda one: (str(one.method), one.level.kind, one.level.value)):
        if mask.of.origin == seed:
            made.setdefault(f"{mask.method} {mask.level}" if several else str(mask.level), mask.name)
    if not made:
        return None
    points = [
        {"level": name, "kernel": kernel, "weights": found.weights[kernel], "kept": count,
         "remaining": round(100 * count / found.weights[kernel], 3), "of": f"{count:,} of {found.weights[kernel]:,}"}
        for name, mask in made.items() for kernel, count in found.kept[mask].items()
    ]  # fmt: skip
    kernels, names = list(found.weights), list(made)
    choice = alt.param("level", value=names[-1], bind=alt.binding_select(options=names, name="level: "))
    base = (
        alt.Chart(alt.Data(values=points))
        .encode(y=alt.Y("kernel:N", sort=kernels, title=None, axis=alt.Axis(labelFontSize=10)))
        .transform_filter("datum.level == level")
    )
    bars = base.mark_bar().encode(
        # title at the end of the axis: layer names leave little room on a phone
        x=alt.X("remaining:Q", title="weights remaining (%)", axis=alt.Axis(titleAnchor="end")).scale(domain=[0, 100]),
        tooltip=tips("kernel:N", "weights:Q", "kept:Q", "remaining:Q"),
    )
    counts = base.encode(
        x=alt.X("remaining:Q").scale(domain=[0, 100]),
        text=alt.Text("of:N"),
        color=alt.condition("datum.kept == 0", alt.value("crimson"), alt.value("#888")),
    )
    beside = counts.transform_filter("datum.remaining <= 75").mark_text(align="left", dx=3, fontSize=9)
    within = counts.transform_filter("datum.remaining > 75").mark_text(align="right", dx=-3, fontSize=9)
    within = within.encode(color=alt.value("white"))  # printed on the bar
    return (bars + beside + within).add_params(choice).properties(width=520, height=13 * len(kernels))
