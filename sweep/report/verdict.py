"""Is it a ticket? The rule, and what it says of every (method, level, rewind point) of a sweep.

Trainings of the same seed share initialization, data order and augmentation, so they are compared in pairs: the
difference is taken seed by seed. How it is tested: sweep.report.statistics and docs/verdict.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sweep.errors import Refused
from sweep.experiment.controls import CONTROLS
from sweep.experiment.point import in_order
from sweep.graph.results import Row
from sweep.report import statistics
from sweep.report.intervals import Estimate, asked, density_of, estimate, estimated
from sweep.report.statistics import LEVEL, SEEDS, Comparison

MARGIN = 0.005  # half a point of accuracy
SPREAD = 0.0025  # of the differences of a ticket, assumed before any was measured
# Learning-rate rewinding and fine-tuning keep the trained weights: other ways to a sparse network, no doubt about this.
DOUBTS = {kind: control.doubt for kind, control in CONTROLS.items()}


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
    p: float | None  # of what DECIDED names, after Holm's correction; None: too few seeds, or failed


OUTCOMES = {
    "winning": "trains as well as the whole network, and better than its controls",
    "matching": "trains as well as the whole network; not compared with controls",
    "control not beaten": "trains as well as the whole network; not shown to be better than a control",
    "worse": "worse than the whole network by more than the margin",
    "undecided": "neither is shown: more seeds would tell",
    "one seed": "nothing can be said about spread",
    "failed": "a training of it failed, diverged or was skipped because its mask cuts the network through",
    "unknown": "no dense run to compare with",
}
DECIDED = (
    'p, corrected: for "worse", that it is worse; for "matching" and "undecided", that it matches the dense network; '
    "otherwise that it wins."
)


def rule(margin: float = MARGIN) -> str:
    """The rule in three sentences, to be printed with every verdict."""
    return (
        f"A ticket wins when it is not worse than the dense network by more than {100 * margin:g} points and better "
        "than each of its controls at the same mask, by t tests of the differences paired by seed whose variance is "
        f"pooled with tickets of neighbouring densities. Both must hold at {100 * LEVEL:g} % after Holm's correction "
        f"for the number of tickets, with {SEEDS} seeds or more. A ticket that failed, diverged or collapsed in any "
        "seed does not win, and accuracy is that of the last epoch on the test split."
    )


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
    to_come: int  # tickets of which nothing is trained yet

    @property
    def differences(self) -> np.ndarray:
        return self.accuracy - self.dense

    def compared(self, kind: str, tests: Comparison) -> np.ndarray:
        """Whether a control is there in seeds enough. One that diverged was tried: two others say how far it is off."""
        return (tests.pairs >= 2) & (tests.pairs + self.diverged[kind] >= SEEDS)

    def corrected(self, p: np.ndarray) -> np.ndarray:
        """For all tickets of the sweep: what is called winning early shall not lose for there being more."""
        return statistics.holm(p, self.to_come)


def verdicts(rows: Iterable[Row], margin: float = MARGIN) -> list[Verdict]:
    """Of every level and rewind point with a finished or failed ticket; most weights first, then by rewind point."""
    if not 0 <= margin <= 1:
        raise Refused(f"margin {margin:g}: expected a share of the images, 0 to 1 (0.005 is half a point)")
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
    beats = {
        kind: np.where(table.planned[kind], np.where(table.compared(kind, tests), tests.above(0.0), 1.0), 0.0)
        for kind, tests in against.items()
    }
    controlled = np.logical_or.reduce([*table.planned.values(), np.zeros(len(table.keys), bool)])
    enough = against_dense.pairs >= SEEDS
    p_matching, p_winning = table.corrected(matches), table.corrected(np.maximum.reduce([matches, *beats.values()]))
    matching = enough & (p_matching <= LEVEL)
    winning = matching & controlled & (p_winning <= LEVEL)
    p_worse = table.corrected(against_dense.below(-margin))
    worse = enough & (p_worse <= LEVEL)
    alone = {kind: table.corrected(np.maximum(matches, p)) for kind, p in beats.items()}  # were it the only control
    out = []
    for g, (method, quantile, threshold, rewind) in enumerate(table.keys):
        difference = estimated(against_dense, g)
        controls = {kind: found for kind, tests in against.items() if (found := estimated(tests, g)) is not None}
        outcome = _outcome(table, g, difference, bool(matching[g]), bool(winning[g]), bool(worse[g]), against)
        scores = [_top1(row) for row in table.tickets[g].values() if row.measured]
        accuracy = estimate(scores) if scores else Estimate(math.nan, 0, None)
        unbeaten = [kind for kind in controls if alone[kind][g] > LEVEL] or sorted(
            controls, key=lambda k: -beats[k][g]
        )[:1]
        density, reason = density_of(table.tickets[g].values()), _reason(table, g, difference, outcome, unbeaten)
        decides = {"worse": p_worse, "matching": p_matching, "undecided": p_matching}.get(outcome, p_winning)
        p = float(decides[g]) if enough[g] and not table.failed[g] else None
        lacking = tuple(
            kind for kind, tests in against.items() if table.planned[kind][g] and not table.compared(kind, tests)[g]
        )
        out.append(
            Verdict(method, quantile, threshold, density, rewind, accuracy, difference, controls, lacking, outcome,
                    reason, p)
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
        if row.kind == "dense" and row.measured:
            dense[place[row.seed]] = _top1(row)
        elif row.kind == "ticket":
            groups.setdefault((row.method, *level, row.rewind), {})[row.seed] = row
        elif row.kind in DOUBTS:
            # a fresh initialization has no past to rewind to: it is compared with every rewind point
            controls_of[row.kind, row.mask, *level, "0" if CONTROLS[row.kind].once else row.rewind, row.seed] = row
    begun = {key: found for key, found in groups.items() if any(row.measured or row.lost for row in found.values())}
    shape = (len(begun), len(seeds))
    accuracy = np.full(shape, np.nan)
    controls = {kind: np.full(shape, np.nan) for kind in DOUBTS}
    planned = {kind: np.zeros(len(begun), bool) for kind in DOUBTS}
    diverged = {kind: np.zeros(len(begun), int) for kind in DOUBTS}
    for g, ((_, quantile, threshold, rewind), found) in enumerate(begun.items()):
        for seed, row in found.items():
            accuracy[g, place[seed]] = _top1(row) if row.measured else np.nan
            for kind in DOUBTS:
                at = "0" if CONTROLS[kind].once else rewind
                other = controls_of.get((kind, row.mask, quantile, threshold, at, seed))
                if other is not None and other.state != "skipped":  # cut through: there is nothing to compare with
                    planned[kind][g] = True
                    diverged[kind][g] += other.lost
                    controls[kind][g, place[seed]] = _top1(other) if other.measured else np.nan
    failed = np.array([any(row.lost for row in found.values()) for found in begun.values()], bool)
    ranks = statistics.ranked([asked(key[1], found.values()) for key, found in begun.items()])
    there = [kind for kind in DOUBTS if planned[kind].any()]
    return _Table(list(begun), list(begun.values()), accuracy, dense, {k: controls[k] for k in there},
                  {k: planned[k] for k in there}, {k: diverged[k] for k in there}, failed, ranks,
                  len(groups) - len(begun))  # fmt: skip


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
    return "control not beaten" if compared else "matching"


def _reason(table: _Table, g: int, difference: Estimate | None, outcome: str, unbeaten: Sequence[str]) -> str:
    if outcome == "failed":
        why = sorted({row.reason or row.state for row in table.tickets[g].values() if row.lost})
        return "; ".join(why)[:300]
    if difference is None:
        return OUTCOMES["unknown"]
    said = f"{100 * difference.mean:+.2f} points {difference.interval}".rstrip()
    if outcome != "control not beaten":
        return said
    return f"{said}; not shown to be better than {', '.join(DOUBTS[kind] for kind in unbeaten)}"


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


def _top1(row: Row) -> float:
    assert row.test_top1 is not None
    return row.test_top1
