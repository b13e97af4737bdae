"""Figures of a sweep as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweep.files import replacing
from sweep.graph.home import Home
from sweep.graph.results import Row
from sweep.report import rewinding
from sweep.report.curves import NAMES, curves, lines_of
from sweep.report.heat_map import heat_map
from sweep.report.published import published
from sweep.report.stability import instabilities


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
    out["instability"] = instabilities(rows, title)
    return {name: chart for name, chart in out.items() if chart is not None}


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
