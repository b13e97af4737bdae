"""Optimizer steps as pure functions on flat vectors, with the mask inside them.

The gradient of pruned weights is set to 0 before anything else uses it. A pruned weight starts at 0.0, its momentum
at 0.0, and every rule below maps zeros to zeros: it stays exactly 0.0 at every step, in the moving average too.
Clipping then measures the norm of the kept weights' gradient only.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sweep.experiment import Recipe

Tensor = Any
Pair = tuple[Tensor, Tensor]  # one vector for the kernels, one for the other trainable weights
Step = tuple[Pair, list[Pair]]  # weights and slots after the step
SLOTS = {"sgd": 1, "adamw": 2}  # numbers that the optimizer remembers per weight


def masked(gradient: Tensor, mask: Tensor) -> Tensor:
    """Return the gradient with 0 for pruned weights. A selection: a product would leave -0.0 and pass on NaN."""
    return tf.where(mask, gradient, tf.zeros_like(gradient))


def clipped(gradients: Pair, norm: float) -> Pair:
    """Return both gradients scaled by min(1, norm / ‖g‖), ‖g‖ the norm of the two together."""
    total = tf.sqrt(sum(tf.reduce_sum(tf.square(g)) for g in gradients))
    scale = tf.minimum(1.0, norm / tf.maximum(total, 1e-12))
    return gradients[0] * scale, gradients[1] * scale


def sgd(recipe: Recipe, weights: Pair, gradients: Pair, slots: list[Pair], rate: Tensor, count: Tensor) -> Step:
    """Return weights and velocity after v ← μv + g, w ← w − ηv (Nesterov: w ← w − η(g + μv)); L2 decay is part of g."""
    gradients = _decayed(recipe, gradients, weights)
    velocity = tuple(recipe.momentum * v + g for v, g in zip(slots[0], gradients, strict=True))
    if recipe.nesterov:
        move = tuple(g + recipe.momentum * v for v, g in zip(velocity, gradients, strict=True))
    else:
        move = velocity
    return _moved(weights, move, rate), [velocity]


def adamw(recipe: Recipe, weights: Pair, gradients: Pair, slots: list[Pair], rate: Tensor, count: Tensor) -> Step:
    """Return weights and moments after a step of AdamW (Loshchilov and Hutter 2019); `count` = steps taken, from 1.

    m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², w ← w − η(m̂ / (√v̂ + 1e-8) + λw), m̂ = m / (1−β₁ᵗ), v̂ = v / (1−β₂ᵗ)
    """
    first, second = 0.9, 0.999
    mean = tuple(first * m + (1 - first) * g for m, g in zip(slots[0], gradients, strict=True))
    square = tuple(second * v + (1 - second) * g * g for v, g in zip(slots[1], gradients, strict=True))
    fix_mean, fix_square = 1 - first**count, 1 - second**count
    move = tuple((m / fix_mean) / (tf.sqrt(v / fix_square) + 1e-8) for m, v in zip(mean, square, strict=True))
    return _moved(weights, _decayed(recipe, move, weights), rate), [mean, square]


def averaged(average: Tensor, weights: Tensor, decay: Tensor) -> Tensor:
    """Return the exponential moving average of the weights: decay · average + (1 − decay) · weights."""
    return decay * average + (1 - decay) * weights


def _decayed(recipe: Recipe, move: Pair, weights: Pair) -> Pair:
    """Return `move` with weight decay added: of the kernels, and where the recipe says so of all that is trained."""
    kernels = move[0] + recipe.weight_decay * weights[0]
    return kernels, move[1] + recipe.weight_decay * weights[1] if recipe.decayed == "all" else move[1]


def _moved(weights: Pair, move: Any, rate: Tensor) -> Pair:
    return weights[0] - rate * move[0], weights[1] - rate * move[1]


RULES = {"sgd": sgd, "adamw": adamw}
