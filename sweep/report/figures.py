"""Figures of a sweep as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from sweep.experiment.point import Steps
from sweep.files import write_bytes
from sweep.graph.home import Home
from sweep.graph.results import Row
from sweep.report import rewinding
from sweep.report.curves import NAMES, curves, lines_of
from sweep.report.heat_map import heat_map
from sweep.report.intervals import dense_of
from sweep.report.published import published
from sweep.tracking.dashboard import FIGURES


def write_figures(home: Home, rows: list[Row], folder: Path, step: Steps = None) -> list[Path]:
    """Write the figures that the finished rows allow, and return their paths."""
    drawn = charts(home, rows, home.experiment.name, step=step)
    return [path for name, chart in drawn.items() for path in save(chart, folder / name)]


def charts(home: Home, rows: list[Row], title: str = "", page: bool = False, step: Steps = None) -> dict[str, Any]:
    """Return the figures that the finished rows allow as Altair charts, by name.

    On a page, a click in the legend selects a line. `step` puts rewind points in order.
    """
    drawn = [row for row in rows if row.kind in NAMES]
    tickets, dense = [row for row in drawn if row.kind == "ticket"], dense_of(rows)
    found = {"rewinds": rewinding.accuracy(tickets, dense, title, step),
             "gains": rewinding.gains(tickets, title, step),
             "instability": rewinding.instabilities(rows, title, step)}  # fmt: skip
    if any(row.measured for row in drawn):
        beside = published(home.experiment)
        points = lines_of(home, drawn, dense)
        found["accuracy"] = curves(points, [*dense.values()], title, beside, page, step=step)
        if counted := [point for point in points if "macs" in point]:
            found["multiply_adds"] = curves(counted, [*dense.values()], title, (), page, "macs", step)
    if any(row.measured for row in tickets):
        found["heatmap"] = heat_map(tickets, dense, title, step=step)
        found["differences"] = heat_map(tickets, dense, title, True, step) if dense else None
    return {name: found[name] for name in FIGURES if found.get(name) is not None}


def weight_figure(bins: list[dict[str, Any]], title: str) -> Any:
    """Return the histogram of the magnitudes of the prunable weights, on a logarithmic axis."""
    magnitude = alt.X("from:Q", title="|final weight|, prunable").scale(type="log")
    number = alt.Y("weights:Q", title="number of weights")
    bars = (
        alt.Chart(alt.Data(values=bins)).mark_rect().encode(x=magnitude, x2=alt.X2("to:Q"), y=number, y2=alt.value(300))
    )
    return bars.properties(width=520, height=300, title=title)


def save(chart: Any, stem: Path) -> list[Path]:
    """Write the chart as PNG (144 ppi) and SVG; return both paths."""
    # one conversion for both; the tests validate specifications
    version = alt.SCHEMA_VERSION.rpartition(".")[0]
    svg = vl_convert.vegalite_to_svg(chart.to_dict(validate=False), vl_version=version)
    out = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]  # names may contain dots
    for path, content in zip(out, (vl_convert.svg_to_png(svg, ppi=144), svg.encode()), strict=True):
        write_bytes(path, content)
    return out
