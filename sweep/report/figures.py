"""Figures of a sweep as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from sweep.experiment.point import in_order
from sweep.files import replacing
from sweep.graph.home import Home
from sweep.graph.results import Row
from sweep.report import rewinding
from sweep.report.curves import NAMES, curves, lines_of
from sweep.report.heat_map import heat_map
from sweep.report.published import published


def write_figures(home: Home, rows: list[Row], folder: Path) -> list[Path]:
    """The figures that the finished rows allow."""
    return [path for name, chart in charts(home, rows).items() for path in save(chart, folder / name)]


def charts(home: Home, rows: list[Row]) -> dict[str, Any]:
    """The same as Altair charts, by their names."""
    drawn = [row for row in rows if row.kind in NAMES]
    each = {row.seed: row.test_top1 or 0.0 for row in rows if row.kind == "dense" and row.measured}
    dense = list(each.values())
    title, out = home.experiment.name, dict[str, Any]()
    if any(row.measured for row in drawn):
        out["accuracy"] = curves(lines_of(home, drawn, each), dense, title, published(home.experiment))
    tickets = [row for row in drawn if row.kind == "ticket"]
    if any(row.measured for row in tickets):
        out["heatmap"] = heat_map(tickets, each, title)
        if dense:
            out["differences"] = heat_map(tickets, each, title, difference=True)
        out["rewinds"], out["gains"] = rewinding.accuracy(tickets, each, title), rewinding.gains(tickets, title)
    if lines := [row for row in rows if row.instability is not None]:
        out["instability"] = instabilities(lines, title)
    return {name: chart for name, chart in out.items() if chart is not None}


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
    import vl_convert
    from altair import SCHEMA_VERSION

    # once for both; whether the specification is a right one is for the tests to say
    svg = vl_convert.vegalite_to_svg(chart.to_dict(validate=False), vl_version=".".join(SCHEMA_VERSION.split(".")[:2]))
    out = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]  # in a name there are points
    for path, content in zip(out, (vl_convert.svg_to_png(svg, ppi=144), svg.encode()), strict=True):
        with replacing(path) as beside:
            beside.write_bytes(content)
    return out
