"""The answer of a sweep in sentences: the first lines of the page, and of whatever cannot show the page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import mean

from sweep.graph.home import Home
from sweep.graph.results import Results, Row, collect, results_of
from sweep.graph.state import State, states
from sweep.report.verdict import MARGIN, Verdict, answer, beaten, power, rule, verdicts


def in_markdown(home: Home, margin: float = MARGIN) -> str:
    """All of them, and the table of verdicts."""
    rows = collect(home)
    found = verdicts(rows, margin)
    said = [answer(found, margin), *doubts(found, states(home)), *circumstances(rows, results_of(home), margin)]
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
        table.append(f"| {' | '.join(' '.join(str(cell).split()).replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n\n".join([*said, *(["\n".join(table)] if found else []), rule(margin)])


def doubts(found: Sequence[Verdict], where: Sequence[State]) -> list[str]:
    """What stands against the answer: controls that did better, trainings that are missing."""
    open_ = [state.state for state in where if state.state not in ("done", "skipped")]
    counts = ", ".join(f"{n} {word}" for word, n in Counter(open_).items())
    missing = f"Unfinished: {len(open_)} of {len(where)} trainings are missing ({counts})." if open_ else ""
    return [said for said in (beaten(found), missing) if said]


def circumstances(rows: Iterable[Row], results: Results, margin: float) -> list[str]:
    """What the answer is measured by: the dense network, the test images, the number of seeds."""
    rows = list(rows)
    dense = [row.test_top1 for row in rows if row.kind == "dense" and row.test_top1 is not None]
    said = "No dense run yet."
    if dense:
        said = f"Dense network: {mean(dense):.2%} over {len(dense)} seed{'' if len(dense) == 1 else 's'}."
        images = {number for result in results.values() if (number := result.get("test_images"))}
        if len(images) == 1:
            said += f" {noise(mean(dense), images.pop())}"
    return [one for one in (said, power(rows, margin)) if one]


def noise(accuracy: float, images: int) -> str:
    """
    What the choice of test images alone gives: accuracies p of two trainings on n images each differ by more than
    1.96 √(2 p (1 − p) / n) in one case of twenty, if their errors have nothing in common.

    >>> noise(0.97, 359)
    'One of the 359 test images is 0.28 points; between two single trainings, less than 2.5 points may be chance.'
    """
    points = 100 * 1.96 * math.sqrt(2 * accuracy * (1 - accuracy) / images)
    chance = f"; between two single trainings, less than {points:.1f} points may be chance" if points else ""
    return f"One of the {images:,} test images is {100 / images:.2g} points{chance}."
