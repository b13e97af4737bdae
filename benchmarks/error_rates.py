"""Simulated error rates and power of the verdict, by noise profile, for the rule in use and its rivals.

    python benchmarks/error_rates.py [SWEEPS]        # 4,000 sweeps per figure by default, some minutes

A sweep is `levels` densities × 5 rewind points, with one dense run per seed that all tickets are compared with, and a
control of its own for every ticket. Error: the share of sweeps in which some ticket is called winning though none truly
is. Power: the share of tickets called winning where all are as good as the dense network and a point above controls.

Rules differ in the variance v that the difference of a ticket is tested with (n seeds, own variance s²):

    near       v = (10 near + s²) / 11, near pooled over this and the neighbouring densities (version 0.2)
    max        the same, with near = max(near, pooled over this density alone)
    moderated  v = (d₀ s₀² + (n − 1) s²) / (d₀ + n − 1), prior d₀ and s₀² fitted to all tickets (Smyth 2004)
    guarded    v = max((10 max(m, level) + s²) / 11, s²), m the moderated variance of the density
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy.special import digamma, polygamma, stdtr

from sweep.report import statistics
from sweep.report.statistics import LEAST, LEVEL, NEIGHBOURS, WEIGHT

Array = np.ndarray
MARGIN, SD, REWINDS = 0.005, 0.0025, 5

PROFILES: dict[str, Callable[[int, np.random.Generator, int], Array]] = {
    # standard deviation of the difference of each ticket, as a multiple of SD: sweeps × tickets
    "equal": lambda levels, chance, sweeps: np.ones((sweeps, levels * REWINDS)),
    "growing 3 × in SD": lambda levels, chance, sweeps: _by_level(np.geomspace(1, 3, levels), sweeps),
    "neighbours 3 × in variance": lambda levels, chance, sweeps: _by_level(_alternating(levels, 3**0.5), sweeps),
    "neighbours 3 × in SD": lambda levels, chance, sweeps: _by_level(_alternating(levels, 3.0), sweeps),
    "one noisy level, 3 × in SD": lambda levels, chance, sweeps: _by_level(_one_noisy(levels), sweeps),
    "densities lognormal, 2 ×": lambda levels, chance, sweeps: np.repeat(
        2.0 ** chance.normal(size=(sweeps, levels)), REWINDS, 1
    ),
    "tickets lognormal, 1.5 ×": lambda levels, chance, sweeps: 1.5 ** chance.normal(size=(sweeps, levels * REWINDS)),
    "tickets lognormal, 2 ×": lambda levels, chance, sweeps: 2.0 ** chance.normal(size=(sweeps, levels * REWINDS)),
}
# True difference of ticket − dense and of ticket − control; none of these tickets wins truly.
NULLS = {
    "loss at the margin": lambda count: (np.full(count, -MARGIN), np.full(count, 0.05)),
    "equal to dense and control": lambda count: (np.zeros(count), np.zeros(count)),
    "mixed": lambda count: (
        np.where(np.arange(count) % 2, -MARGIN, 0.0),
        np.where(np.arange(count) % 2, 0.05, 0.0),
    ),
}


def _by_level(each: Array, sweeps: int) -> Array:
    return np.broadcast_to(np.repeat(each, REWINDS), (sweeps, len(each) * REWINDS))


def _alternating(levels: int, ratio: float) -> Array:
    return np.where(np.arange(levels) % 2, ratio, 1.0)


def _one_noisy(levels: int) -> Array:
    return np.where(np.arange(levels) == levels // 2, 3.0, 1.0)


def simulated(
    chance: np.random.Generator, noise: Array, against_dense: Array, against_control: Array, seeds: int
) -> tuple[Array, Array]:
    """Return ticket − dense and ticket − control, each sweeps × tickets × seeds, from accuracies in ten-thousandths.

    Half of the variance of an equal difference is the ticket's, half the dense run's, so that differences of one seed
    are correlated by ½. A noisier level has noisier tickets and controls; the dense run stays as it is.
    """
    sweeps, count = noise.shape
    base = SD / np.sqrt(2)
    own = np.sqrt(np.maximum(2 * noise**2 - 1, 0.05)) * base  # so that the difference from the dense run has `noise`
    dense = np.round(0.92 + chance.normal(0, base, (sweeps, 1, seeds)), 4)
    ticket = np.round(0.92 + against_dense[:, None] + chance.normal(size=(sweeps, count, seeds)) * own[..., None], 4)
    below = 0.92 + (against_dense - against_control)[:, None]
    control = np.round(below + chance.normal(size=(sweeps, count, seeds)) * own[..., None], 4)
    return ticket - dense, ticket - control


def near_and_level(own: Array) -> tuple[Array, Array, Array]:
    """Return variances pooled over neighbouring densities and over a density alone, and how many tickets are near."""
    levels = own.shape[1] // REWINDS
    pooled = own.reshape(len(own), levels, REWINDS).mean(2)
    near, tickets = np.empty_like(pooled), np.empty(levels)
    for level in range(levels):
        for width in range(1, levels + 2):
            low, high = max(0, level - width), min(levels, level + width + 1)
            if (high - low) * REWINDS >= NEIGHBOURS:
                break
        near[:, level], tickets[level] = pooled[:, low:high].mean(1), (high - low) * REWINDS
    return np.repeat(near, REWINDS, 1), np.repeat(pooled, REWINDS, 1), np.repeat(tickets, REWINDS)


def prior(variances: Array, freedom: float) -> tuple[Array, Array]:
    """Fit Smyth's prior to variances with `freedom` degrees each: d₀ and s₀², one per sweep (limma's fitFDist)."""
    logs = np.log(np.maximum(variances, LEAST**2))
    e = logs - digamma(freedom / 2) + np.log(freedom / 2)
    spread = e.var(1, ddof=1) - polygamma(1, freedom / 2)
    d0 = np.where(spread > 0, 2 * _inverse_trigamma(np.maximum(spread, 1e-6)), 1e6)
    s0 = np.exp(e.mean(1) + np.where(spread > 0, digamma(d0 / 2) - np.log(d0 / 2), 0.0))
    return np.minimum(d0, 1e6)[:, None], s0[:, None]


def _inverse_trigamma(x: Array) -> Array:
    y = 0.5 + 1 / x
    for _ in range(50):  # Newton, as in Smyth's appendix
        trigamma = polygamma(1, y)
        y = y + trigamma * (1 - trigamma / x) / polygamma(2, y)
    return y


Rule = Callable[[Array, int], tuple[Array, Array]]


def rule_near(own: Array, seeds: int) -> tuple[Array, Array]:
    near, _, tickets = near_and_level(own)
    return (WEIGHT * near + own) / (WEIGHT + 1), np.minimum((WEIGHT + 1), tickets)[None] * (seeds - 1)


def rule_max(own: Array, seeds: int) -> tuple[Array, Array]:
    near, level, tickets = near_and_level(own)
    freedom = np.minimum((WEIGHT + 1), tickets)[None] * (seeds - 1)
    return (WEIGHT * np.maximum(near, level) + own) / (WEIGHT + 1), freedom


def rule_moderated(own: Array, seeds: int) -> tuple[Array, Array]:
    d0, s0 = prior(own, seeds - 1)
    together = own.shape[1] * (seeds - 1)
    return (d0 * s0 + (seeds - 1) * own) / (d0 + seeds - 1), np.minimum(d0 + seeds - 1, together)


def rule_guarded(own: Array, seeds: int) -> tuple[Array, Array]:
    levels = own.shape[1] // REWINDS
    # the tickets of a seed share its dense run: with correlation ½ of their differences k tickets are worth fewer
    freedom = REWINDS / (1 + (REWINDS - 1) / 4) * (seeds - 1)
    level = own.reshape(len(own), levels, REWINDS).mean(2)
    d0, s0 = prior(level, freedom)
    pooled = np.repeat(np.maximum((d0 * s0 + freedom * level) / (d0 + freedom), level), REWINDS, 1)
    return np.maximum((WEIGHT * pooled + own) / (WEIGHT + 1), own), np.minimum(d0 + freedom, (WEIGHT + 1) * (seeds - 1))


RULES: dict[str, Rule] = {"near": rule_near, "max": rule_max, "moderated": rule_moderated, "guarded": rule_guarded}


def p_above(differences: Array, bound: float, rule: Rule) -> Array:
    """Return p-values of "the true difference is above `bound`", sweeps × tickets."""
    seeds = differences.shape[2]
    variance, freedom = rule(differences.var(2, ddof=1), seeds)
    t = (differences.mean(2) - bound) / np.sqrt(np.maximum(variance, LEAST**2) / seeds)
    return stdtr(np.broadcast_to(freedom, t.shape), -t)


def holm(p: Array) -> Array:
    order = np.argsort(p, 1, kind="stable")
    ranked = np.take_along_axis(p, order, 1) * np.arange(p.shape[1], 0, -1)
    out = np.empty_like(p)
    np.put_along_axis(out, order, np.minimum(1.0, np.maximum.accumulate(ranked, 1)), 1)
    return out


def wins(against_dense: Array, against_control: Array, rule: Rule) -> Array:
    matches = p_above(against_dense, -MARGIN, rule)
    beats = p_above(against_control, 0.0, rule)
    return (holm(np.maximum(matches, beats)) <= LEVEL) & (holm(matches) <= LEVEL)


def refuse_another_rule(name: str) -> None:
    """Raise where the rule called `name` here decides otherwise than sweep.report.statistics, which is in use."""
    chance = np.random.default_rng(1)
    for profile in PROFILES.values():
        truth = NULLS["mixed"](25)
        dense, control = simulated(chance, profile(5, chance, 50), *truth, 3)
        here = wins(dense, control, RULES[name])
        ranks, none = np.repeat(np.arange(5), REWINDS), np.zeros(25, bool)
        for one, other, found in zip(dense, control, here, strict=True):
            matches = statistics.compare(one, ranks, none).above(-MARGIN)
            both = np.maximum(matches, statistics.compare(other, ranks, none).above(0.0))
            there = (statistics.holm(both) <= LEVEL) & (statistics.holm(matches) <= LEVEL)
            assert (there == found).all(), f"the rule {name!r} decides otherwise than the one in use"


def main(sweeps: int) -> None:
    refuse_another_rule("max")
    for seeds in (3, 5):
        for levels in (2, 5, 10):
            count = levels * REWINDS
            print(f"\n{seeds} seeds, {count} tickets: error in % (worst of {len(NULLS)} nulls) / power in %")
            print(f"{'noise':28s}" + "".join(f"{name:>16s}" for name in RULES))
            for profile, noise_of in PROFILES.items():
                cells = []
                for rule in RULES.values():
                    chance = np.random.default_rng(7)
                    noise = noise_of(levels, chance, sweeps)
                    errors = [
                        wins(*simulated(chance, noise, *truth(count), seeds), rule).any(1).mean()
                        for truth in NULLS.values()
                    ]
                    good = simulated(chance, noise, np.zeros(count), np.full(count, 2 * MARGIN), seeds)
                    cells.append(f"{100 * max(errors):.1f} / {100 * wins(*good, rule).mean():.0f}")
                print(f"{profile:28s}" + "".join(f"{cell:>16s}" for cell in cells), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
