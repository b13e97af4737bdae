"""Is it a ticket? Made-up results whose answer is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from sweep.experiment import Recipe
from sweep.experiment.controls import CONTROLS
from sweep.graph.home import Home
from sweep.graph.results import Row, collect
from sweep.report.intervals import by_level, dense_of, estimate
from sweep.report.tables import latex
from sweep.report.verdict import OUTCOMES, power, rule, verdicts
from sweep.report.words import answer, beaten, later, with_test
from tests import synthetic


def rows(
    kind: str, scores: list[float | None], k: int = 0, quantile: float | None = 0.8, density: float = 0.2
) -> list[Row]:
    """One row per seed; None: not trained yet."""
    if kind == "dense":
        return [Row("", "dense", seed, "0", density=1.0, test_top1=score) for seed, score in enumerate(scores)]
    return [
        Row("", kind, seed, f"{k}ep" if k else "0", quantile, None, density, test_top1=score)
        for seed, score in enumerate(scores)
    ]


DENSE = rows("dense", [0.900, 0.902, 0.901])


def outcome(*groups: list[Row], margin: float = 0.005) -> str:
    (one,) = verdicts([row for group in groups for row in group], margin)
    return one.outcome


def test_a_ticket_as_good_as_dense_and_better_than_its_controls_wins():
    ticket = rows("ticket", [0.900, 0.903, 0.901])
    fresh = rows("fresh", [0.870, 0.872, 0.869])
    assert outcome(DENSE, ticket, fresh, rows("shuffled", [0.86, 0.861, 0.859])) == "winning"


def test_the_p_that_is_printed_is_the_one_that_decides():
    """One level without controls, one with, one whose control lacks a seed, one far below the dense network."""
    generator, outcomes = random.Random(7), set()
    for _ in range(60):
        sweep = rows("dense", [0.9 + generator.gauss(0, 0.001) for _ in range(3)])
        for quantile, reached, fresh in ((0.5, 0.9, 0), (0.8, 0.9, 3), (0.9, 0.9, 2), (0.95, 0.889, 3)):
            level = {"quantile": quantile, "density": 1 - quantile}
            sweep += rows("ticket", [reached + generator.gauss(0, 0.002) for _ in range(3)], **level)
            sweep += rows("fresh", [0.893 + generator.gauss(0, 0.002) for _ in range(fresh)], **level)
        for one in verdicts(sweep):
            assert one.p is not None
            assert (one.p <= 0.025) == (one.outcome in ("winning", "matching", "worse"))
            outcomes.add((one.quantile, one.outcome))
    assert {(0.5, "matching"), (0.8, "winning"), (0.8, "control not beaten"), (0.9, "matching"),
            (0.9, "undecided"), (0.95, "worse")} <= outcomes  # fmt: skip
    two = verdicts([*DENSE[:2], *rows("ticket", [0.9, 0.9]), *rows("fresh", [0.8, 0.8])])
    assert two[0].p is None  # two seeds show nothing


def test_tickets_that_are_not_trained_yet_count_in_the_correction():
    begun = [*DENSE, *rows("ticket", [0.899, 0.902, 0.902])]
    to_come = [rows("ticket", [None] * 3, quantile=q, density=1 - q) for q in (0.5, 0.9, 0.95)]
    (alone,) = verdicts(begun)
    (one,) = verdicts([*begun, *(row for group in to_come for row in group)])
    assert alone.p is not None and one.p == pytest.approx(4 * alone.p)
    assert (alone.outcome, one.outcome) == ("matching", "undecided")


def test_without_controls_it_matches_and_no_more_is_said():
    assert outcome(DENSE, rows("ticket", [0.900, 0.903, 0.901])) == "matching"


def test_a_control_that_is_as_good_takes_the_win_away_and_is_named():
    found = verdicts([*DENSE, *rows("ticket", [0.900, 0.903, 0.901]), *rows("fresh", [0.87, 0.87, 0.87]),
                      *rows("random", [0.900, 0.902, 0.902])])  # fmt: skip
    assert found[0].outcome == "control not beaten"
    assert "random mask" in found[0].reason and "fresh" not in found[0].reason


def test_of_two_controls_the_one_that_is_not_shown_to_be_worse_is_named():
    """Each interval of `fresh` lies above zero by itself; corrected for there being four tickets none is shown."""
    sweep = [*DENSE]
    for place, quantile in enumerate((0.5, 0.6, 0.7, 0.8)):
        sweep += rows("ticket", [0.903, 0.906, 0.904], quantile=quantile, density=1 - quantile)
        near = [0.9022 - 0.0001 * place, 0.9030, 0.9027]
        sweep += rows("fresh", near, quantile=quantile, density=1 - quantile)
        sweep += rows("shuffled", [0.86, 0.861, 0.859], quantile=quantile, density=1 - quantile)
    for one in verdicts(sweep):
        low = one.controls["fresh"].low
        assert low is not None and low > 0 and one.outcome == "control not beaten"
        assert one.reason.endswith("not shown to be better than fresh initialization")


def test_the_headline_names_the_controls_and_says_where_one_did_better():
    winner, fresh = rows("ticket", [0.900, 0.903, 0.901]), rows("fresh", [0.870, 0.872, 0.869])
    found = verdicts([*DENSE, *winner, *fresh])
    assert "1 of 1 tickets win, held against fresh initialization." in answer(found) and beaten(found) == ""
    found = verdicts([*DENSE, *winner, *fresh, *rows("shuffled", [0.92, 0.92, 0.92])])
    assert beaten(found) == (
        "In 1 of 2 comparisons a control did better than its ticket: most of all the shuffled mask at 20.0% of "
        "weights remaining, beside the ticket from 0, by 1.87 percentage points."
    )


def test_the_headline_gives_no_winner_a_control_that_it_was_not_held_against():
    """Shuffled masks stand beside the ticket from 2ep alone."""
    early, late = rows("ticket", [0.900, 0.903, 0.901]), rows("ticket", [0.901, 0.904, 0.902], k=2)
    fresh, shuffled = rows("fresh", [0.870, 0.872, 0.869]), rows("shuffled", [0.86, 0.861, 0.859], k=2)
    said = answer(verdicts([*DENSE, *early, *late, *fresh, *shuffled]))
    assert said.startswith(
        "2 of 2 tickets win: 1 of them held against fresh initialization; 1 against fresh initialization and "
    )
    assert said.count("shuffled mask") == 1
    assert said.endswith("rewound to 0 or 2ep.")


def test_a_control_that_is_missing_in_some_seeds_is_named():
    ticket, random = rows("ticket", [0.900, 0.903, 0.901]), rows("random", [0.8, None, None])
    said = answer(verdicts([*DENSE, *ticket, *rows("fresh", [0.870, 0.872, 0.869]), *random]))
    assert said.startswith("1 of 1 tickets match the dense network (controls are missing in some seeds: random mask)")


def test_where_none_wins_every_outcome_is_counted():
    worse = rows("ticket", [0.5, 0.502, 0.5015], quantile=0.95, density=0.05)
    open_ = rows("ticket", [0.880, 0.905, 0.901])
    assert answer(verdicts([*DENSE, *worse, *open_])) == (
        "No ticket is shown to match the dense network (no controls beside them); of 2, 1 shown to be worse than the "
        "dense network and 1 undecided."
    )


def test_what_a_late_reset_gains_over_an_early_one_is_said_with_its_chance():
    one = [*rows("ticket", [0.90]), *rows("ticket", [0.91], k=2), *rows("ticket", [0.5], quantile=0.5, density=0.5)]
    assert (
        later(one, 359)
        == "At 20.0% of weights remaining, tickets from 2ep end 1.00 percentage points above those from 0 (one seed, "
        "which may be chance)."
    )
    assert "more than the choice of test images explains" in later(one, 10_000)
    assert later(one).endswith("those from 0 (one seed).")
    three = [*rows("ticket", [0.90, 0.80, 0.70]), *rows("ticket", [0.91, 0.82, 0.73], k=2)]
    assert later(three, 10_000).endswith("end 2.00 percentage points above those from 0 [-0.48, +4.48] over 3 seeds.")
    assert "tickets from 2ep end 2.00" in later([*three, *rows("ticket", [0.99], k=5)])  # one seed says less than three
    back = [*rows("ticket", [0.91]), *rows("ticket", [0.90], k=2)]
    assert "from 2ep end 1.00 percentage points below those from 0" in later(back)
    failed = [replace(one, seed=3, test_top1=None, state="failed") for one in rows("ticket", [None], k=2)]
    assert later([*three, *failed]).endswith("those from 0 (3 seeds, beside what failed).")
    assert later(rows("ticket", [0.9, 0.9])) == "" == later([])
    steps = [*rows("ticket", [0.90]), *(replace(one, rewind="500it") for one in rows("ticket", [0.8])),
             *rows("ticket", [0.91], k=1)]  # fmt: skip
    assert "tickets from 500it end" in later(steps, step=lambda at: at.step(Recipe(), 390))
    assert "tickets from 1ep end" in later(steps, step=lambda at: at.step(Recipe(), 600))
    both = [replace(one, method=name) for name in ("lamp", "random") for one in steps]
    assert "lamp tickets from" in later(both)


def test_fine_tuning_is_not_a_control_of_a_ticket():
    """It keeps the trained weights, so being as good says nothing against the ticket."""
    ticket, fresh = rows("ticket", [0.900, 0.903, 0.901]), rows("fresh", [0.87, 0.872, 0.869])
    assert outcome(DENSE, ticket, fresh, rows("lr_rewind", [0.91, 0.91, 0.91])) == "winning"


def test_worse_by_more_than_the_margin_is_worse():
    assert outcome(DENSE, rows("ticket", [0.890, 0.892, 0.891])) == "worse"


def test_an_interval_across_the_margin_is_undecided():
    assert outcome(DENSE, rows("ticket", [0.880, 0.905, 0.901])) == "undecided"


def test_the_margin_decides():
    ticket = rows("ticket", [0.897, 0.899, 0.898])  # 0.3 points under its dense run, for every seed
    assert outcome(DENSE, ticket, margin=0.005) == "matching"
    assert outcome(DENSE, ticket, margin=0.001) == "worse"


def test_no_spread_is_no_proof():
    """Three seeds that differ from dense by exactly the same: it could be chance, within the spread of five images."""
    ticket = rows("ticket", [0.897, 0.899, 0.898])
    assert outcome(DENSE, ticket, margin=0.0031) == outcome(DENSE, ticket, margin=0.0029) == "undecided"


def test_two_seeds_win_nothing():
    dense, ticket = rows("dense", [0.9, 0.901]), rows("ticket", [0.95, 0.951])
    assert outcome(dense, ticket, rows("fresh", [0.5, 0.501])) == "undecided"


@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_a_training_that_failed_or_collapsed_counts_against_its_ticket(state):
    lost = [Row("", "ticket", 2, "0", 0.8, state=state, reason="loss is nan in epoch 3")]
    ticket = [*rows("ticket", [0.95, 0.951]), *lost]
    (one,) = verdicts([*DENSE, *ticket, *rows("fresh", [0.5, 0.5, 0.5])])
    assert (one.outcome, one.reason) == ("failed", "loss is nan in epoch 3")
    assert answer([one]) == "No ticket wins; of 1, 1 failed."
    alone = answer(verdicts([*DENSE, *lost]))
    assert alone == "No ticket was trained to its end: 1 of 1 failed or have a fully pruned layer."


def test_a_control_that_is_planned_and_not_done_leaves_it_at_matching():
    ticket, planned = rows("ticket", [0.900, 0.903, 0.901]), rows("shuffled", [None, None, None])
    assert outcome(DENSE, ticket, rows("fresh", [0.87, 0.872, 0.869]), planned) == "matching"


def test_a_control_that_two_seeds_have_shows_nothing():
    dense, ticket = rows("dense", [0.9, 0.902, 0.901, 0.9, 0.903]), rows("ticket", [0.9, 0.903, 0.901, 0.9, 0.903])
    few, enough = [0.85, 0.851, None, None, None], [0.85, 0.851, 0.85, None, None]
    assert outcome(dense, ticket, rows("shuffled", few)) == "matching"
    assert outcome(dense, ticket, rows("shuffled", enough)) == "winning"


def test_a_control_that_diverged_in_a_seed_is_beaten_by_the_others():
    """One that diverges is no reason to call its ticket less; of two that do, too little is left to compare."""
    ticket, shuffled = rows("ticket", [0.900, 0.903, 0.901]), rows("shuffled", [0.85, 0.852, 0.851])
    lost = [replace(one, test_top1=None, state="failed") for one in shuffled]
    assert outcome(DENSE, ticket, [*shuffled[:2], lost[2]]) == "winning"
    assert outcome(DENSE, ticket, [shuffled[0], *lost[1:]]) == "matching"
    near = rows("shuffled", [0.899, 0.904])
    assert outcome(DENSE, ticket, [*near, lost[2]]) == "control not beaten"


def test_every_control_is_held_against_its_ticket(tmp_path):
    """As the trainings name their masks: an inverted one lies in a file of its own."""
    made = synthetic.experiment(quantiles=(0.5,), rewind=synthetic.points(2), seeds=(0, 1, 2), controls=tuple(CONTROLS))
    home = Home(tmp_path / "small", made)
    for training in home.graph:
        better = 0.9 if training.kind in ("dense", "ticket") else 0.8
        synthetic.finish(home, training.slug, better + 0.001 * training.origin * (training.kind != "dense"))
    (one,) = verdicts(collect(home))
    assert set(one.controls) == set(CONTROLS)


def test_fresh_weights_over_the_same_epochs_are_held_against_the_ticket_of_these_epochs_alone(tmp_path):
    """From 0 they are a fresh initialization, which would have more epochs than a ticket from 2."""
    controls = {"controls": ("fresh_short",), "control_rewind": synthetic.points(0, 2)}
    made = synthetic.experiment(quantiles=(0.5,), rewind=synthetic.points(0, 2), seeds=(0, 1, 2), **controls)
    home = Home(tmp_path / "small", made)
    for training in home.graph:
        better = {"fresh": 0.95, "fresh_short": 0.8}.get(training.kind, 0.9)
        synthetic.finish(home, training.slug, better + 0.001 * training.origin * (training.kind != "dense"))
    early, late = verdicts(collect(home))
    assert (early.rewind, early.outcome, set(early.controls)) == ("0", "control not beaten", {"fresh_short"})
    assert (late.rewind, late.outcome, set(late.controls)) == ("2ep", "winning", {"fresh_short"})


def test_many_tickets_are_held_to_more_than_one_is():
    """What wins by itself may not among fifty of which none is better than the others."""
    alone = rows("ticket", [0.8985, 0.9005, 0.9000])
    assert outcome(DENSE, alone) == "matching"
    chance = random.Random(0)
    others = [row for q in range(49) for row in rows("ticket", [0.896 + chance.gauss(0, 0.003) for _ in range(3)],
                                                     quantile=0.3 + q / 100, density=0.7 - q / 100)]  # fmt: skip
    found = verdicts([*DENSE, *alone, *others])
    assert not [one for one in found if one.outcome in ("matching", "winning")]


def test_what_the_seeds_can_show_is_said_before_and_after():
    untrained = [*rows("dense", [None, None, None]), *rows("ticket", [None, None, None])]
    before = power(untrained)
    assert "between seeds: 0.25 percentage points (assumed, as for 10,000 test images)" in before
    assert "3 seeds and 1 tickets detect a loss of" in before
    assert "between seeds: 2.50 percentage points (assumed)" in power(untrained, images=100), "0.25 √(10,000 / 100)"
    known = before.replace(", as for 10,000 test images", "").replace("on 10,000 test images", "on these test images")
    assert power(untrained, images=50_000) == known
    after = power([*DENSE, *rows("ticket", [0.890, 0.902, 0.901])])
    assert "(measured)" in after and "seeds are needed" in after
    assert power(DENSE) == ""
    assert "One seed: no significance test" in power([*rows("dense", [0.9]), *rows("ticket", [0.9])])


def test_few_test_images_are_not_made_up_for_by_more_seeds():
    """15 images: 2.8 √(2 · 0.854 · 0.146 / 15) = 36 percentage points; for 0.5 it takes (36.1 / 0.5)² times as many."""
    sweep = [*DENSE, *rows("ticket", [0.890, 0.902, 0.901])]
    few, many = power(sweep, images=15), power(sweep, images=10**7)
    assert "15 test images detect 36 percentage points at best, however many seeds there are" in few
    assert "; 78,000 are needed for 0.5 percentage points" in few
    assert "10,000,000 test images detect" in many and "are needed for" not in many
    assert few.startswith(power(sweep)), "what seeds show on these images does not depend on their number"


def test_every_p_says_its_test():
    worse, matching = (verdicts([*DENSE, *rows("ticket", top1)])[0] for top1 in ([0.8] * 3, [0.9, 0.902, 0.901]))
    won = verdicts([*DENSE, *rows("ticket", [0.9, 0.902, 0.901]), *rows("fresh", [0.8] * 3)])[0]
    assert [with_test(one).split(" ")[-1] for one in (worse, matching, won)] == ["(worse)", "(matches)", "(wins)"]
    assert with_test(verdicts([*rows("dense", [0.9]), *rows("ticket", [0.9])])[0]) == "–"


def test_ties_match_the_dense_network_and_do_not_beat_a_control():
    same = [0.900, 0.902, 0.901]
    assert outcome(DENSE, rows("ticket", same)) == "matching"
    assert outcome(DENSE, rows("ticket", same), rows("fresh", same)) == "control not beaten"


def test_seeds_are_compared_in_pairs():
    """Seeds differ by 10 points, but every ticket is as good as its own dense run."""
    dense, ticket = rows("dense", [0.7, 0.8, 0.9]), rows("ticket", [0.701, 0.800, 0.899])
    assert outcome(dense, ticket) == "matching"


def test_with_one_seed_nothing_is_said_about_spread():
    found = verdicts([*rows("dense", [0.9]), *rows("ticket", [0.899])])
    assert found[0].outcome == "one seed" and found[0].accuracy.half is None
    assert "One seed: no significance test." in answer(found)
    assert "keeps 20.0% of the prunable weights" in answer(found)


def test_missing_cells_and_nan_are_left_out():
    found = verdicts([*DENSE, *rows("ticket", [0.900, None, None])])
    assert found[0].accuracy.seeds == 1 and found[0].outcome == "one seed"
    (nan,) = verdicts([*DENSE, *rows("ticket", [0.900, None, math.nan])])
    assert nan.accuracy.seeds == 1 and nan.outcome == "failed"
    assert verdicts([*DENSE, *rows("ticket", [None, None, None])]) == []
    assert answer([]) == "No ticket is trained yet."


def test_a_ticket_whose_dense_run_is_missing_is_not_judged():
    (one,) = verdicts(rows("ticket", [0.9, 0.9]))
    assert one.outcome == "unknown" and one.difference is None


def test_a_fresh_start_is_a_control_of_every_rewind_epoch_and_others_of_their_own():
    found = verdicts([*DENSE, *rows("ticket", [0.9, 0.903, 0.901], k=5), *rows("fresh", [0.8, 0.81, 0.8]),
                      *rows("shuffled", [0.7, 0.71, 0.7], k=5), *rows("random", [0.9, 0.9, 0.9], k=2)])  # fmt: skip
    assert set(found[0].controls) == {"fresh", "shuffled"}


def test_the_interval_is_that_of_student():
    one = estimate([1.0, 2.0, 3.0, 4.0])
    assert one.mean == 2.5 and one.half == pytest.approx(3.182446 * math.sqrt(5 / 3) / 2, rel=1e-6)


def test_the_answer_names_the_sparsest_winner():
    found = verdicts([
        *DENSE, *rows("ticket", [0.9, 0.902, 0.901], quantile=0.5, density=0.5), *rows("ticket", [0.9, 0.902, 0.902]),
        *rows("ticket", [0.5, 0.502, 0.5015], quantile=0.95, density=0.05),
    ])  # fmt: skip
    assert [one.outcome for one in found] == ["matching", "matching", "worse"]
    assert answer(found).startswith("2 of 3 tickets match") and "keeps 20.0%" in answer(found)
    assert {one.outcome for one in found} <= set(OUTCOMES)


def test_the_rule_states_its_margin():
    assert "more than 0.5 percentage points" in rule() and "more than 2 percentage points" in rule(0.02)


def test_the_latex_table_has_a_line_for_every_verdict_and_no_raw_percent_signs():
    text = latex(verdicts([*DENSE, *rows("ticket", [0.9, 0.902, 0.901])]), dense_of(DENSE), "100 % of a_b")
    assert text.count(r"\\") == 3 and r"100 \% of a\_b" in text
    assert r"100\,\% & -- & 3 & 90.10 $\pm$ 0.25" in text and r"20.00\,\% & 0 & 3 & 90.10 $\pm$ 0.25" in text
    assert r"& $+0.00$ [-0.12, +0.12] & 0.002 (matches) & matching \\" in text


def test_rewind_points_of_a_threshold_are_one_level_though_one_lacks_a_seed():
    """Masks of a threshold keep more in one seed than in another; a missing seed is no other density."""
    scores, kept = [0.900, 0.904, 0.899, 0.902], (0.210, 0.200, 0.190, 0.180)

    def ticket(k: str, count: int) -> list[Row]:
        return [Row("", "ticket", i, k, None, 0.01, kept[i], test_top1=one) for i, one in enumerate(scores[:count])]

    found = verdicts([*rows("dense", [0.9] * 4), *ticket("0", 4), *ticket("2ep", 3), *ticket("5ep", 4)])
    (density,) = {one.density for one in found}
    assert density == pytest.approx(sum((*kept, *kept, *kept[:3])) / 11)
    assert "rewound to 0, 2ep or 5ep" in answer([replace(one, outcome="matching") for one in found])
    one, other = (by_level({k: ticket(k, count) for k, count in (("0", 4), ("2ep", 3))})[k] for k in ("0", "2ep"))
    assert one == other


def test_rewind_points_in_steps_and_epochs_are_judged_in_the_order_of_training():
    tickets = [one for k in (1, 3) for one in rows("ticket", [0.9] * 3, k)]
    late = [replace(one, rewind="500it") for one in rows("ticket", [0.9] * 3)]
    found = verdicts([*DENSE, *tickets, *late], step=lambda at: at.step(Recipe(), 390))
    assert [one.rewind for one in found] == ["1ep", "500it", "3ep"]


def test_a_margin_of_nothing_needs_no_number_of_seeds_or_images():
    said = power([*DENSE, *rows("ticket", [0.9, 0.902, 0.901])], 0.0, 1000)
    assert "seeds are needed" not in said and "are needed for" not in said
    assert "More than 1000 seeds are needed" in power([*DENSE, *rows("ticket", [0.9, 0.95, 0.7])], 0.001)


def test_a_dense_run_that_failed_detects_nothing():
    lost = replace(DENSE[2], test_top1=None, state="failed")
    assert power([*DENSE[:2], lost, *rows("ticket", [0.9, 0.902, 0.901])]).count("2 seeds: no significance test") == 1


def test_sentences_and_the_latex_table_name_the_method_where_there_are_several():
    lamp, snip = ([replace(row, method=name) for row in rows("ticket", [0.9])] for name in ("lamp", "snip@0"))
    one, both = verdicts([DENSE[0], *lamp]), verdicts([DENSE[0], *lamp, *[replace(row, test_top1=0.8) for row in snip]])
    assert answer(one).endswith("(rewound to 0).") and answer(both).endswith("(rewound to 0, pruned by lamp).")
    assert (
        "snip@0 & 20.00" in latex(both, {}, "")
        and "tabular}{lrrrllll}" in latex(both, {}, "")
        and "lamp" not in latex(one, {}, "")
    )


def test_one_seed_at_the_margin_is_within_it():
    """0.915 - 0.92 is a little less than -0.005."""
    assert "within 0.5 percentage points" in answer(verdicts([*rows("dense", [0.92]), *rows("ticket", [0.915])]))
