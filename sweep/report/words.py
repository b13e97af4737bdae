"""The answer of a sweep in words, for whoever cannot show the page."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.graph.results import Row
from sweep.report.verdict import MARGIN, answer, beaten, power, rule, verdicts


def in_markdown(rows: Sequence[Row], margin: float = MARGIN) -> str:
    """The first lines of the page and its table of verdicts."""
    found = verdicts(rows, margin)
    said = [answer(found, margin), beaten(found), power(rows, margin)]
    table = ["| method | remaining | rewind | seeds | test accuracy | verdict | |", "|---|---|---|---|---|---|---|"]
    for one in found:
        cells = (
            one.method,
            f"{one.density:.2%}",
            one.rewind,
            one.accuracy.seeds,
            one.accuracy,
            one.outcome,
            one.reason,
        )
        table.append(f"| {' | '.join(map(str, cells))} |")
    return "\n\n".join([*filter(None, said), *(["\n".join(table)] if found else []), rule(margin)])
