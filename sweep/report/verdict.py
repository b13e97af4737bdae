"""Is it a ticket? The rule, and what it says of every (level, rewind point) of a sweep.

Trainings of the same seed share initialization, data order and augmentation, so they are compared in pairs: the
difference is taken seed by seed, and its mean has a 95 % interval of Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from sweep.experiment.point import in_order
from sweep.graph.results import Row

MARGIN = 0.005  # half a point of accuracy
# Learning-rate rewinding and fine-tuning keep the trained weights: other ways to a sparse network, no doubt about this.
DOUBTS = {
    "fresh": "fresh initialization",
    "fresh_short": "fresh initialization over the same epochs",
    "shuffled": "shuffled mask",
    "random": "random mask",
    "inverted": "inverted mask",
    "same_signs": "fresh magnitudes",
    "same_magnitudes": "fresh signs",
}


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds, and its 95 % interval where there are two or more."""

    mean: float
    seeds: int
    half: float | None  # half of the interval's width

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half


@dataclass(frozen=True)
class Verdict:
    """What can be said of the tickets of one level and rewind point."""

    method: str
    quantile: float | None
    threshold: float | None
    density: float
    rewind: str
    accuracy: Estimate
    difference: Estimate | None  # to the dense network, paired by seed; None: no dense run to compare with
    controls: dict[str, Estimate]  # ticket minus control, paired by seed
    outcome: str  # one of OUTCOMES
    reason: str


OUTCOMES = {
    "winning": "trains as well as the whole network, and better than its controls",
    "matching": "trains as well as the whole network; not compared with controls",
    "no better than a control": "trains as well as the whole network, but so does a control",
    "worse": "worse than the whole network by more than the margin",
    "undecided": "the interval reaches over the margin: more seeds would tell",
    "one seed": "nothing can be said about spread",
    "unknown": "no dense run to compare with",
}


def rule(margin: float = MARGIN) -> str:
    """The rule in words, to be printed with every verdict."""
    return (
        f"A ticket wins when it is not worse than the dense network by more than {100 * margin:g} points (lower end of "
        "the 95 % interval of the difference, paired by seed, Student's t) and better than each of its controls "
        f"({', '.join(DOUBTS.values())}) at the same remaining weights (lower end above 0). Accuracy is that of the "
        "last epoch on the test split. With one seed nothing can be said about spread."
    )


def verdicts(rows: Iterable[Row], margin: float = MARGIN) -> list[Verdict]:
    """Of every level and rewind point that has a finished ticket; most weights first, then by rewind point."""
    done = [row for row in rows if row.test_top1 is not None and math.isfinite(row.test_top1)]
    dense = {row.seed: row.test_top1 for row in done if row.kind == "dense" and row.test_top1 is not None}
    groups: dict[tuple[str, float | None, float | None, str], dict[int, Row]] = {}
    controls_of: dict[tuple[object, ...], float] = {}
    for row in done:
        level = (row.quantile, None if row.quantile is not None else row.threshold)
        if row.kind == "ticket":
            groups.setdefault((row.method, *level, row.rewind), {})[row.seed] = row
        elif row.kind in DOUBTS:
            # a fresh initialization has no past to rewind to: it is compared with every rewind point
            rewind = "0" if row.kind == "fresh" else row.rewind
            controls_of[row.kind, row.mask, *level, rewind, row.seed] = _top1(row)
    out = []
    for (method, quantile, threshold, rewind), tickets in groups.items():
        scores = {seed: _top1(row) for seed, row in tickets.items()}
        difference = paired(scores, dense)
        controls = {}
        for doubt in DOUBTS:
            at = "0" if doubt == "fresh" else rewind
            keys = {seed: (doubt, row.mask, quantile, threshold, at, seed) for seed, row in tickets.items()}
            other = {seed: controls_of[key] for seed, key in keys.items() if key in controls_of}
            if (against := paired(scores, other)) is not None:
                controls[doubt] = against
        outcome, reason = _outcome(difference, controls, margin)
        density = mean(row.density or 0.0 for row in tickets.values())
        accuracy = estimate(list(scores.values()))
        out.append(
            Verdict(method, quantile, threshold, density, rewind, accuracy, difference, controls, outcome, reason)
        )
    order = {text: place for place, text in enumerate(in_order({v.rewind for v in out}))}
    return sorted(out, key=lambda v: (-v.density, order[v.rewind]))


def answer(found: Sequence[Verdict], margin: float = MARGIN) -> str:
    """The sweep's answer in one or two sentences."""
    if not found:
        return "No ticket is trained yet."
    winning = [v for v in found if v.outcome == "winning"]
    matching = [v for v in found if v.outcome == "matching"]
    seeds = max(v.accuracy.seeds for v in found)
    if winning or matching:
        best = winning or matching
        words = "win" if winning else "match the dense network (no controls were trained beside them)"
        least = min(best, key=lambda v: v.density)
        points = in_order({v.rewind for v in best if v.density == least.density})
        return (
            f"{len(best)} of {len(found)} tickets {words}. The sparsest keeps {least.density:.1%} of the prunable "
            f"weights, rewound to {' or '.join(points)}."
        )
    if seeds == 1:
        close = [v for v in found if v.difference is not None and v.difference.mean >= -margin]
        said = "Nothing can be said about spread from one seed."
        if close:
            least = min(close, key=lambda v: v.density)
            said += (
                f" The sparsest ticket within {100 * margin:g} points of its dense run keeps {least.density:.1%} of "
                f"the prunable weights (rewound to {least.rewind})."
            )
        return said
    undecided = sum(v.outcome == "undecided" for v in found)
    return f"No ticket wins. {undecided} of {len(found)} are undecided." if undecided else "No ticket wins."


def paired(ones: dict[int, float], others: dict[int, float]) -> Estimate | None:
    """Differences of the seeds that both have."""
    common = sorted(ones.keys() & others.keys())
    return estimate([ones[seed] - others[seed] for seed in common]) if common else None


def estimate(values: Sequence[float]) -> Estimate:
    """
    >>> one = estimate([0.90, 0.91, 0.92])
    >>> round(one.mean, 4), round(one.half, 4)
    (0.91, 0.0248)
    """
    if len(values) < 2:
        return Estimate(mean(values), len(values), None)
    from scipy.special import stdtrit

    width = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean(values), len(values), width)


def _outcome(difference: Estimate | None, controls: dict[str, Estimate], margin: float) -> tuple[str, str]:
    if difference is None:
        return "unknown", OUTCOMES["unknown"]
    said = f"{100 * difference.mean:+.2f} points against its dense run"
    if difference.low is None or difference.high is None:
        return "one seed", said
    said = f"{100 * difference.mean:+.2f} points [{100 * difference.low:+.2f}, {100 * difference.high:+.2f}]"
    if difference.high < -margin:
        return "worse", said
    if difference.low < -margin:
        return "undecided", said
    if not controls:
        return "matching", said
    beaten_by = [kind for kind, against in controls.items() if against.low is None or against.low <= 0]
    if beaten_by:
        return "no better than a control", f"{said}; not better than {', '.join(DOUBTS[kind] for kind in beaten_by)}"
    return "winning", said


def _top1(row: Row) -> float:
    assert row.test_top1 is not None
    return row.test_top1
