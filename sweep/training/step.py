"""A training step as two pure functions with one sum over the replicas between them.

Forward and backward on the replica's share of the batch → gradients, moving statistics and metrics in ONE vector,
summed over replicas → the optimizer's update, the same on every replica. XLA compiles the two functions; the sum is
outside, because XLA cannot compute it. Batch norm normalises `recipe.norm_images` images together, whichever replica
has them; the moving statistics are the mean over these groups at every step. So the number of devices changes a result
by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from models import Network, Weights
from sweep.data import Dataset, augment, policies
from sweep.experiment import Data, Recipe
from sweep.training import loss_scale
from sweep.training.evaluation import pixels, ranks
from sweep.training.optimizer import RULES, SLOTS, averaged, clipped, masked
from sweep.training.schedule import groups_of

Tensor = Any
FEW_CLASSES = 10  # with so few, top-5 accuracy of the training images says little and is not counted


def sums_of(classes: int) -> int:
    """Return how many numbers are summed over the images of an epoch: loss, right answers and perhaps top-5 hits."""
    return 2 if classes <= FEW_CLASSES else 3


@dataclass(frozen=True, eq=False)
class Step:
    """The computation of one step of one network on one data set."""

    network: Network
    recipe: Recipe
    data: Data
    dataset: Dataset
    replicas: int
    shaped: bool  # whether to use the layers of models/shaped.py
    use_mask: bool

    def gradients(
        self, weights: Weights, scale: Tensor, batch: Any, indices: Tensor, share: Tensor, seed: Tensor,
        mixing: Tensor, size: int,
    ) -> Tensor:  # fmt: skip
        """Return gradients, moving statistics, loss sum and right answers of the replica's images, in one vector.

        With many classes the number of images whose class is among the five largest logits comes last.
        """
        recipe = self.recipe
        images, labels = pixels(batch, self.dataset.image_size, indices)
        count = images.shape[0] * self.replicas  # images of this step, on all replicas
        groups = groups_of(recipe, self.replicas, count)  # each is normalised, and mixed, by itself

        def draw(purpose: int, high: int) -> Tensor:
            """Return a random integer in [0, high) for each image of the replica."""
            return augment.uniform(seed, purpose, count, (share, self.replicas), 0, high)

        images = self._augmented(images, draw)
        images = augment.normalised(images, self.dataset.mean, self.dataset.deviation, recipe.precision)
        images = augment.resized(images, size)
        if recipe.erasing:
            draws = [draw(purpose, 1 << 16) for purpose in range(5, 10)]
            images = augment.erased(images, recipe.erasing, *(tf.cast(one, tf.float32) / (1 << 16) for one in draws))
        classes = self.dataset.classes
        targets = tf.one_hot(labels, classes)
        if recipe.mixup:
            images, targets = augment.mixed_up(images, targets, mixing[0], groups)
        if recipe.cutmix:
            images, targets = augment.cut_mixed(images, targets, mixing[1], seed, groups)
        if recipe.label_smoothing:
            targets = targets * (1 - recipe.label_smoothing) + recipe.label_smoothing / classes
        with tf.GradientTape() as tape:
            tape.watch((weights.kernels, weights.others))
            logits, statistics = self.network.apply(weights, images, True, recipe.norm_momentum, self.shaped, groups)
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
            # divided by the size of the whole batch, so that the sum over replicas is the gradient of the mean loss
            loss = tf.reduce_sum(losses) / count
            loss = loss * scale if loss_scale.needed(recipe) else loss
        kernels, others = tape.gradient(loss, (weights.kernels, weights.others))
        right = tf.argmax(logits, 1, labels.dtype) == labels
        sums = [tf.reduce_sum(losses), tf.reduce_sum(tf.cast(right, tf.float32))]
        if sums_of(classes) > 2:
            sums.append(tf.reduce_sum(tf.cast(ranks(logits, labels) < 5, tf.float32)))
        sums = tf.stack(sums)
        return tf.concat([kernels, others, statistics / self.replicas, sums], 0)

    def _augmented(self, images: Tensor, draw: Callable[[int, int], Tensor]) -> Tensor:
        if self.data.pad:
            offsets = [draw(purpose, 2 * self.data.pad + 1) for purpose in (1, 2)]
            images = augment.cropped(images, self.data.pad, *offsets)
        if self.data.flip:
            images = augment.flipped(images, draw(3, 2))
        if self.recipe.policy != "none":
            table = policies.table(self.recipe.policy, self.recipe.rand_magnitude, images.shape[1])
            operations = self.recipe.rand_operations if self.recipe.policy == "rand" else 1
            for purpose in range(10, 10 + operations):
                images = policies.augmented(images, draw(purpose, len(table.operation)), table)
        return images

    def updated(self, state: dict[str, Tensor], packed: Tensor, rate: Tensor) -> dict[str, Tensor]:
        """Return the state after one step, from the vector of `gradients` summed over all replicas."""
        recipe, size = self.recipe, self.network.size
        kernels, others, statistics, sums = tf.split(
            packed, [size("kernel"), size("other"), size("statistic"), sums_of(self.dataset.classes)]
        )
        if self.use_mask:
            kernels = masked(kernels, state["mask"])
        gradients = (kernels, others)
        if loss_scale.needed(recipe):
            gradients = (kernels / state["scale"][0], others / state["scale"][0])
        if recipe.clip_norm:
            gradients = clipped(gradients, recipe.clip_norm)
        taken = state["taken"] + 1.0
        slots = [(state[f"slot{i}_kernels"], state[f"slot{i}_others"]) for i in range(SLOTS[recipe.optimizer])]
        moved, slots = RULES[recipe.optimizer](
            recipe, (state["kernels"], state["others"]), gradients, slots, rate, taken
        )
        new = {"kernels": moved[0], "others": moved[1], "statistics": statistics}
        if recipe.ema:
            decay: Any = recipe.ema
            if recipe.ema_unbiased:  # not `taken`, which rewound momentum brings with it
                decay = tf.minimum(recipe.ema, state["averaged"] / (state["averaged"] + 1.0))
            new |= {f"ema_{name}": averaged(state[f"ema_{name}"], value, decay) for name, value in new.items()}
        for i, slot in enumerate(slots):
            new |= {f"slot{i}_kernels": slot[0], f"slot{i}_others": slot[1]}
        new["taken"] = taken
        if "averaged" in state:
            new["averaged"] = state["averaged"] + 1.0
        if loss_scale.needed(recipe):  # an overflow halves the scale and changes nothing else
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in (kernels, others)])
            new = {name: tf.where(finite, value, state[name]) for name, value in new.items()}
            new["scale"] = loss_scale.adapted(state["scale"], finite)
        return new | {"sums": state["sums"] + sums}
