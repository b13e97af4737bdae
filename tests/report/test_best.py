"""The choice of one ticket of a sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.errors import Refused
from sweep.graph.results import Row
from sweep.report.best import best
from sweep.report.verdict import Verdict, verdicts

DENSE = [Row(f"dense-{seed}", "dense", seed, "0", density=1.0, test_top1=0.9) for seed in range(3)]


def tickets(rewind: str, density: float, scores: list[float], held_out: list[float]) -> list[Row]:
    return [
        Row(f"{rewind}-{density}-{seed}", "ticket", seed, rewind, 1 - density, None, density, test_top1=score,
            validation_top1=validation)
        for seed, (score, validation) in enumerate(zip(scores, held_out, strict=True))
    ]  # fmt: skip


def called(found: list[Verdict], outcomes: dict[float, str]) -> list[Verdict]:
    return [replace(one, outcome=outcomes[round(one.density, 3)]) for one in found]


def test_a_winner_comes_before_one_that_matches_and_that_before_an_undecided_one():
    rows = [*DENSE, *(row for d in (0.5, 0.2, 0.1) for row in tickets("0", d, [0.9] * 3, [0.9, 0.91, 0.9]))]
    found = verdicts(rows)
    for outcomes, density in (
        ({0.5: "winning", 0.2: "matching", 0.1: "undecided"}, 0.5),
        ({0.5: "matching", 0.2: "control not beaten", 0.1: "undecided"}, 0.2),
        ({0.5: "undecided", 0.2: "undecided", 0.1: "worse"}, 0.2),
    ):
        one = best(rows, called(found, outcomes))
        assert (one.density, one.training) == (density, f"0-{density}-1")
    with pytest.raises(Refused, match="no finished ticket is as good"):
        best(rows, called(found, {0.5: "worse", 0.2: "failed", 0.1: "worse"}))


def test_validation_images_choose_point_and_seed_and_test_images_do_not():
    early = tickets("0", 0.2, [0.90, 0.90, 0.90], [0.92, 0.91, 0.90])
    late = tickets("2ep", 0.2, [0.95, 0.95, 0.99], [0.90, 0.91, 0.90])
    rows = [*DENSE, *early, *late]
    found = called(verdicts(rows), {0.2: "matching"})
    assert best(rows, found).training == "0-0.2-0"
    assert best([replace(row, validation_top1=None) for row in rows], found).training == "0-0.2-0"
