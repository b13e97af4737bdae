"""Simulated sweeps without a true ticket: how often some ticket is called winning; and with true ones, how many are."""

from __future__ import annotations

import numpy as np
import pytest

from sweep.report import statistics
from sweep.report.statistics import LEVEL, SEEDS, compare, holm, smallest_margin

MARGIN, POINT = 0.005, 0.01


def judged(
    ticket: np.ndarray, dense: np.ndarray, controls: list[np.ndarray], ranks: np.ndarray, margin: float = MARGIN
):
    """Which tickets win; the same steps as in sweep.report.verdict, on arrays."""
    none = np.zeros(len(ticket), bool)
    matches = compare(ticket - dense, ranks, none).above(-margin)
    beats = [compare(ticket - control, ranks, none).above(0.0) for control in controls]
    return (holm(np.maximum.reduce([matches, *beats])) <= LEVEL) & (holm(matches) <= LEVEL)


def sweep(stream, truth: np.ndarray, control: np.ndarray, seeds: int, deviation: float, levels: int) -> np.ndarray:
    """Accuracies of levels × points tickets around their truth, in ten-thousandths, and whether each wins."""
    count = len(truth)
    noise = deviation / np.sqrt(2)  # of ticket and of dense run: their difference has `deviation`
    dense = np.round(0.92 + stream.normal(0, noise, seeds), 4)
    ticket = np.round(0.92 + truth[:, None] + stream.normal(0, noise, (count, seeds)), 4)
    other = np.round(0.92 + control[:, None] + stream.normal(0, noise, (count, seeds)), 4)
    return judged(ticket, dense, [other], np.repeat(np.arange(levels), count // levels))


SITUATIONS = {
    "all at the margin": lambda n: (np.full(n, -MARGIN), np.full(n, -5 * POINT)),
    "all equal to their control": lambda n: (np.zeros(n), np.zeros(n)),
    "the sparser half at the margin, the others equal to their control": lambda n: (
        np.where(np.arange(n) < n // 2, 0.0, -MARGIN), np.where(np.arange(n) < n // 2, 0.0, -5 * POINT)
    ),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_without_a_true_ticket_at_most_6_of_100_sweeps_call_one_winning(situation, seeds):
    stream, count = np.random.default_rng(seeds), 20
    truth, control = SITUATIONS[situation](count)
    wrong = sum(sweep(stream, truth, control, seeds, 0.0025, 4).any() for _ in range(800))
    assert wrong / 800 <= 0.06


def false_winners(levels: int, ratio: float, seeds: int, sweeps: int = 600) -> float:
    """The share of sweeps with a false winner: all tickets at the margin, every other density `ratio` × as noisy."""
    stream, rewinds = np.random.default_rng(5), 5
    noise = 0.0018 * np.repeat(np.where(np.arange(levels) % 2, ratio, 1.0), rewinds)[:, None]
    ranks, wrong = np.repeat(np.arange(levels), rewinds), 0
    for _ in range(sweeps):
        dense = stream.normal(0.92, 0.0018, seeds)
        ticket = 0.92 - MARGIN + noise * stream.normal(size=(levels * rewinds, seeds))
        far = np.full(ticket.shape, 0.8) + noise * stream.normal(size=ticket.shape)
        wrong += judged(ticket, dense, [far], ranks).any()
    return wrong / sweeps


def test_densities_that_differ_in_noise_from_their_neighbours_give_no_false_winners(monkeypatch):
    assert false_winners(5, 3.0, 3) <= 0.055
    # without the variance of its own density a noisy one borrows its neighbours' calm, as in version 0.2
    pooled = statistics._pooled
    monkeypatch.setattr(statistics, "_pooled", lambda squares, freedom, near, level: pooled(squares, freedom, near))
    assert false_winners(5, 3.0, 3) > 0.08


def test_the_rule_of_before_would_be_seen_to_fail():
    """The lower end of each ticket's own 95 % interval, uncorrected: some ticket wins in most sweeps."""
    from scipy.special import stdtrit

    stream, wrong = np.random.default_rng(1), 0
    for _ in range(300):
        dense = stream.normal(0.92, 0.0018, 3)
        ticket = stream.normal(0.92 - MARGIN, 0.0018, (50, 3))
        difference = ticket - dense
        low = difference.mean(1) - stdtrit(2, 0.975) * difference.std(1, ddof=1) / np.sqrt(3)
        wrong += bool((low > -MARGIN).any())
    assert wrong / 300 > 0.3


@pytest.mark.parametrize(("seeds", "least", "most"), [(3, 0.5, 0.85), (5, 0.85, 1.0)])
def test_with_true_tickets_the_power_is_that_of_the_simulations_on_record(seeds, least, most):
    """20 tickets, spread 0.25, margin 0.5, controls a point worse: 68 % at 3 seeds, 94 % at 5 (docs/verdict.md)."""
    stream, count = np.random.default_rng(7), 20
    truth, control = np.zeros(count), np.full(count, -POINT)
    share = np.mean([sweep(stream, truth, control, seeds, 0.0025, 4).mean() for _ in range(300)])
    assert least < share <= most


@pytest.mark.parametrize(("count", "seeds"), [(20, 5), (4, 3)])
def test_the_smallest_margin_is_seen_with_about_80_percent_power(count, seeds):
    stream = np.random.default_rng(3)
    margin, ranks = smallest_margin(0.0025, seeds, count), np.repeat(np.arange(4), count // 4)
    shares = []
    for _ in range(300):
        dense = stream.normal(0.92, 0.0025 / np.sqrt(2), seeds)
        ticket = stream.normal(0.92, 0.0025 / np.sqrt(2), (count, seeds))
        none = np.zeros(count, bool)
        shares.append((holm(compare(ticket - dense, ranks, none).above(-margin)) <= LEVEL).mean())
    assert 0.7 < np.mean(shares) < 0.95


def test_a_ticket_that_failed_stays_in_the_count_and_out_of_the_variance():
    stream = np.random.default_rng(0)
    differences = stream.normal(0, 0.002, (4, 3))
    differences[2] = 5.0, -5.0, 1.0  # nonsense
    failed = np.array([False, False, True, False])
    found = compare(differences, np.arange(4), failed)
    assert found.above(-MARGIN)[2] == 1.0 and found.error[~failed].max() < 0.01
    assert SEEDS == 3 and statistics.spread(differences[~failed]) < 0.01
