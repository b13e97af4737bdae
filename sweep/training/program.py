"""The compiled training program: state on the devices, steps, evaluation.

Built once per process. Weights, momentum and mask are variables, so that the next cell is loaded, not recompiled.

A step is two pure functions with one sum over the replicas between them: forward and backward on the replica's share
of the batch → gradients, moving statistics and metrics in ONE vector, summed over replicas → the optimizer's update,
the same on every replica. XLA compiles the two functions; the sum stays outside, where XLA may not go. Batch norm
normalises `recipe.norm_images` images together, whichever replica has them; the moving statistics are the mean over
these groups at every step. So the number of devices enters the result by rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from models import Network, Weights, build
from sweep.data import Dataset, Split, augment
from sweep.data.feed import PER_REPLICA, Feed, Resident, feed
from sweep.devices import Devices
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.graph.training import Training
from sweep.training import loss_scale
from sweep.training.optimizer import RULES, SLOTS, averaged, clipped, masked
from sweep.training.schedule import Epoch, epoch_of, groups_of, size_at

Tensor = Any


class Program:
    """Trains and evaluates one network on one data set."""

    def __init__(self, asked: Experiment | Training, dataset: Dataset, devices: Devices, use_mask: bool = True) -> None:
        self.recipe, self.data, self.dataset, self.devices = asked.recipe, asked.data, dataset, devices
        self.network: Network = build(
            asked.model.name,
            image_size=dataset.image_size,
            channels=dataset.channels,
            classes=dataset.classes,
            width=asked.model.width,
        )
        self.use_mask = use_mask
        self.scaled = self.recipe.precision == "float16"
        self.groups = groups_of(self.recipe, devices.replicas)
        if len(dataset.train) < self.recipe.batch:
            raise Refused(
                f"recipe.batch: received {self.recipe.batch}, expected at most the {len(dataset.train)} training images"
            )
        self.steps = len(dataset.train) // self.recipe.batch
        self._feeds: dict[int, tuple[Split, Feed]] = {}
        self._state = self._variables()
        self.jit = self.recipe.xla == "on" or (self.recipe.xla == "auto" and devices.kind == "GPU")
        if self.recipe.layers == "shaped" and not self.jit:
            raise Refused("recipe.layers: received shaped, which needs XLA; expected plain or auto, or recipe.xla: on")
        self.shaped = self.recipe.layers == "shaped" or (self.recipe.layers == "auto" and self._gains_by_shaping())
        # one replica: the loop over the steps is part of what XLA compiles, so that the host starts nothing in between
        whole = self.jit and devices.replicas == 1
        # autograph, which would turn Python's loops into TensorFlow's, takes 40 % of the time of tracing
        function = partial(tf.function, autograph=False)
        compiled = partial(function, jit_compile=self.jit and not whole)
        self._gradients: Callable[..., Any] = compiled(self._gradients_of)
        self._update: Callable[..., Any] = compiled(self._updated)
        self._count: Callable[..., Any] = compiled(self._counted)
        self._run = function(self._steps, jit_compile=whole)
        self._evaluate = function(self._evaluation, jit_compile=whole)
        if self.jit:
            # Now, before anything else is computed: the names of traced functions count what TensorFlow did so far, and
            # compiled programs are found again by name. Traced later, a cell would not find what the warm-up compiled.
            for called, arguments in self.calls():
                called.get_concrete_function(**arguments)

    def __str__(self) -> str:
        network, data, replicas = self.network, self.dataset, self.devices.replicas
        text = (
            f"{network.name}: {network.parameters:,} parameters, {network.prunable:,} of them prunable, "
            f"{network.macs / 1e6:.3g} M multiply-adds an image; {len(data.train)} training, {len(data.validation)} "
            f"validation, {len(data.test)} test images; {self.recipe.precision} on {self.devices}"
            f"{' with XLA' if self.jit else ''}"
        )
        if self.groups * replicas > 1:
            together = self.recipe.batch // (self.groups * replicas)
            text += f"; batch norm normalises {together} images of a batch of {self.recipe.batch} together"
        return text

    def _gains_by_shaping(self) -> bool:
        # MobileNetV2, bfloat16, H200: 3.2 ms a step against 5.8 at 32 px and batch 128, 21.1 against 23.9 at 224 px and
        # batch 256 (docs/performance.md). On CPU, where XLA does not pay, the shaped step is slower. Networks of 3×3
        # convolutions alone are left to the library.
        depthwise = any(layer.kind == "depthwise" for layer in self.network.layers)
        return self.jit and self.devices.kind == "GPU" and depthwise

    # State ------------------------------------------------------------------------------------------------------

    def _variables(self) -> dict[str, Any]:
        kernels, others, statistics = (self.network.size(role) for role in ("kernel", "other", "statistic"))
        sizes = {"kernels": kernels, "others": others, "statistics": statistics, "taken": 1, "sums": 2}
        for slot in range(SLOTS[self.recipe.optimizer]):
            sizes |= {f"slot{slot}_kernels": kernels, f"slot{slot}_others": others}
        sizes |= {"scale": 2} if self.scaled else {}
        if self.recipe.ema:
            sizes |= {"ema_kernels": kernels, "ema_others": others, "ema_statistics": statistics}
        with self.devices.strategy.scope():
            state = {name: tf.Variable(tf.zeros(n), trainable=False, **PER_REPLICA) for name, n in sizes.items()}
            state["mask"] = tf.Variable(tf.ones(kernels, tf.bool), trainable=False, **PER_REPLICA)
        return state

    def load(self, weights: Weights, mask: np.ndarray | None = None) -> None:
        """Set the network to `mask × weights`, with no momentum."""
        if mask is not None and not self.use_mask:
            raise ValueError("this program was built without masks")
        mask = np.ones(self.network.prunable, bool) if mask is None else mask
        start = Weights(np.where(mask, weights.kernels, np.float32(0)), weights.others, weights.statistics)
        state = {name: np.zeros(v.shape, np.float32) for name, v in self._state.items() if name != "mask"}
        state |= start._asdict()
        if self.scaled:
            state["scale"] = np.array([loss_scale.LARGEST, 0.0], np.float32)
        if self.recipe.ema:
            state |= {f"ema_{name}": vector for name, vector in start._asdict().items()}
        self._state["mask"].assign(mask)
        self.restore(state)

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Everything that training changes, as `state()` gave it."""
        for name, value in state.items():
            self._state[name].assign(value)

    def state(self) -> dict[str, np.ndarray]:
        """Everything that training changes."""
        return {name: self._local(name) for name in self._state if name != "mask"}

    def weights(self) -> Weights:
        """The weights as they are trained."""
        return Weights(*(self._local(name) for name in Weights._fields))

    def final_weights(self) -> Weights:
        """The weights that are evaluated: the moving average where the recipe keeps one."""
        return Weights(*(self._local(f"ema_{name}") for name in Weights._fields)) if self.recipe.ema else self.weights()

    def replicas_of(self, name: str) -> list[np.ndarray]:
        """One state vector as every replica has it."""
        return [value.numpy() for value in self.devices.strategy.experimental_local_results(self._state[name])]

    def _local(self, name: str) -> np.ndarray:
        return self.replicas_of(name)[0]

    # Training ---------------------------------------------------------------------------------------------------

    def feed(self, split: Split) -> Feed:
        """How the split reaches the devices; made once. The split is kept with it, so that its id stays its own."""
        if id(split) not in self._feeds:
            self._feeds[id(split)] = split, feed(split, self.devices, self.dataset.image_size, self.data.cache)
        return self._feeds[id(split)][1]

    def run(self, epoch: Epoch, first: int, last: int, batch: Any = None) -> None:
        """Steps first … last - 1 of the epoch. `batch` is the one batch of a single streamed step."""
        self._run(**self._steps_of(epoch, first, last, batch))

    def _steps_of(self, epoch: Epoch, first: int, last: int, batch: Any) -> dict[str, Any]:
        self.feed(self.dataset.train)  # its variables must exist before the step is traced
        return {
            "first": tf.constant(first), "last": tf.constant(last), "order": tf.constant(epoch.order),
            "rates": tf.constant(epoch.learning_rates), "seeds": tf.constant(epoch.seeds),
            "mixing": tf.constant(epoch.mixing), "batch": batch, "size": epoch.image_size,
        }  # fmt: skip

    def calls(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Every compiled function of a training and arguments for it: a step at each image size, each evaluation."""
        recipe, train, full = self.recipe, self.dataset.train, self.dataset.image_size
        sizes = [size_at(recipe, epoch, full) for epoch in range(recipe.epochs)]
        for size in sorted(set(sizes)):
            epoch = epoch_of(recipe, 0, sizes.index(size), len(train), full)
            yield self._run, self._steps_of(epoch, 0, 1, self.feed(train).example(recipe.batch))
        for split in (self.dataset.validation, self.dataset.test):
            if len(split):
                source, order = self.feed(split), self._evaluation_order(split)
                order = order if isinstance(source, Resident) else order[:1]
                batch = source.example(order.shape[1])
                yield self._evaluate, {"source": source, "order": tf.constant(order), "batch": batch}

    @property
    def loss_scale(self) -> float:
        """By which the loss is multiplied now; 1 where it is not."""
        return float(self._local("scale")[0]) if self.scaled else 1.0

    def take_sums(self) -> tuple[float, float]:
        """Sum of the loss and number of right answers since the sums were last set to 0."""
        loss, right = self._local("sums")
        return float(loss), float(right)

    def clear_sums(self) -> None:
        self._state["sums"].assign(tf.zeros(2))

    def _steps(
        self,
        first: Tensor,
        last: Tensor,
        order: Tensor,
        rates: Tensor,
        seeds: Tensor,
        mixing: Tensor,
        batch: Any,
        size: int,
    ) -> None:
        def step(batch: Any, i: Tensor) -> None:
            self._replica_step(batch, order[i], rates[i], seeds[i], mixing[i], size)

        def one_more(i: Tensor) -> list[Tensor]:
            self.devices.strategy.run(step, args=(batch, i))
            return [i + 1]

        # bounds as numbers: a range of them would be compiled anew for every length
        tf.while_loop(lambda i: i < last, one_more, [first])

    def _replica_step(self, batch: Any, indices: Tensor, rate: Tensor, seed: Tensor, mixing: Tensor, size: int) -> None:
        replicas, context = self.devices.replicas, tf.distribute.get_replica_context()
        share = context.replica_id_in_sync_group
        source = self.feed(self.dataset.train)
        if isinstance(source, Resident):
            batch = (source.images.read_value(), source.labels.read_value())
            each = self.recipe.batch // replicas
            indices = tf.slice(indices, [share * each], [each])
        else:
            indices = None
        state = {name: variable.read_value() for name, variable in self._state.items()}
        scale = state["scale"][0] if self.scaled else None
        packed = self._gradients(_weights(state), scale, batch, indices, share, seed, mixing, size)
        if replicas > 1:
            packed = context.all_reduce(tf.distribute.ReduceOp.SUM, packed)
        for name, value in self._update(state, packed, rate).items():
            self._state[name].assign(value)

    def _gradients_of(
        self, weights: Weights, scale: Tensor, batch: Any, indices: Tensor, share: Tensor, seed: Tensor,
        mixing: Tensor, size: int,
    ) -> Tensor:  # fmt: skip
        """Gradients of the replica's share of the batch, its statistics, loss and right answers, in one vector."""
        recipe = self.recipe
        images, labels = self.pixels(batch if indices is None else [tf.gather(part, indices) for part in batch])
        images = self._augmented(images, share, seed)
        images = augment.normalised(images, self.dataset.mean, self.dataset.deviation, recipe.precision)
        images = augment.resized(images, size)
        classes = self.dataset.classes
        targets = tf.one_hot(labels, classes)
        if recipe.mixup:
            images, targets = augment.mixed_up(images, targets, mixing[0], self.groups)
        if recipe.cutmix:
            images, targets = augment.cut_mixed(images, targets, mixing[1], seed, self.groups)
        if recipe.label_smoothing:
            targets = targets * (1 - recipe.label_smoothing) + recipe.label_smoothing / classes
        with tf.GradientTape() as tape:
            tape.watch((weights.kernels, weights.others))
            logits, statistics = self.network.apply(
                weights, images, True, recipe.norm_momentum, self.shaped, self.groups
            )
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
            # divided by the whole batch: the sum over replicas is then the gradient of the batch's mean
            loss = tf.reduce_sum(losses) / recipe.batch
            loss = loss * scale if self.scaled else loss
        kernels, others = tape.gradient(loss, (weights.kernels, weights.others))
        right = tf.argmax(logits, 1, labels.dtype) == labels
        sums = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(tf.cast(right, tf.float32))])
        return tf.concat([kernels, others, statistics / self.devices.replicas, sums], 0)

    def pixels(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Images at the network's size, and labels; of prepared images the windows that come with them."""
        images, labels, *windows = batch
        return augment.resampled(images, windows[0], self.dataset.image_size) if windows else images, labels

    def _augmented(self, images: Tensor, share: Tensor, seed: Tensor) -> Tensor:
        draw = partial(augment.uniform, seed, batch=self.recipe.batch, share=(share, self.devices.replicas))
        if self.data.pad:
            offsets = [draw(purpose, low=0, high=2 * self.data.pad + 1) for purpose in (1, 2)]
            images = augment.cropped(images, self.data.pad, *offsets)
        if self.data.flip:
            images = augment.flipped(images, draw(3, low=0, high=2))
        return images

    def _updated(self, state: dict[str, Tensor], packed: Tensor, rate: Tensor) -> dict[str, Tensor]:
        """The state after one step, from the summed vector of all replicas."""
        recipe, size = self.recipe, self.network.size
        kernels, others, statistics, sums = tf.split(packed, [size("kernel"), size("other"), size("statistic"), 2])
        if self.use_mask:
            kernels = masked(kernels, state["mask"])
        gradients = (kernels, others)
        if self.scaled:
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
            new |= {f"ema_{name}": averaged(state[f"ema_{name}"], value, recipe.ema) for name, value in new.items()}
        for i, slot in enumerate(slots):
            new |= {f"slot{i}_kernels": slot[0], f"slot{i}_others": slot[1]}
        new["taken"] = taken
        if self.scaled:  # a step whose gradient overflowed leaves everything as it was, and the scale halved
            finite = loss_scale.all_finite(kernels, others)
            new = {name: tf.where(finite, value, state[name]) for name, value in new.items()}
            new["scale"] = loss_scale.adapted(state["scale"], finite)
        return new | {"sums": state["sums"] + sums}

    # Evaluation -------------------------------------------------------------------------------------------------

    def evaluate(self, split: Split) -> dict[str, float]:
        """Loss, top-1 and top-5 of every image of the split, each counted once; the last batch is padded."""
        order, source = self._evaluation_order(split), self.feed(split)
        if isinstance(source, Resident):
            totals = self._evaluate(source=source, order=tf.constant(order), batch=None).numpy()
        else:
            batches = zip(order, source.batches(order, None), strict=True)
            totals = sum(
                self._evaluate(source=source, order=tf.constant(rows[None]), batch=part).numpy()
                for rows, part in batches
            )
        loss, top1, top5 = (float(total) / len(split) for total in totals)
        return {"loss": loss, "top1": top1, "top5": top5}

    def _evaluation_order(self, split: Split) -> np.ndarray:
        batch = -(-min(len(split), max(self.recipe.batch, 256)) // self.devices.replicas) * self.devices.replicas
        order: np.ndarray = np.full(-(-len(split) // batch) * batch, -1, np.int32)
        order[: len(split)] = np.arange(len(split))
        return order.reshape(-1, batch)

    def _evaluation(self, source: Feed, order: Tensor, batch: Any) -> Tensor:
        def count(rows: Tensor, batch: Any) -> Tensor:
            each = order.shape[1] // self.devices.replicas
            share = tf.distribute.get_replica_context().replica_id_in_sync_group
            indices = tf.slice(rows, [share * each], [each])
            if isinstance(source, Resident):
                batch = (source.images.read_value(), source.labels.read_value())
            prefix = "ema_" if self.recipe.ema else ""
            weights = Weights(*(self._state[prefix + name].read_value() for name in Weights._fields))
            return self._count(weights, batch, indices, isinstance(source, Resident))

        def one_more(i: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
            part = self.devices.strategy.run(count, args=(order[i], batch))
            return i + 1, totals + self.devices.strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None)

        return tf.while_loop(lambda i, _: i < order.shape[0], one_more, [tf.constant(0), tf.zeros(3)])[1]

    def _counted(self, weights: Weights, batch: Any, indices: Tensor, gather: bool) -> Tensor:
        images, labels = self.pixels([tf.gather(part, tf.maximum(indices, 0)) for part in batch] if gather else batch)
        images = augment.normalised(images, self.dataset.mean, self.dataset.deviation, self.recipe.precision)
        logits, _ = self.network.apply(weights, images, False, shaped=self.shaped)
        real = tf.cast(indices >= 0, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        # rank of the right class = classes not below it (of equal ones the earlier is above); NaN is below nothing
        own = tf.gather(logits, labels, axis=1, batch_dims=1)[:, None]
        after = tf.range(self.dataset.classes)[None, :] >= tf.cast(labels, tf.int32)[:, None]
        below = (logits < own) | ((logits == own) & after)
        rank = tf.reduce_sum(tf.cast(~below, tf.float32), 1)
        hits = [tf.reduce_sum(real * tf.cast(rank < k, tf.float32)) for k in (1, 5)]
        return tf.stack([tf.reduce_sum(real * losses), *hits])


def _weights(state: dict[str, Tensor]) -> Weights:
    return Weights(*(state[name] for name in Weights._fields))
