"""The grid of densities and rewind points as a heat map."""

from __future__ import annotations

import math
from statistics import mean
from typing import Any

from sweep.experiment.point import in_order
from sweep.graph.results import Row
from sweep.report.curves import averaged


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
