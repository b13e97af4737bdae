"""The dynamic loss scale of float16: gradients under 6e-8 would be 0, so the loss is multiplied and gradients divided.

A step whose gradient overflows is skipped and the scale halved; after RISE_AFTER steps without overflow it is doubled
again, up to LARGEST, where it started. So a training that never overflows has the same bits as with a fixed scale. The
pair (scale, steps since it last changed) is part of the state, and so of every checkpoint.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sweep.experiment import Recipe

Tensor = Any
LARGEST = 1024.0
SMALLEST = 2.0**-14  # below this, the gradient itself overflows, and the training has diverged
RISE_AFTER = 2000.0


def needed(recipe: Recipe) -> bool:
    """Whether the loss is scaled: only in float16, where small gradients would vanish."""
    return recipe.precision == "float16"


def adapted(scale: Tensor, finite: Tensor) -> Tensor:
    """Return the pair (scale, steps since it changed) after a step; `finite` says whether its gradient was finite."""
    value, steps = scale[0], scale[1] + 1.0
    rises = (steps >= RISE_AFTER) & (value < LARGEST)
    risen = tf.where(rises, tf.stack([2.0 * value, 0.0]), tf.stack([value, steps]))
    return tf.where(finite, risen, tf.stack([value / 2.0, 0.0]))
