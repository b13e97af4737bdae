"""The answer of a sweep in sentences: the first lines of the page, also for terminal, wandb and Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import mean

from sweep.experiment.point import Steps, in_order
from sweep.graph.results import Row
from sweep.report.intervals import density_of, gained, grouped, top1
from sweep.report.stability import stability
from sweep.report.statistics import by_images
from sweep.report.verdict import DOUBTS, MARGIN, ROUNDING, Verdict


def with_test(one: Verdict) -> str:
    """Return the p-value of a verdict with its test, such as "0.021 (worse)"; a dash without one."""
    if one.p is None:
        return "–"
    said = "< 0.001" if one.p < 0.001 else f"{one.p:.3f}" if one.p < 0.9995 else "1"
    return f"{said} ({one.tested})"


OTHERS = {  # descriptions of tickets that do not win
    "worse": "shown to be worse than the dense network",
    "control not beaten": "not shown to be better than a control",
    "undecided": "undecided",
    "failed": "failed",
    "one seed": "of one seed",
    "unknown": "without a dense run",
}


def answer(found: Sequence[Verdict], margin: float = MARGIN, step: Steps = None) -> str:
    """Return the sweep's answer in one or two sentences; `step` puts rewind points in order."""
    if not found:
        return "No ticket is trained yet."
    winning, matching = ([v for v in found if v.outcome == outcome] for outcome in ("winning", "matching"))
    if good := winning or matching:
        said = _held(winning) if winning else _unheld(matching)
        least = min(good, key=lambda v: v.density)
        sparsest = [v for v in good if round(v.density, 4) == round(least.density, 4)]
        points = in_order({v.rewind for v in sparsest}, step)
        return (
            f"{len(good)} of {len(found)} tickets {said}. The sparsest keeps {least.density:.1%} of the "
            f"prunable weights, rewound to {_several(points, 'or')}{_by(sparsest, found)}."
        )
    counts = Counter(v.outcome for v in found)
    if counts["failed"] == len(found) and not any(v.accuracy.seeds for v in found):
        return f"No ticket was trained to its end: {len(found)} of {len(found)} failed or have a fully pruned layer."
    if max(v.accuracy.seeds for v in found) == 1:
        said = "One seed: no significance test."
        if counts["failed"]:
            said += f" {counts['failed']} of {len(found)} tickets failed or have a fully pruned layer."
        if close := [v for v in found if v.difference is not None and v.difference.mean >= -margin - ROUNDING]:
            least = min(close, key=lambda v: (round(v.density, 4), -v.accuracy.mean))
            said += (
                f" The sparsest ticket within {100 * margin:g} percentage points of its dense run keeps "
                f"{least.density:.1%} of the prunable weights (rewound to {least.rewind}{_by([least], found)})."
            )
        return said
    controlled = any(v.controls or v.lacking for v in found)
    none = "No ticket wins" if controlled else "No ticket is shown to match the dense network (no controls beside them)"
    return f"{none}; of {len(found)}, {_several([f'{counts[k]} {word}' for k, word in OTHERS.items() if counts[k]])}."


def lead(rows: Sequence[Row], found: Sequence[Verdict], margin: float = MARGIN, step: Steps = None) -> str:
    """Return the answer to what the experiment asks: tickets, stability, or both; `step`: of a point."""
    tickets = answer(found, margin, step) if any(row.kind == "ticket" for row in rows) else ""
    return " ".join(filter(None, (tickets, stability(rows, step)))) or "No ticket was asked for."


def _by(some: Sequence[Verdict], found: Sequence[Verdict]) -> str:
    """Return the methods of some tickets, in words; "" if all tickets have one method."""
    several = len({v.method for v in found}) > 1
    return f", pruned by {_several(sorted({v.method for v in some}), 'or')}" if several else ""


def _held(winning: Sequence[Verdict]) -> str:
    """Return which controls the winning tickets were compared with, which may differ between tickets."""
    groups = Counter(tuple(DOUBTS[kind] for kind in DOUBTS if kind in v.controls) for v in winning)
    if len(groups) == 1:
        return f"win, held against {_several(next(iter(groups)))}"
    (kinds, first), *rest = groups.most_common()
    each = [f"{first} of them held against {_several(kinds)}", *(f"{n} against {_several(kinds)}" for kinds, n in rest)]
    return f"win: {'; '.join(each)}"


