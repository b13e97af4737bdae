"""Is it a ticket? The rule, and what it says of every (method, level, rewind point) of a sweep.

Trainings of the same seed share initialization, data order and augmentation, so they are compared in pairs: the
difference is taken seed by seed. How it is tested: sweep.report.statistics and docs/verdict.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TypeVar

import numpy as np

from sweep.experiment.point import in_order
from sweep.graph.results import Row
from sweep.report import statistics
from sweep.report.statistics import LEVEL, SEEDS, Comparison

MARGIN = 0.005  # half a point of accuracy
SPREAD = 0.0025  # of the differences of a ticket, assumed before any was measured
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
    """Mean over seeds, and its 95 % interval where there are enough of them."""

    mean: float
    seeds: int
    half: float | None  # half of the interval's width

    def __str__(self) -> str:
        if not self.seeds:
            return "–"
        return f"{self.mean:.2%}" + (f" ± {100 * self.half:.2f}" if self.half is not None else "")

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half

    @property
    def interval(self) -> str:
        """Of a difference, in points; nothing where there is none.

        >>> Estimate(0.01, 3, 0.005).interval
        '[+0.50, +1.50]'
        """
        if self.half is None:
            return ""
        return f"[{100 * (self.mean - self.half):+.2f}, {100 * (self.mean + self.half):+.2f}]"


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
    lacking: tuple[str, ...]  # controls that were planned and are not there in enough seeds
    outcome: str  # one of OUTCOMES
    reason: str


OUTCOMES = {
    "winning": "trains as well as the whole network, and better than its controls",
    "matching": "trains as well as the whole network; not compared with controls",
    "no better than a control": "trains as well as the whole network, but so does a control",
    "worse": "worse than the whole network by more than the margin",
    "undecided": "neither is shown: more seeds would tell",
    "one seed": "nothing can be said about spread",
    "failed": "a training of it failed, diverged or was skipped because its mask cuts the network through",
    "unknown": "no dense run to compare with",
}


def rule(margin: float = MARGIN) -> str:
    """The rule in three sentences, to be printed with every verdict."""
    return (
        f"A ticket wins when it is not worse than the dense network by more than {100 * margin:g} points and better "
        "than each of its controls at the same mask, by t tests of the differences paired by seed whose variance is "
        f"pooled with tickets of neighbouring densities. Both must hold at {100 * LEVEL:g} % after Holm's correction "
        f"for the number of tickets, with {SEEDS} seeds or more. A ticket that failed, diverged or collapsed in any "
        "seed does not win, and accuracy is that of the last epoch on the test split."
    )


Named = TypeVar("Named")
Key = tuple[str, float | None, float | None, str]  # method, quantile, threshold, rewind point


@dataclass(frozen=True)
class _Table:
    """The accuracies of a sweep: tickets × seeds, NaN where there is none."""

    keys: list[Key]
    tickets: list[dict[int, Row]]
    accuracy: np.ndarray
    dense: np.ndarray
    controls: dict[str, np.ndarray]
    planned: dict[str, np.ndarray]  # whether the ticket has such a control, done or not
    diverged: dict[str, np.ndarray]  # in how many seeds that control failed
    failed: np.ndarray
    ranks: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        return self.accuracy - self.dense

    def compared(self, kind: str, tests: Comparison) -> np.ndarray:
        """Whether a control is there in seeds enough. One that diverged was tried: two others say how far it is off."""
        return (tests.pairs >= 2) & (tests.pairs + self.diverged[kind] >= SEEDS)


def verdicts(rows: Iterable[Row], margin: float = MARGIN) -> list[Verdict]:
    """Of every level and rewind point with a finished or failed ticket; most weights first, then by rewind point."""
    table = _table(list(rows))
    if not table.keys:
        return []
    against_dense = statistics.compare(table.differences, table.ranks, table.failed)
    against = {
        kind: statistics.compare(table.accuracy - other, table.ranks, table.failed)
        for kind, other in table.controls.items()
    }
    matches = against_dense.above(-margin)
    # of a control that few seeds have, nothing is shown
    beats = [
        np.where(table.planned[kind], np.where(table.compared(kind, tests), tests.above(0.0), 1.0), 0.0)
        for kind, tests in against.items()
    ]
    controlled = np.logical_or.reduce([*table.planned.values(), np.zeros(len(table.keys), bool)])
    enough = against_dense.pairs >= SEEDS
    matching = enough & (statistics.holm(matches) <= LEVEL)
    winning = matching & controlled & (statistics.holm(np.maximum.reduce([matches, *beats])) <= LEVEL)
    worse = enough & (statistics.holm(against_dense.below(-margin)) <= LEVEL)
    out = []
    for g, (method, quantile, threshold, rewind) in enumerate(table.keys):
        difference = _estimate(against_dense, g)
        controls = {kind: found for kind, tests in against.items() if (found := _estimate(tests, g)) is not None}
        outcome = _outcome(table, g, difference, bool(matching[g]), bool(winning[g]), bool(worse[g]), against)
        scores = [_top1(row) for row in table.tickets[g].values() if _finite(row)]
        accuracy = estimate(scores) if scores else Estimate(math.nan, 0, None)
        density, reason = _density(table.tickets[g].values()), _reason(table, g, difference, outcome, controls)
        lacking = tuple(
            kind for kind, tests in against.items() if table.planned[kind][g] and not table.compared(kind, tests)[g]
        )
        out.append(
            Verdict(method, quantile, threshold, density, rewind, accuracy, difference, controls, lacking, outcome,
                    reason)
        )  # fmt: skip
    order = {text: place for place, text in enumerate(in_order({v.rewind for v in out}))}
    return sorted(
        out, key=lambda v: (-round(v.density, 4), order[v.rewind], -v.accuracy.mean if v.accuracy.seeds else 0.0)
    )


def _table(rows: list[Row]) -> _Table:
    seeds = sorted({row.seed for row in rows})
    place = {seed: i for i, seed in enumerate(seeds)}
    dense, groups = np.full(len(seeds), np.nan), dict[Key, dict[int, Row]]()
    controls_of: dict[tuple[object, ...], Row] = {}
    for row in rows:
        level = (row.quantile, None if row.quantile is not None else row.threshold)
        if row.kind == "dense" and _finite(row):
            dense[place[row.seed]] = _top1(row)
        elif row.kind == "ticket":
            groups.setdefault((row.method, *level, row.rewind), {})[row.seed] = row
        elif row.kind in DOUBTS:
            # a fresh initialization has no past to rewind to: it is compared with every rewind point
            controls_of[row.kind, row.mask, *level, "0" if row.kind == "fresh" else row.rewind, row.seed] = row
    begun = {key: found for key, found in groups.items() if any(_finite(row) or lost(row) for row in found.values())}
    shape = (len(begun), len(seeds))
    accuracy = np.full(shape, np.nan)
    controls = {kind: np.full(shape, np.nan) for kind in DOUBTS}
    planned = {kind: np.zeros(len(begun), bool) for kind in DOUBTS}
    diverged = {kind: np.zeros(len(begun), int) for kind in DOUBTS}
    for g, ((_, quantile, threshold, rewind), found) in enumerate(begun.items()):
        for seed, row in found.items():
            accuracy[g, place[seed]] = _top1(row) if _finite(row) else np.nan
            for kind in DOUBTS:
                at = "0" if kind == "fresh" else rewind
                other = controls_of.get((kind, row.mask, quantile, threshold, at, seed))
                if other is not None and other.state != "skipped":  # cut through: there is nothing to compare with
                    planned[kind][g] = True
                    diverged[kind][g] += lost(other)
                    controls[kind][g, place[seed]] = _top1(other) if _finite(other) else np.nan
    failed = np.array([any(lost(row) for row in found.values()) for found in begun.values()], bool)
    ranks = statistics.ranked([asked(key[1], found.values()) for key, found in begun.items()])
    there = [kind for kind in DOUBTS if planned[kind].any()]
    return _Table(list(begun), list(begun.values()), accuracy, dense, {k: controls[k] for k in there},
                  {k: planned[k] for k in there}, {k: diverged[k] for k in there}, failed, ranks)  # fmt: skip


def _finite(row: Row) -> bool:
    return row.test_top1 is not None and math.isfinite(row.test_top1)


def lost(row: Row) -> bool:
    """It will have no accuracy: it failed, diverged or was skipped."""
    return row.state in ("failed", "skipped") or (row.test_top1 is not None and not math.isfinite(row.test_top1))


def asked(quantile: float | None, rows: Collection[Row]) -> float:
    """The density asked for; of an absolute threshold, the one that came out."""
    return 1 - quantile if quantile is not None else _density(rows)


def _density(rows: Collection[Row]) -> float:
    known = [row.density for row in rows if row.density is not None]
    planned = [1 - row.quantile for row in rows if row.quantile is not None]
    return mean(known or planned or [0.0])


def _estimate(tests: Comparison, ticket: int) -> Estimate | None:
    pairs = int(tests.pairs[ticket])
    return Estimate(float(tests.mean[ticket]), pairs, tests.half(ticket)) if pairs else None


def _outcome(
    table: _Table, g: int, difference: Estimate | None, matching: bool, winning: bool, worse: bool,
    against: dict[str, Comparison],
) -> str:  # fmt: skip
    if table.failed[g]:
        return "failed"
    if difference is None:
        return "unknown"
    if difference.seeds == 1:
        return "one seed"
    if winning:
        return "winning"
    if worse:
        return "worse"
    if not matching:
        return "undecided"
    planned = [kind for kind in against if table.planned[kind][g]]
    compared = planned and all(table.compared(kind, against[kind])[g] for kind in planned)
    return "no better than a control" if compared else "matching"


def _reason(table: _Table, g: int, difference: Estimate | None, outcome: str, controls: dict[str, Estimate]) -> str:
    if outcome == "failed":
        why = sorted({row.reason or row.state for row in table.tickets[g].values() if lost(row)})
        return "; ".join(why)[:300]
    if difference is None:
        return OUTCOMES["unknown"]
    said = f"{100 * difference.mean:+.2f} points {difference.interval}".rstrip()
    if outcome != "no better than a control":
        return said
    beaten_by = [kind for kind, one in controls.items() if one.low is None or one.low <= 0] or list(controls)
    return f"{said}; not shown to be better than {', '.join(DOUBTS[kind] for kind in beaten_by)}"


def power(rows: Iterable[Row], margin: float = MARGIN) -> str:
    """What the seeds of a sweep can show at all; before anything was measured, with an assumed spread."""
    rows = list(rows)
    keys = {(*row.level, row.rewind) for row in rows if row.kind == "ticket"}
    seeds = len({row.seed for row in rows if row.kind == "dense"})
    if not keys:
        return ""
    table = _table(rows)
    measured = statistics.spread(table.differences) if table.keys else None
    deviation, tickets = measured or SPREAD, len(keys)
    how = "measured" if measured else "assumed"
    said = f"Differences spread by {100 * deviation:.2f} points ({how}). "
    if seeds < SEEDS:
        said += f"{seeds} seed{'s' if seeds > 1 else ''} can show nothing; "
    else:
        least = statistics.smallest_margin(deviation, seeds, tickets)
        said += f"{seeds} seeds and {tickets} tickets show a margin of {100 * least:.2f} points (80 % power); "
    seeds = statistics.seeds_for(margin, deviation, tickets)
    return said + f"{100 * margin:g} points take {seeds if seeds < statistics.MANY else f'{seeds} or more'} seeds."


def paired(
    differences: Mapping[Named, Mapping[int, float]], densities: Mapping[Named, float], failed: Collection[Named] = ()
) -> dict[Named, Estimate]:
    """Means of differences by seed, and their intervals by the rule's variance: pooled with neighbouring densities.

    What `failed` in any seed has no interval, and its spread says nothing of others.
    """
    if not differences:
        return {}
    seeds = sorted({seed for found in differences.values() for seed in found})
    table = np.array([[found.get(seed, math.nan) for seed in seeds] for found in differences.values()])
    ranks = statistics.ranked([densities[name] for name in differences])
    tests = statistics.compare(table, ranks, np.array([name in failed for name in differences]))
    return {name: one for g, name in enumerate(differences) if (one := _estimate(tests, g)) is not None}


def estimate(values: Sequence[float]) -> Estimate:
    """Of accuracies, with Student's interval. Of two seeds that would be 9 standard deviations wide on each side.

    >>> one = estimate([0.90, 0.91, 0.92])
    >>> round(one.mean, 4), round(one.half, 4)
    (0.91, 0.0248)
    """
    if len(values) < SEEDS:
        return Estimate(mean(values), len(values), None)
    from scipy.special import stdtrit

    width = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean(values), len(values), width)


def _top1(row: Row) -> float:
    assert row.test_top1 is not None
    return row.test_top1
