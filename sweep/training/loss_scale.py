"""The loss scale of float16, whose gradients under 6e-8 would be 0: multiplied before, divided after.

A step whose gradient overflows is skipped and the scale halved; after RISE_AFTER steps without overflow it is doubled
again, up to LARGEST. It never rises above where it began: a training that does not overflow has the same bits as with a
fixed scale. The pair (scale, steps since it last changed) is part of the state, and so of every checkpoint.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sweep.experiment import Recipe

Tensor = Any
LARGEST = 1024.0
SMALLEST = 2.0**-14  # a gradient that overflows even so is no matter of scale
RISE_AFTER = 2000.0


def needed(recipe: Recipe) -> bool:
    """Whether the loss is scaled, so that small gradients do not vanish."""
    return recipe.precision == "float16"


def adapted(scale: Tensor, finite: Tensor) -> Tensor:
    """The pair (scale, steps since it changed) after a step whose gradient was finite, or not."""
    value, steps = scale[0], scale[1] + 1.0
    rises = (steps >= RISE_AFTER) & (value < LARGEST)
    risen = tf.where(rises, tf.stack([2.0 * value, 0.0]), tf.stack([value, steps]))
    return tf.where(finite, risen, tf.stack([value / 2.0, 0.0]))


def all_finite(*gradients: Tensor) -> Tensor:
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
