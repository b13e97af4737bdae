"""The gradients that pruning scores are computed from, through the network that is trained.

They are computed in float32 on one device: once per mask, and they decide which weights are kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from models import Weights
from sweep.data import Images, augment
from sweep.data.feed import feed
from sweep.devices import first
from sweep.training.evaluation import function, pixels
from sweep.training.program import Program

Array = np.ndarray
PER_CLASS = 10  # images of each class, as published for SNIP and GraSP
TEMPERATURE = 200.0  # GraSP divides the logits by this


class DeviceGradients:
    """Gradients with respect to the kernels `[prunable]`, on images that `seed` draws from the training split.

    All parameters but the kernels are those of `weights`.
    """

    def __init__(self, program: Program, weights: Weights, seed: int) -> None:
        self.program, self.network, self.seed = program, program.network, seed
        self.others, self.statistics = tf.constant(weights.others), tf.constant(weights.statistics)
        self._of_loss, self._product, self._of_flow = map(function, (self._loss_gradient, self._hessian, self._flow))

    def of_loss(self, kernels: Array) -> Array:
        """Return ∂L/∂θ of the mean loss."""
        return self._mean(self._of_loss, kernels, 1.0)

    def hessian_product(self, kernels: Array) -> Array:
        """Return H g = ∂(gᵀ g₀)/∂θ, g₀ = g held constant: both of the mean loss, logits divided by TEMPERATURE."""
        gradient = self._mean(self._of_loss, kernels, TEMPERATURE)  # of all batches, else H g is mostly their noise
        return self._mean(self._product, kernels, tf.constant(gradient))

    def of_flow(self, kernels: Array) -> Array:
        """Return ∂R/∂|θ| of SynFlow's R: the sum of outputs of the linear network |θ| for an image of ones."""
        return np.asarray(self._of_flow(tf.constant(np.abs(kernels), tf.float64)).numpy())

    def _mean(self, function: Any, kernels: Array, given: Any) -> Array:
        parts = [function(tf.constant(kernels, tf.float32), *batch, given).numpy() for batch in self._batches]
        return np.asarray(np.mean(parts, axis=0))

    @cached_property
    def _batches(self) -> list[tuple[Any, Any]]:
        """Return ten images of every class, shuffled, in equal batches of at most the recipe's batch size."""
        split, dataset = self.program.dataset.train, self.program.dataset
        labels = np.asarray(split.labels)
        stream = np.random.Generator(np.random.Philox([self.seed, 2]))
        found = [np.flatnonzero(labels == c) for c in range(dataset.classes)]
        chosen = np.concatenate([stream.permutation(places)[:PER_CLASS] for places in found])
        count = -(-chosen.size // self.program.recipe.batch)
        each = chosen.size // count
        chosen = np.sort(stream.permutation(chosen)[: count * each].reshape(count, each), axis=1)
        return [self._read(rows) for rows in chosen]

    def _read(self, rows: Array) -> tuple[Any, Any]:
        dataset = self.program.dataset
        split = dataset.train.take(rows)
        if isinstance(split, Images):
            batch: Any = (split.images, split.labels)
        else:
            source = feed(split, first(self.program.devices, 1), dataset.image_size, self.program.data.cache)
            batch = next(iter(source.batches(np.arange(len(rows))[None], None)))
        images, labels = pixels(batch, dataset.image_size)
        return augment.normalised(images, dataset.mean, dataset.deviation, "float32"), labels

    def _loss(self, kernels: Any, images: Any, labels: Any, temperature: float) -> Any:
        weights = Weights(kernels, self.others, self.statistics)
        logits, _ = self.network.apply(weights, images, True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits / temperature))

    def _loss_gradient(self, kernels: Any, images: Any, labels: Any, temperature: float) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(kernels)
            loss = self._loss(kernels, images, labels, temperature)
        return tape.gradient(loss, kernels)

    def _hessian(self, kernels: Any, images: Any, labels: Any, gradient: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(kernels)
            product = tf.reduce_sum(self._loss_gradient(kernels, images, labels, TEMPERATURE) * gradient)
        return outer.gradient(product, kernels)

    def _flow(self, kernels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(kernels)
            total = self.network.flow(kernels)
        return tape.gradient(total, kernels)
