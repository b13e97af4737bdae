"""The verdict: the rule for winning tickets, and its result for every (method, level, rewind point) of a sweep.

Trainings of the same seed share initialization, data order and augmentation, so they are compared in pairs: the
difference is taken seed by seed. The test is described in sweep.report.statistics and docs/verdict.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from sweep.errors import Refused
from sweep.experiment.controls import CONTROLS
from sweep.experiment.point import Steps, in_order
from sweep.graph.results import Row
from sweep.report import statistics
from sweep.report.intervals import accuracies, by_level, compared, dense_of, density_of, estimate, grouped, minus
from sweep.report.statistics import LEVEL, SEEDS, Comparison, Estimate

MARGIN = 0.005  # half a percentage point of accuracy
ROUNDING = 1e-9  # of a difference of two accuracies: 0.915 - 0.92 is below -0.005
SPREAD, SPREAD_IMAGES = 0.0025, 10_000  # standard deviation of a ticket's differences, assumed before it is measured
# no learning-rate rewinding or fine-tuning: they are other ways to a sparse network, not controls of a ticket
DOUBTS = {kind: control.doubt for kind, control in CONTROLS.items()}


@dataclass(frozen=True)
class Verdict:
    """The verdict on the tickets of one level and rewind point."""

    method: str
    quantile: float | None
    threshold: float | None
    density: float
    rewind: str
    accuracy: Estimate
    difference: Estimate | None  # from the dense network, paired by seed; None: no dense run to compare with
    controls: dict[str, Estimate]  # ticket minus control, paired by seed
    lacking: tuple[str, ...]  # planned controls that have too few seeds
    outcome: str  # one of OUTCOMES
    reason: str
    p: float | None  # p-value of the claim `tested`, after Holm's correction; None: too few seeds, or failed
    data: str = ""  # data set of training and test
    found_on: str = ""  # data set on which its masks were found
    macs: float | None = None  # share of multiply-adds remaining, mean over seeds; None: no masks there
    bytes: float | None = None  # size of the weights, mean over seeds

    @property
    def tested(self) -> str:
        """Return the claim that p belongs to: matches, worse or wins (DECIDED)."""
        return {"worse": "worse", "matching": "matches", "undecided": "matches"}.get(self.outcome, "wins")


OUTCOMES = {
    "winning": "trains as well as the dense network, and better than its controls",
    "matching": "trains as well as the dense network; not compared with controls",
    "control not beaten": "trains as well as the dense network; not shown to be better than a control",
    "worse": "worse than the dense network by more than the margin",
    "undecided": "neither is shown: more seeds would tell",
    "one seed": "no significance test",
    "failed": "a training of it failed, diverged or was skipped because of a fully pruned layer",
    "unknown": "no dense run to compare with",
}
DECIDED = (
    "p: one-sided t tests of differences paired by seed, with Holm's correction for the number of tickets. "
    "matches: not worse than the dense network by more than the margin; worse: worse by more than the margin; "
    "wins: matches, and better than every control (the largest p of these counts)."
)


def rule(margin: float = MARGIN) -> str:
    """Return the rule of the verdicts in sentences, to be printed with them."""
    return (
        f"A ticket wins when it is not worse than the dense network by more than {100 * margin:g} percentage points "
        "and better than each of its controls at the same mask, by t tests of the differences paired by seed whose "
        f"variance is pooled with tickets of neighbouring densities. Both must hold at {100 * LEVEL:g} % after Holm's "
        f"correction for the number of tickets, with {SEEDS} seeds or more. A ticket that failed, diverged or has a "
        "fully pruned layer in any seed does not win, and accuracy is that of the last epoch on the test split."
    )


@dataclass(frozen=True)
class _Ticket:
    """The trainings of one method, level and rewind point, and the controls at the same masks."""

    level: tuple[str, float | None, float | None]  # method, quantile, threshold
    rewind: str
    rows: list[Row]
    controls: dict[str, list[Row]]  # planned controls by kind, done or not; none of them skipped

    @property
    def failed(self) -> bool:
        return any(row.lost for row in self.rows)


@dataclass(frozen=True)
class _Held:
    """The comparison of one ticket with one kind of control at the same mask."""

    difference: Estimate | None  # ticket minus control; None: no seed has both
    enough: bool  # whether enough seeds have the control
    p: float  # p-value of "the ticket is better"; 1 if too few seeds have the control


def verdicts(rows: Sequence[Row], margin: float = MARGIN, step: Steps = None) -> list[Verdict]:
    """Return a verdict for every level and rewind point with a finished or failed ticket, highest density first.

    `step` puts rewind points in order.
    """
    if not 0 <= margin <= 1:
        raise Refused(f"margin {margin:g}: expected a share of the images, 0 to 1 (0.005 is half a percentage point)")
    tickets, to_come = _tickets(rows)

    def corrected(p: Iterable[float]) -> list[float]:
        """Return p-values corrected for all tickets, also unfinished ones, so that a winning one stays winning."""
        return statistics.holm(np.array(list(p)), to_come).tolist()

    if not tickets:
        return []
    tests, held = _compared(tickets, [dense_of(rows)] * len(tickets)), _held(tickets)
    matches = tests.above(-margin)
    p_matching, p_worse = corrected(matches), corrected(tests.below(-margin))
    p_winning = corrected(max([p, *(one.p for one in its.values())]) for p, its in zip(matches, held, strict=True))
    p_alone = {  # as if this control were the only one
        kind: corrected(max(p, its[kind].p) if kind in its else p for p, its in zip(matches, held, strict=True))
        for kind in DOUBTS
    }
    out, levels = [], grouped((row for one in tickets for row in one.rows), lambda row: row.level)
    for g, (ticket, its) in enumerate(zip(tickets, held, strict=True)):
        difference = tests.estimate(g)
        outcome = _outcome(ticket, difference, its, p_matching[g], p_winning[g], p_worse[g])
        controls = {kind: one.difference for kind, one in its.items() if one.difference is not None}
        nearest = max(controls, key=lambda kind: its[kind].p, default="")
        unbeaten = [kind for kind in controls if p_alone[kind][g] > LEVEL] or [nearest]
        decides = {"worse": p_worse, "matching": p_matching, "undecided": p_matching}.get(outcome, p_winning)
        p = decides[g] if difference and difference.seeds >= SEEDS and not ticket.failed else None
        accuracy, lacking = estimate([*accuracies(ticket.rows).values()]), [k for k in its if not its[k].enough]
        out.append(
            Verdict(*ticket.level, density_of(levels[ticket.level]), ticket.rewind, accuracy, difference, controls,
                    tuple(lacking), outcome, _reason(ticket, difference, outcome, unbeaten), p,
                    ticket.rows[0].data, ticket.rows[0].found_on,
                    *(_mean_of(ticket.rows, name) for name in ("macs", "bytes")))
        )  # fmt: skip
    points = in_order({v.rewind for v in out}, step)
    return sorted(out, key=lambda v: (-round(v.density, 4), points.index(v.rewind), v.method))


def _tickets(rows: Sequence[Row]) -> tuple[list[_Ticket], int]:
    """Return the tickets with an ended training, with their controls, and the number of other tickets."""

    def place(kind: str, row: Row) -> tuple[Any, ...]:
        """Return what a ticket and its control share; one that trains the whole schedule serves all rewind points."""
        return kind, row.mask, *row.level[1:], "0" if CONTROLS[kind].once else row.rewind, row.seed

    # skipped: a fully pruned layer, so nothing to compare with
    controls = {place(row.kind, row): row for row in rows if row.kind in CONTROLS and row.state != "skipped"}
    tickets = []
    groups = grouped([row for row in rows if row.kind == "ticket"], lambda row: (row.level, row.rewind))
    for (level, rewind), found in groups.items():
        if any(row.measured or row.lost for row in found):
            beside = {kind: [controls[at] for row in found if (at := place(kind, row)) in controls] for kind in DOUBTS}
            tickets.append(_Ticket(level, rewind, found, beside))
    return tickets, len(groups) - len(tickets)


def _compared(tickets: Sequence[_Ticket], others: Sequence[Mapping[int, float]]) -> Comparison:
    """Return the tests of each ticket against other accuracies by seed."""
    differences = {g: minus(accuracies(ticket.rows), others[g]) for g, ticket in enumerate(tickets)}
    densities = by_level({g: ticket.rows for g, ticket in enumerate(tickets)})
    return compared(differences, densities, {g for g, ticket in enumerate(tickets) if ticket.failed})


def _held(tickets: Sequence[_Ticket]) -> list[dict[str, _Held]]:
    """Return for every ticket its comparisons with planned controls, by kind."""
    out: list[dict[str, _Held]] = [{} for _ in tickets]
    for kind in DOUBTS:
        tests = _compared(tickets, [accuracies(ticket.controls[kind]) for ticket in tickets])
        for g, (ticket, better) in enumerate(zip(tickets, tests.above(0.0), strict=True)):
            if others := ticket.controls[kind]:
                # a control that diverged counts as tried if two others are measured
                pairs, diverged = int(tests.pairs[g]), sum(row.lost for row in others)
                enough = pairs >= 2 and pairs + diverged >= SEEDS
                out[g][kind] = _Held(tests.estimate(g), enough, float(better) if enough else 1.0)
    return out


def _outcome(
    ticket: _Ticket, difference: Estimate | None, held: Mapping[str, _Held], matching: float, winning: float,
    worse: float,
) -> str:  # fmt: skip
    """Return one of OUTCOMES, by the corrected p-values of "it matches", "it wins" and "it is worse"."""
    if ticket.failed:
        return "failed"
    if difference is None:
        return "unknown"
    if difference.seeds == 1:
        return "one seed"
    enough = difference.seeds >= SEEDS
    if enough and held and max(matching, winning) <= LEVEL:
        return "winning"
    if enough and worse <= LEVEL:
        return "worse"
    if not enough or matching > LEVEL:
        return "undecided"
    return "control not beaten" if held and all(one.enough for one in held.values()) else "matching"


def _mean_of(rows: Iterable[Row], column: str) -> float | None:
    """Return the mean of a column over the rows that have a number there, or None."""
    known = [getattr(row, column) for row in rows if getattr(row, column) is not None]
    return mean(known) if known else None


def _reason(ticket: _Ticket, difference: Estimate | None, outcome: str, unbeaten: Sequence[str]) -> str:
    if outcome == "failed":
        return "; ".join(sorted({row.reason or row.state for row in ticket.rows if row.lost}))[:300]
    if difference is None:
        return OUTCOMES["unknown"]
    said = f"{100 * difference.mean:+.2f} percentage points {difference.interval}".rstrip()
    if outcome != "control not beaten":
        return said
    return f"{said}; not shown to be better than {', '.join(DOUBTS[kind] for kind in unbeaten)}"


def power(rows: Sequence[Row], margin: float = MARGIN, images: int = 0) -> str:
    """Return sentences: the loss that the seeds detect on these test images, and what the images detect in general.

    More seeds do not make up for few images, so the two are reported separately.
    """
    dense, (tickets, to_come) = dense_of(rows), _tickets(rows)
    count, seeds = len(tickets) + to_come, len({row.seed for row in rows if row.kind == "dense" and not row.lost})
    if not count:
        return ""
    measured = statistics.spread([*minus(accuracies(ticket.rows), dense).values()] for ticket in tickets)
    assumed = SPREAD * math.sqrt(max(1.0, SPREAD_IMAGES / images)) if images else SPREAD
    deviation, asked = measured or assumed, f"{100 * margin:g} percentage points"
    on = "these test images" if measured or images else f"{SPREAD_IMAGES:,} test images"
    said = (
        f"Standard deviation of the differences between seeds: {100 * deviation:.2f} percentage points "
        f"({'measured' if measured else 'assumed' if images else f'assumed, as for {SPREAD_IMAGES:,} test images'}). "
    )
    if seeds < SEEDS:
        said += f"{'One seed' if seeds == 1 else f'{seeds} seeds'}: no significance test. "
    else:
        least = statistics.smallest_margin(deviation, seeds, count)
        said += f"{seeds} seeds and {count} tickets detect a loss of {100 * least:.2f} percentage points (80 % power). "
    needed = statistics.seeds_for(margin, deviation, count)
    if margin:
        few = f"{needed}" if needed < statistics.MANY else f"More than {statistics.MANY}"
        said += f"{few} seeds are needed to detect {asked} on {on}."
    if images and dense:
        least = statistics.POWER * statistics.by_images(mean(dense.values()), images)
        said += f" On other images of the kind, {images:,} test images detect {100 * least:.2g}"
        said += " percentage points at best, however many seeds there are"
        if least > margin > 0:
            said += f"; {float(f'{images * (least / margin) ** 2:.1e}'):,.0f} are needed for {asked}"
        said += " (if two networks err independently; fewer where they err on the same images)."
    return said
