"""Scores: one number per prunable weight; those with the lowest go first. numpy in, numpy out.

A score sees the flat vector of all kernels, the lengths of the kernels in it, and where it needs more: gradients of the
network at these weights, and random numbers. The gradients come from the devices (sweep.training.gradients); here they
are functions, so that every formula stands in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Array = np.ndarray


class Gradients(Protocol):
    """The gradients of a network at given kernels; all else stays as at the point where it is scored."""

    def of_loss(self, kernels: Array) -> Array:
        """g = ∂L/∂θ, L the mean loss of ten training images of every class."""
        ...

    def hessian_product(self, kernels: Array) -> Array:
        """H g, of the same loss with logits divided by 200."""
        ...

    def of_flow(self, kernels: Array) -> Array:
        """∂R/∂θ at |θ|, R the sum of the outputs for an image of ones, in a network without its nonlinearities."""
        ...


@dataclass(frozen=True)
class Seen:
    """What a score looks at."""

    weights: Array  # of all kernels; 0 where an earlier round pruned
    sizes: Sequence[int]  # lengths of the kernels
    gradients: Gradients | None = None
    stream: np.random.Generator | None = None


def magnitude(seen: Seen) -> Array:
    """|θ|: one threshold for all kernels."""
    return np.abs(seen.weights)


def lamp(seen: Seen) -> Array:
    """Layer-adaptive magnitude (Lee et al. 2021): θ_i² / Σ θ_j², over the θ_j of its kernel that are at least as large.

    The largest weight of every kernel scores 1, so no kernel is emptied while another has more than one weight left.

    >>> lamp(Seen(np.array([1.0, -2.0, 3.0]), [2, 1])).tolist()
    [0.2, 1.0, 1.0]
    """
    weights = seen.weights
    out = np.zeros(weights.size, np.float64)
    first = 0
    for size in seen.sizes:
        square = np.square(weights[first : first + size].astype(np.float64))
        order = np.argsort(square, kind="stable")
        rising = square[order]
        as_large = np.cumsum(rising[::-1])[::-1]  # of itself and all that come after it
        scores = np.divide(rising, as_large, out=np.zeros(size), where=as_large > 0)
        out[first + order] = scores
        first += size
    return out


def snip(seen: Seen) -> Array:
    """SNIP (Lee et al. 2019): |θ ⊙ g|, how much the loss changes to first order when a weight goes."""
    assert seen.gradients is not None
    return np.abs(seen.weights * seen.gradients.of_loss(seen.weights))


def grasp(seen: Seen) -> Array:
    """GraSP (Wang et al. 2020): θ ⊙ H g. Removing a weight changes the gradient's norm by −θ ⊙ H g: the largest go."""
    assert seen.gradients is not None
    return seen.weights * seen.gradients.hessian_product(seen.weights)


def synflow(seen: Seen) -> Array:
    """SynFlow (Tanaka et al. 2020): |θ ⊙ ∂R/∂θ|, scored again after every small step; no data."""
    assert seen.gradients is not None
    return np.abs(seen.weights * seen.gradients.of_flow(seen.weights))


def random(seen: Seen) -> Array:
    """Any number is as good as another."""
    assert seen.stream is not None
    return seen.stream.random(seen.weights.size)


@dataclass(frozen=True)
class Score:
    """A way to rank weights, and what it needs."""

    of: Callable[[Seen], Array]
    at: str  # the point of training whose weights are scored, unless the experiment says otherwise
    gradients: bool = False
    # Of what stays, this share stays at each step and is scored again; 1: everything is scored once. The steps do not
    # depend on where they end, so the masks of higher quantiles lie inside those of lower ones.
    step: float = 1.0


SCORES = {
    "magnitude": Score(magnitude, "end"),
    "lamp": Score(lamp, "end"),
    "snip": Score(snip, "0", gradients=True),
    "grasp": Score(grasp, "0", gradients=True),
    "synflow": Score(synflow, "0", gradients=True, step=10 ** (-1 / 100)),  # 100 steps to a tenth
    "random": Score(random, "0"),
}
