"""Scores: one number per prunable weight; the lowest are pruned first. numpy in, numpy out.

A score is computed from the flat vector of all kernels, their lengths and, if needed, gradients of the network and
random numbers. Gradients are computed on the devices (sweep.training.gradients) and passed in as functions, so that all
formulas are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Array = np.ndarray


class Gradients(Protocol):
    """The gradients of a network as functions of its kernels `[prunable]`; all other weights are fixed."""

    def of_loss(self, kernels: Array) -> Array:
        """Return g = ∂L/∂θ, L the mean loss over ten training images of every class."""
        ...

    def hessian_product(self, kernels: Array) -> Array:
        """Return H g, H the Hessian of the same loss with logits divided by 200."""
        ...

    def of_flow(self, kernels: Array) -> Array:
        """Return ∂R/∂|θ|, R the sum of the outputs of the network without nonlinearities for an image of ones."""
        ...


@dataclass(frozen=True)
class Seen:
    """The inputs of a score."""

    weights: Array  # θ of all kernels, [prunable]; 0 if pruned in an earlier round
    sizes: Sequence[int]  # lengths of the kernels
    gradients: Gradients | None = None
    stream: np.random.Generator | None = None


def magnitude(seen: Seen) -> Array:
    """Return |θ|."""
    return np.abs(seen.weights)


def lamp(seen: Seen) -> Array:
    """Return layer-adaptive magnitudes (Lee et al. 2021): θᵢ² / Σ θⱼ², over all |θⱼ| ≥ |θᵢ| of the same kernel.

    The largest weight of every kernel scores 1, so every kernel keeps one while another still has several.

    >>> lamp(Seen(np.array([1.0, -2.0, 3.0]), [2, 1])).tolist()
    [0.2, 1.0, 1.0]
    """
    parts = np.split(np.square(seen.weights.astype(np.float64)), np.cumsum(seen.sizes)[:-1])
    for square in parts:
        order = np.argsort(square, kind="stable")
        rising = square[order]
        as_large = np.cumsum(rising[::-1])[::-1]  # sum of itself and all larger ones
        square[order] = np.divide(rising, as_large, out=np.zeros(square.size), where=as_large > 0)
    return np.concatenate(parts)


def snip(seen: Seen) -> Array:
    """Return SNIP's score (Lee et al. 2019) |θ ⊙ g|: the change of the loss, to first order, if a weight is pruned."""
    assert seen.gradients is not None
    return np.abs(seen.weights * seen.gradients.of_loss(seen.weights))


def grasp(seen: Seen) -> Array:
    """Return θ ⊙ H g (GraSP, Wang et al. 2020): pruning changes gᵀg by −2 θ ⊙ H g, so the lowest scores go first."""
    assert seen.gradients is not None
    return seen.weights * seen.gradients.hessian_product(seen.weights)


def synflow(seen: Seen) -> Array:
    """Return SynFlow's score (Tanaka et al. 2020) |θ ⊙ ∂R/∂θ|, computed again after every small step; needs no data."""
    assert seen.gradients is not None
    return np.abs(seen.weights * seen.gradients.of_flow(seen.weights))


def random(seen: Seen) -> Array:
    """Return uniform random numbers: random pruning."""
    assert seen.stream is not None
    return seen.stream.random(seen.weights.size)


@dataclass(frozen=True)
class Score:
    """A rule to rank weights, and what it needs."""

    of: Callable[[Seen], Array]
    at: str  # the point of training whose weights are scored, unless the experiment says otherwise
    gradients: bool = False
    # share of the weights that each step keeps before they are scored again; 1: score once. The steps do not depend on
    # the final quantile, so the mask of a higher quantile is a subset of that of a lower one
    step: float = 1.0


SCORES = {
    "magnitude": Score(magnitude, "end"),
    "lamp": Score(lamp, "end"),
    "snip": Score(snip, "0", gradients=True),
    "grasp": Score(grasp, "0", gradients=True),
    "synflow": Score(synflow, "0", gradients=True, step=10 ** (-1 / 100)),  # 100 steps to a density of 0.1
    "random": Score(random, "0"),
}
