"""The heat map of densities and rewind points."""

from __future__ import annotations

from statistics import mean
from typing import Any

import altair as alt

from sweep.experiment.point import Steps, in_order
from sweep.graph.results import Row
from sweep.report.curves import AXES, along, densest_first, level_names, told
from sweep.report.intervals import density_of, grouped, top1


def heat_map(rows: list[Row], dense: dict[int, float], title: str, difference: bool = False, step: Steps = None) -> Any:
    """Return the heat map of tickets' test accuracy or of its difference from the dense runs; grey: no result."""
    points, empty = _squares(rows, dense if difference else None)
    most = max((p["seeds"] for p in points), default=0)
    for point in points:
        point["label"] = f"{point['accuracy']:{'+.2f' if difference else '.2f'}}".replace("-", "−")
        point["label"] += f" ({point['seeds']})" if point["seeds"] < most else ""
    every = [*points, *empty]
    order = densest_first(every)
    values = [p["accuracy"] for p in points] or [0.0]
    middle = (min(values) + max(values)) / 2
    base = alt.Chart(alt.Data(values=every)).encode(
        x=along(in_order({p["rewind"] for p in every}, step)),
        y=alt.Y("level:O", title=AXES["remaining"], sort=order),
    )
    # tooltip for square and text: the pointer is mostly over the text
    filled = base.transform_filter("isValid(datum.accuracy)").encode(
        tooltip=told(alt.Tooltip("accuracy:Q", format=".2f"), "seeds:Q")
    )
    farthest = max(map(abs, values)) or 1.0
    colour = alt.Color("accuracy:Q", title="percentage points" if difference else "test accuracy (%)")
    white_at_0 = {"scheme": "redblue", "domain": [-farthest, farthest]}  # as good as dense
    colour = colour.scale(**(white_at_0 if difference else {"scheme": "viridis", "zero": False}))
    # white text on dark squares
    dark = abs(alt.datum.accuracy) > farthest / 2 if difference else alt.datum.accuracy < middle
    printed = alt.condition(dark, alt.value("white"), alt.value("black"))
    layers = [
        filled.mark_rect().encode(color=colour),
        filled.mark_text().encode(text=alt.Text("label:N"), color=printed),
    ]
    if empty:
        bare = base.transform_filter("!isValid(datum.accuracy)").encode(tooltip=told("state:N"))
        layers += [
            bare.mark_rect(color="grey", opacity=0.15),
            bare.mark_text(color="grey").encode(text=alt.Text("state:N")),
        ]
    said = [f"dense network: {100 * mean(dense.values()):.2f} %"] if dense else []
    said += ["in brackets: how many seeds, where fewer"] if any(p["seeds"] < most for p in points) else []
    return alt.layer(*layers).properties(
        width=alt.Step(70), height=36 * len(order), title=alt.Title(title, subtitle="; ".join(said))
    )


def _squares(rows: list[Row], dense: dict[int, float] | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the squares with a number (minus the dense runs if given), and those without one, with their state."""
    names, levels = level_names(rows), grouped(rows, lambda row: row.level)
    points, empty = [], []
    for (level, k), found in grouped(rows, lambda row: (row.level, row.rewind)).items():
        if level not in names:  # an absolute threshold whose density is not known yet
            continue
        remaining = 100 * density_of([row for row in levels[level] if row.measured] or levels[level])
        square = {"level": names[level], "rewind": k, "remaining": remaining}
        values = [100 * (top1(row) - (dense[row.seed] if dense else 0.0)) for row in found
                  if row.measured and (dense is None or row.seed in dense)]  # fmt: skip
        if values:
            points.append(square | {"accuracy": mean(values), "seeds": len(values)})
        else:
            states = {row.state if row.state != "done" else "failed" if row.lost else "no dense run" for row in found}
            empty.append(square | {"state": next((one for one in ("failed", "skipped") if one in states), min(states))})
    return points, empty
