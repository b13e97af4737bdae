"""The choice of one ticket of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from sweep.errors import Refused
from sweep.graph.results import Row
from sweep.report.intervals import grouped
from sweep.report.verdict import MARGIN, ROUNDING, Verdict

NOT_WORSE = ("winning", "matching", "control not beaten", "undecided")


@dataclass(frozen=True)
class Best:
    """One trained ticket, and the verdict on tickets of its level and rewind point."""

    training: str  # its name in the pool
    seed: int
    density: float
    rewind: str
    test_top1: float
    outcome: str  # verdict over all seeds
    reason: str


def best(rows: Sequence[Row], verdicts: Sequence[Verdict], margin: float = MARGIN) -> Best:
    """Return the best ticket: the sparsest that wins, else that is shown to match, else that is not shown to be worse.

    With one seed, a ticket within the margin counts as not worse. Of equally sparse tickets, take the one with the
    highest mean validation accuracy, of its seeds the one with the highest; without validation images the earliest
    rewind point and the first seed. Test images choose neither.
    """
    trained = grouped(
        (row for row in rows if row.kind == "ticket" and row.measured), lambda row: (row.level, row.rewind)
    )
    good = [(one, found) for one in not_worse(verdicts, margin)
            if (found := trained.get(((one.method, one.quantile, one.threshold), one.rewind)))]  # fmt: skip
    for outcomes in (("winning",), ("matching", "control not beaten"), NOT_WORSE + ("one seed",)):
        if some := [pair for pair in good if pair[0].outcome in outcomes]:
            one, found = min(some, key=lambda pair: (round(pair[0].density, 4), -mean(map(_validated, pair[1]))))
            row = max(found, key=lambda row: (_validated(row), -row.seed))
            assert row.test_top1 is not None and row.density is not None
            return Best(row.training, row.seed, row.density, one.rewind, row.test_top1, one.outcome, one.reason)
    if not any(one.difference for one in verdicts):
        raise Refused("best: no ticket is trained yet beside its dense run; lottery status shows them all")
    raise Refused("best: no finished ticket is as good as the dense network; lottery report shows them all, and a "
                  "training can be named instead")  # fmt: skip


def _validated(row: Row) -> float:
    return row.validation_top1 or 0.0


def not_worse(verdicts: Sequence[Verdict], margin: float = MARGIN) -> list[Verdict]:
    """Return the verdicts on tickets that are not shown to be worse; of one seed, those within the margin."""
    return [
        one for one in verdicts
        if one.outcome in NOT_WORSE
        or (one.outcome == "one seed" and one.difference is not None and one.difference.mean >= -margin - ROUNDING)
    ]  # fmt: skip
