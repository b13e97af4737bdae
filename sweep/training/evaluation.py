"""The evaluation of a network on images: its logits, loss and accuracy.

It needs a network, weights and images, but no training data and no optimizer. A training evaluates the weights that it
trains; otherwise `load` sets the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from models import Network, Weights
from sweep.data import Split, augment
from sweep.data.feed import Feed, feed
from sweep.data.resident import PER_REPLICA, Resident
from sweep.devices import Devices
from sweep.errors import Refused
from sweep.experiment import Data, Recipe

Tensor = Any
# no autograph (translation of Python's loops into TensorFlow's): it takes 40 % of the time of tracing
function = partial(tf.function, autograph=False)
ANYWHERE = Data()  # no cache of the user's own; shards are kept on the device where they fit


class Evaluation:
    """The evaluation of one network on any images of its shape, computed as in a training with this recipe.

    `mean` and `deviation` are those that normalised the pixels in training; `data` says how images are read.
    `variables` hold the weights to evaluate; if None, the evaluation makes its own.
    """

    def __init__(
        self, network: Network, recipe: Recipe, mean: tuple[float, ...], deviation: tuple[float, ...],
        devices: Devices, data: Data = ANYWHERE, variables: Weights | None = None,
    ) -> None:  # fmt: skip
        self.network, self.recipe, self.devices, self.data = network, recipe, devices, data
        self.mean, self.deviation = mean, deviation
        self.jit, self.shaped = formulation(network, recipe, devices)
        if variables is None:
            with devices.strategy.scope():
                variables = Weights(*(tf.Variable(part, trainable=False, **PER_REPLICA) for part in network.initial(0)))
        self.variables = variables
        self._feeds: dict[int, tuple[Split, Feed]] = {}
        # one replica: XLA compiles the loop over steps or batches too, so that the host has nothing to start in between
        self.whole = self.jit and devices.replicas == 1
        compiled = partial(function, jit_compile=self.jit and not self.whole)
        self._count: Callable[..., Any] = compiled(self._counted)
        self._evaluate = function(self._evaluation, jit_compile=self.whole)
        self._apply: Callable[..., Any] = compiled(self._applied)
        self._logits = function(self._logits_of_batch, jit_compile=self.whole)

    def load(self, weights: Weights, mask: np.ndarray | None = None) -> None:
        """Set the network to `mask × weights`."""
        kernels = weights.kernels if mask is None else np.where(mask, weights.kernels, np.float32(0))
        for variable, value in zip(self.variables, weights._replace(kernels=kernels), strict=True):
            variable.assign(value)

    def weights(self) -> Weights:
        """Return the weights that are evaluated."""
        local = self.devices.strategy.experimental_local_results
        return Weights(*(local(variable)[0].numpy() for variable in self.variables))

    def feed(self, split: Split) -> Feed:
        """Return the feed of a split, made once; the split is stored too, so that no other object gets its id."""
        if id(split) not in self._feeds:
            made = feed(split, self.devices, self.network.image_size, self.data.cache, self.data.resident)
            self._feeds[id(split)] = split, made
        return self._feeds[id(split)][1]

    def metrics(self, split: Split) -> dict[str, float]:
        """Return mean loss, top-1 and top-5 accuracy over the split, every image counted once."""
        order, source = self._order(split), self.feed(split)
        if isinstance(source, Resident):
            totals = self._evaluate(source=source, order=tf.constant(order), batch=None).numpy()
        else:
            parts = (
                self._evaluate(source=source, order=tf.constant(rows[None]), batch=batch)
                for rows, batch in self._batches(split)
            )
            totals = sum(parts, tf.zeros(3)).numpy()
        loss, top1, top5 = (float(total) / len(split) for total in totals)
        return {"loss": loss, "top1": top1, "top5": top5}

    def logits(self, split: Split) -> np.ndarray:
        """Return the logits of every image of the split, in its order: `[images, classes]`, float32."""
        source, local = self.feed(split), self.devices.strategy.experimental_local_results
        parts = [
            part.numpy()
            for rows, batch in self._batches(split)
            for part in local(self._logits(source=source, rows=tf.constant(rows), batch=batch))
        ]
        return np.asarray(np.concatenate(parts)[: len(split)])

    def call(self, split: Split) -> tuple[Any, dict[str, Any]]:
        """Return the compiled function that evaluates this split, and arguments for it."""
        source, order = self.feed(split), self._order(split)
        order = order if isinstance(source, Resident) else order[:1]
        return self._evaluate, {"source": source, "order": tf.constant(order), "batch": source.example(order.shape[1])}

    def _order(self, split: Split) -> np.ndarray:
        """Return the indices of the images in every batch `[batches, batch]`; -1 pads the last batch."""
        replicas = self.devices.replicas
        batch = -(-min(len(split), max(self.recipe.batch, 256)) // replicas) * replicas
        order: np.ndarray = np.full(-(-len(split) // batch) * batch, -1, np.int32)
        order[: len(split)] = np.arange(len(split))
        return order.reshape(-1, batch)

    def _batches(self, split: Split) -> Iterator[tuple[np.ndarray, Any]]:
        order = self._order(split)
        return zip(order, self.feed(split).batches(order, None), strict=False)  # a resident split never ends

    def _share(self, source: Feed, rows: Tensor, batch: Any) -> tuple[Weights, Any, Tensor, bool]:
        """Return weights, batch, indices of this replica's images, and whether to gather them from the batch."""
        each, gather = rows.shape[0] // self.devices.replicas, False
        share = tf.distribute.get_replica_context().replica_id_in_sync_group
        indices = tf.slice(rows, [share * each], [each])
        if isinstance(source, Resident):
            batch, taken = source.taken(rows, None)
            gather = taken is not None
        return Weights(*(variable.read_value() for variable in self.variables)), batch, indices, gather

    def _logits_of_batch(self, source: Feed, rows: Tensor, batch: Any) -> Any:
        def logits(batch: Any) -> Tensor:
            return self._apply(*self._share(source, rows, batch))[0]

        return self.devices.strategy.run(logits, args=(batch,))

    def _evaluation(self, source: Feed, order: Tensor, batch: Any) -> Tensor:
        def count(rows: Tensor, batch: Any) -> Tensor:
            return self._count(*self._share(source, rows, batch))

        def one_more(i: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
            part = self.devices.strategy.run(count, args=(order[i], batch))
            return i + 1, totals + self.devices.strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None)

        return tf.while_loop(lambda i, _: i < order.shape[0], one_more, [tf.constant(0), tf.zeros(3)])[1]

    def _applied(self, weights: Weights, batch: Any, indices: Tensor, gather: bool) -> tuple[Tensor, Tensor]:
        """Return logits `[images, classes]` and labels `[images]` of a replica's images."""
        images, labels = pixels(batch, self.network.image_size, tf.maximum(indices, 0) if gather else None)
        images = augment.normalised(images, self.mean, self.deviation, self.recipe.precision)
        return self.network.apply(weights, images, False, shaped=self.shaped)[0], labels

    def _counted(self, weights: Weights, batch: Any, indices: Tensor, gather: bool) -> Tensor:
        """Return the sum of the losses and the number of top-1 and top-5 hits over a replica's images, `[3]`."""
        logits, labels = self._applied(weights, batch, indices, gather)
        real = tf.cast(indices >= 0, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        rank = ranks(logits, labels)
        hits = [tf.reduce_sum(real * tf.cast(rank < k, tf.float32)) for k in (1, 5)]
        return tf.stack([tf.reduce_sum(real * losses), *hits])


def ranks(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the rank of the right class of each image, from 0: the number of classes that are not below it.

    Of equal logits the earlier class ranks higher; NaN is below nothing.
    """
    own = tf.gather(logits, labels, axis=1, batch_dims=1)[:, None]
    after = tf.range(logits.shape[1])[None, :] >= tf.cast(labels, tf.int32)[:, None]
    below = (logits < own) | ((logits == own) & after)
    return tf.reduce_sum(tf.cast(~below, tf.float32), 1)


def pixels(batch: Any, size: int, indices: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return images of `size` × `size` pixels and their labels, both `[images, …]`; windows are resampled.

    With `indices` they are gathered from images of that size.
    """
    images, labels, *windows = batch
    if indices is not None:
        return tf.gather(images, indices), tf.gather(labels, indices)
    return augment.resampled(images, windows[0], size) if windows else images, labels


def formulation(network: Network, recipe: Recipe, devices: Devices) -> tuple[bool, bool]:
    """Return whether XLA compiles the network and whether it uses the layers of models/shaped.py, or raise Refused.

    Shaped against plain layers, MobileNetV2, bfloat16, H200: 3.2 against 5.8 ms a step at 32 px and batch 128, 21.1
    against 23.9 ms at 224 px and batch 256 (docs/performance.md). On CPU shaped layers are slower. Networks of 3 × 3
    convolutions alone use the library's layers.
    """
    gpu = devices.kind == "GPU"
    jit = recipe.xla == "on" or (recipe.xla == "auto" and gpu)
    if recipe.layers == "shaped" and not jit:
        raise Refused("recipe.layers: received shaped, which needs XLA; expected plain or auto, or recipe.xla: on")
    gains = jit and gpu and any(layer.kind == "depthwise" for layer in network.layers)
    return jit, recipe.layers == "shaped" or (recipe.layers == "auto" and gains)