def _unheld(matching: Sequence[Verdict]) -> str:
    lacking = [DOUBTS[kind] for kind in DOUBTS if any(kind in v.lacking for v in matching)]
    why = f"controls are missing in some seeds: {_several(lacking)}" if lacking else "no controls beside them"
    return f"match the dense network ({why})"


def _several(words: Sequence[str], last: str = "and") -> str:
    """Return words joined by commas and, before the last, another word.

    >>> _several(["a"]), _several(["a", "b", "c"]), _several(["a", "b"], "or")
    ('a', 'a, b and c', 'a or b')
    """
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def beaten(found: Sequence[Verdict]) -> str:
    """Return a sentence about controls with a higher mean accuracy than their tickets, or ""."""
    pairs = [(v, kind, one) for v in found for kind, one in v.controls.items()]
    lost = sorted([pair for pair in pairs if pair[2].mean < 0], key=lambda pair: pair[2].mean)
    if not lost:
        return ""
    v, kind, one = lost[0]
    return (
        f"In {len(lost)} of {len(pairs)} comparisons a control did better than its ticket: most of all the "
        f"{DOUBTS[kind]} at {v.density:.1%} of weights remaining, beside the ticket from {v.rewind}"
        f"{_by([v], found)}, by {-100 * one.mean:.2f} percentage points."
    )


def later(rows: Iterable[Row], images: int = 0, step: Steps = None) -> str:
    """Return a sentence: the gain over the earliest rewind point at the latest one with most seeds, sparsest level."""
    tickets = [row for row in rows if row.kind == "ticket"]
    levels = grouped([row for row in tickets if row.measured and row.density], lambda row: row.level)
    several = len({method for method, _, _ in levels}) > 1
    for level, found in sorted(levels.items(), key=lambda item: density_of(item[1])):
        first, *others = in_order({row.rewind for row in found}, step)
        above = gained(tickets, first)
        gains = {k: above[level, k] for k in others if (level, k) in above}
        if not gains:
            continue
        last = max(gains, key=lambda k: (gains[k].seeds, others.index(k)))
        gain = gains[last]
        of = f"{level[0]} tickets" if several else "tickets"
        side = "above" if gain.mean >= 0 else "below"
        end = f"end {100 * abs(gain.mean):.2f} percentage points {side} those from {first}"
        said = f"At {density_of(found):.1%} of weights remaining, {of} from {last} {end}"
        if gain.interval:
            return f"{said} {gain.interval} over {gain.seeds} seeds."
        known = ""
        if images:
            reached = mean(top1(row) for row in found if row.rewind in (first, last))
            small = abs(gain.mean) < 1.96 * by_images(reached, images)
            known = ", which may be chance" if small else ", more than the choice of test images explains"
        seeds = "one seed" if gain.seeds == 1 else f"{gain.seeds} seeds, beside what failed"
        return f"{said} ({seeds}{known})."
    return ""


def near_chance(accuracy: float, images: int, classes: int, largest: float = 0.0) -> str:
    """Return a warning if a dense network has hardly learned, or "".

    That is: its accuracy is at most a tenth of the way from chance to 100 %, or within the noise of the test images.
    Chance is the share of the `largest` class or, if it is not known (0), one of the classes.

    >>> near_chance(0.12, 10_000, 10)
    'The dense network is near chance: 12.00 % on test images, 10.00 % by guessing one of 10 classes. Train it first.'
    >>> near_chance(0.92, 10_000, 10), near_chance(0.7, 15, 2)[:33]
    ('', 'The dense network is near chance:')
    >>> near_chance(0.62, 1000, 2, 0.6)[58:]
    '60.00 % by always answering the largest of 2 classes. Train it first.'
    """
    guessed = max(largest, 1 / classes)
    way = "guessing one" if guessed == 1 / classes else "always answering the largest"
    noise = 1.96 * math.sqrt(guessed * (1 - guessed) / images) if images else 0.0
    if accuracy > guessed + max(noise, 0.1 * (1 - guessed)):
        return ""
    return (
        f"The dense network is near chance: {100 * accuracy:.2f} % on test images, {100 * guessed:.2f} % by {way} "
        f"of {classes:,} classes. Train it first."
    )
