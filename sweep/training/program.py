"""The compiled training program: the state on the devices, and the steps that change it.

It is built once per process. Weights, momentum and mask are variables, so that the next training is loaded, not
compiled again. What a step computes is in step.py: two pure functions with one sum over the replicas between them.
Evaluation is in evaluation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from models import Network, Weights, build
from sweep.data import Dataset
from sweep.data.fingerprint import fingerprint
from sweep.data.resident import PER_REPLICA, Resident
from sweep.devices import Devices
from sweep.experiment import Experiment
from sweep.graph.training import Task
from sweep.training import loss_scale
from sweep.training.evaluation import Evaluation, function
from sweep.training.optimizer import SLOTS
from sweep.training.schedule import Epoch, check_batch, check_devices, epoch_of, groups_of, size_at, steps_of
from sweep.training.step import Step, sums_of

Tensor = Any


class Program:
    """The compiled training of one network on one data set; `evaluation` uses the moving average if there is one."""

    def __init__(self, asked: Experiment | Task, dataset: Dataset, devices: Devices, use_mask: bool = True) -> None:
        self.recipe, self.data, self.dataset, self.devices = asked.recipe, asked.data, dataset, devices
        self.network: Network = build(
            asked.model.name,
            image_size=dataset.image_size,
            channels=dataset.channels,
            classes=dataset.classes,
            width=asked.model.width,
            initializer=asked.model.initializer,
            blur=asked.model.blur,
        )
        self.use_mask = use_mask
        check_devices(self.recipe, devices.replicas)
        check_batch(self.recipe, len(dataset.train))
        self.steps = steps_of(self.recipe, len(dataset.train))  # of an epoch of recipe.batch
        self.scaled = loss_scale.needed(self.recipe)
        self._sent: tuple[Epoch, dict[str, Any]] | None = None  # the last epoch's inputs, as tensors
        self._state = self._variables()
        evaluated = Weights(*(self._state[f"ema_{name}" if self.recipe.ema else name] for name in Weights._fields))
        self.evaluation = Evaluation(
            self.network, self.recipe, dataset.mean, dataset.deviation, devices, self.data, evaluated
        )
        self.feed = self.evaluation.feed  # training images reach the devices in the same way
        self.jit, shaped, whole = self.evaluation.jit, self.evaluation.shaped, self.evaluation.whole
        step = Step(self.network, self.recipe, self.data, dataset, devices.replicas, shaped, use_mask)
        compiled = partial(function, jit_compile=self.jit and not whole)
        self._gradients: Callable[..., Any] = compiled(step.gradients)
        self._update: Callable[..., Any] = compiled(step.updated)
        self._run = function(self._steps, jit_compile=whole)
        if self.jit:
            # Trace now, before anything else is computed: the names of traced functions contain a count of what
            # TensorFlow did so far, and compiled programs are found by name. Traced later, a training would not find
            # what the warm-up compiled.
            for called, arguments in self.calls():
                called.get_concrete_function(**arguments)

    @cached_property
    def fingerprint(self) -> str:
        """Return the fingerprint of the images that the program trains on and evaluates."""
        return fingerprint(self.dataset, self.data)

    @property
    def images(self) -> str:
        """Return where training images are: "whole" on every device, "divided" among them, or "streamed".

        XLA compiles another program for each, which may round differently.
        """
        feed = self.feed(self.dataset.train)
        if not isinstance(feed, Resident):
            return "streamed"
        return "divided" if feed.divided else "whole"

    def __str__(self) -> str:
        network, data, replicas = self.network, self.dataset, self.devices.replicas
        text = (
            f"{network.name}: {network.parameters:,} parameters, {network.prunable:,} of them prunable, "
            f"{network.macs / 1e6:.3g} M multiply-adds an image; {len(data.train)} training, {len(data.validation)} "
            f"validation, {len(data.test)} test images; {self.recipe.precision} on {self.devices}"
            f"{' with XLA' if self.jit else ''}"
        )
        if groups_of(self.recipe, replicas, self.recipe.batch) * replicas > 1:
            together = self.recipe.norm_images
            text += f"; batch norm normalises {together} images of a batch of {self.recipe.batch} together"
        return text

    # State ------------------------------------------------------------------------------------------------------

    def _variables(self) -> dict[str, Any]:
        kernels, others, statistics = (self.network.size(role) for role in ("kernel", "other", "statistic"))
        sizes = {"kernels": kernels, "others": others, "statistics": statistics, "taken": 1}
        sizes["sums"] = sums_of(self.dataset.classes)
        for slot in range(SLOTS[self.recipe.optimizer]):
            sizes |= {f"slot{slot}_kernels": kernels, f"slot{slot}_others": others}
        sizes |= {"scale": 2} if self.scaled else {}
        if self.recipe.ema:
            sizes |= {"ema_kernels": kernels, "ema_others": others, "ema_statistics": statistics}
            sizes |= {"averaged": 1} if self.recipe.ema_unbiased else {}  # steps in the average
        with self.devices.strategy.scope():
            state = {name: tf.Variable(tf.zeros(n), trainable=False, **PER_REPLICA) for name, n in sizes.items()}
            state["mask"] = tf.Variable(tf.ones(kernels, tf.bool), trainable=False, **PER_REPLICA)
        return state

    def load(self, weights: Weights, mask: np.ndarray | None = None, memory: Mapping[str, np.ndarray] = {}) -> None:
        """Set the network to `mask × weights` and the optimizer's vectors to `mask × memory`, or to 0."""
        if mask is not None and not self.use_mask:
            raise ValueError("this program was built without masks")
        mask = np.ones(self.network.prunable, bool) if mask is None else mask
        start = Weights(np.where(mask, weights.kernels, np.float32(0)), weights.others, weights.statistics)
        state = {name: np.zeros(v.shape, np.float32) for name, v in self._state.items() if name != "mask"}
        state |= {**start._asdict(), **memory}
        state |= {name: np.where(mask, state[name], np.float32(0)) for name in memory if name.endswith("_kernels")}
        if self.scaled:
            state["scale"] = np.array([loss_scale.LARGEST, 0.0], np.float32)
        if self.recipe.ema:
            state |= {f"ema_{name}": vector for name, vector in start._asdict().items()}
        self._state["mask"].assign(mask)
        self.restore(state)

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Set everything that training changes to what `state()` returned."""
        for name, value in state.items():
            more = self._state[name].shape[0] - len(value)  # earlier versions counted no top-5 hits: not known
            self._state[name].assign(np.pad(value, (0, more), constant_values=np.nan) if name == "sums" else value)

    def state(self) -> dict[str, np.ndarray]:
        """Return everything that training changes, by name: weights, optimizer state, loss scale, sums."""
        return {name: self._local(name) for name in self._state if name != "mask"}

    def memory(self) -> dict[str, np.ndarray]:
        """Return what the optimizer remembers of earlier steps: momentum, and how many there were."""
        return {name: self._local(name) for name in self._state if name.startswith("slot") or name == "taken"}

    def weights(self) -> Weights:
        """Return the trained weights, without moving average."""
        return Weights(*(self._local(name) for name in Weights._fields))

    def replicas_of(self, name: str) -> list[np.ndarray]:
        """Return one state vector as each replica has it."""
        return [value.numpy() for value in self.devices.strategy.experimental_local_results(self._state[name])]

    def _local(self, name: str) -> np.ndarray:
        return self.replicas_of(name)[0]

    # Training ---------------------------------------------------------------------------------------------------

    def epoch(self, number: int, seed: int = 0, last_rate: bool = False) -> Epoch:
        """Return the inputs of an epoch's steps."""
        inputs = epoch_of(self.recipe, seed, number, len(self.dataset.train), self.dataset.image_size, last_rate)
        source = self.feed(self.dataset.train)
        if not isinstance(source, Resident):
            return inputs
        return replace(inputs, windows=source.windows(inputs.order, inputs.seeds))

    def run(self, epoch: Epoch, first: int, last: int, batch: Any = None) -> None:
        """Train steps `first` to `last` - 1 of the epoch.

        `batch`: the images of step `first`, if they are streamed; a GPU then computes it after this returned.
        """
        self._run(**self._steps_of(epoch, first, last, batch))

    def _steps_of(self, epoch: Epoch, first: int, last: int, batch: Any) -> dict[str, Any]:
        self.feed(self.dataset.train)  # its variables must exist before the step is traced
        if self._sent is None or self._sent[0] is not epoch:
            self._sent = epoch, {
                "order": tf.constant(epoch.order), "rates": tf.constant(epoch.learning_rates),
                "seeds": tf.constant(epoch.seeds), "mixing": tf.constant(epoch.mixing), "size": epoch.image_size,
                "windows": None if epoch.windows is None else tf.constant(epoch.windows),
            }  # fmt: skip
        return {"first": tf.constant(first), "last": tf.constant(last), "batch": batch, **self._sent[1]}

    def calls(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield every compiled function of a training with arguments: a step at each image size, each evaluation."""
        recipe, full = self.recipe, self.dataset.image_size
        kinds = [(size_at(recipe, epoch, full), recipe.batch_at(epoch)) for epoch in range(recipe.epochs)]
        for size, batch in sorted(set(kinds)):
            example = self.feed(self.dataset.train).example(batch)
            yield self._run, self._steps_of(self.epoch(kinds.index((size, batch))), 0, 1, example)
        for split in (self.dataset.validation, self.dataset.test):
            if len(split):
                yield self.evaluation.call(split)

    @property
    def loss_scale(self) -> float:
        """Return the current factor of the loss; 1 if the loss is not scaled."""
        return float(self._local("scale")[0]) if self.scaled else 1.0

    def take_sums(self) -> tuple[float, ...]:
        """Return sum of the loss, number of right answers (and, with many classes, top-5 hits) since `clear_sums`."""
        return tuple(map(float, self._local("sums")))

    def clear_sums(self) -> None:
        self._state["sums"].assign(tf.zeros(sums_of(self.dataset.classes)))

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
        windows: Tensor | None,
    ) -> None:
        def step(batch: Any, i: Tensor) -> None:
            cut, indices = None if windows is None else windows[i], order[i]
            rate, seed, shares = rates[i], seeds[i], mixing[i]
            context, source = tf.distribute.get_replica_context(), self.feed(self.dataset.train)
            share = context.replica_id_in_sync_group
            batch, indices = source.taken(indices, cut) if isinstance(source, Resident) else (batch, None)
            state = {name: variable.read_value() for name, variable in self._state.items()}
            scale = state["scale"][0] if self.scaled else None
            weights = Weights(*(state[name] for name in Weights._fields))
            packed = self._gradients(weights, scale, batch, indices, share, seed, shares, size)
            if self.devices.replicas > 1:
                packed = context.all_reduce(tf.distribute.ReduceOp.SUM, packed)
            for name, value in self._update(state, packed, rate).items():
                self._state[name].assign(value)

        def one_more(i: Tensor) -> list[Tensor]:
            self.devices.strategy.run(step, args=(batch, i))
            return [i + 1]

        if batch is not None:  # a loop would keep the host until the step is computed: it reads the loop's condition
            one_more(first)
            return
        # bounds as tensors: a Python range would be compiled anew for every length
        tf.while_loop(lambda i: i < last, one_more, [first])
