"""Scaling from one device to all, with the same batch per device: what the sum of gradients and waiting cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import tensorflow as tf

from sweep.bench.step import timed
from sweep.data import Dataset, open_dataset
from sweep.data.resident import PER_REPLICA
from sweep.devices import Devices, first
from sweep.experiment import Experiment
from sweep.progress import Work
from sweep.training.program import Program
from sweep.training.step import sums_of


@dataclass(frozen=True)
class Scaling:
    devices: int
    batch: int  # over all devices
    step_ms: float  # median
    images_per_second: float
    epoch_seconds: float  # time of an epoch of this data set
    efficiency: float  # images/s ÷ (devices × images/s of one)
    all_reduce_bytes: int  # bytes that every device contributes to the sum
    all_reduce_ms: float  # the sum over devices, measured alone
    all_reduce_share: float  # share of a step, if nothing overlaps with it
    data_wait_share: float  # share of time spent waiting for images


def scale(experiment: Experiment, devices: Devices, rounds: int, steps: int, quiet: bool = False) -> list[Scaling]:
    """Return measurements on 1, 2, 4, … and all devices; `experiment.recipe.batch` is the batch of one device."""
    dataset = open_dataset(experiment.data).for_training_only()
    counts = sorted({1, devices.replicas} | {2**k for k in range(10) if 2**k < devices.replicas})
    found: list[Scaling] = []
    with Work("scaling", len(counts) * (rounds + 1), quiet=quiet) as work:
        for count in counts:
            single = found[0].images_per_second if found else None
            found.append(_on(first(devices, count), experiment, dataset, rounds, steps, single, work))
    return found


def _on(
    devices: Devices, experiment: Experiment, dataset: Dataset, rounds: int, steps: int, single: float | None,
    work: Work,
) -> Scaling:  # fmt: skip
    """Return the measurement on these devices; `single`: images per second of one device, if known."""
    alone, count = experiment.recipe.batch, devices.replicas
    recipe = replace(experiment.recipe, batch=alone * count, norm_images=alone)
    program = Program(replace(experiment, recipe=recipe), dataset, devices)
    program.load(program.network.initial(0))
    epoch = program.epoch(0)
    steps = min(steps, program.steps)
    times = []
    for _ in range(rounds + 1):
        times.append(timed(program, epoch, steps))
        work.one_more()
    del times[0]  # includes compiling
    step = median(total for total, _ in times) / steps
    summed = program.network.parameters + sums_of(dataset.classes)  # gradients, batch statistics, loss, right answers
    reduce = _all_reduce(summed, devices) if count > 1 else 0.0
    rate = recipe.batch / step
    return Scaling(
        devices=count,
        batch=recipe.batch,
        step_ms=1e3 * step,
        images_per_second=rate,
        epoch_seconds=len(dataset.train) / rate,
        efficiency=rate / (count * (single or rate)),
        all_reduce_bytes=4 * summed,
        all_reduce_ms=1e3 * reduce,
        all_reduce_share=reduce / step,
        data_wait_share=sum(wait for _, wait in times) / sum(total for total, _ in times),
    )


def over_link(summed: int, nodes: int, gigabits: float) -> float:
    """Return the least seconds of a ring all-reduce of so many bytes: 2 (n − 1) / n × bytes / bandwidth.

    >>> round(over_link(102_000_000, 2, 0.1), 1), round(over_link(102_000_000, 20, 100), 4)
    (8.2, 0.0155)
    """
    return 2 * (nodes - 1) / nodes * 8 * summed / (1e9 * gigabits)


def _all_reduce(length: int, devices: Devices, times: int = 20) -> float:
    """Return the seconds of summing a vector of this length over the devices, by itself."""
    with devices.strategy.scope():
        vector = tf.Variable(tf.ones(length), trainable=False, **PER_REPLICA)

    def summed() -> Any:
        context = tf.distribute.get_replica_context()
        vector.assign(context.all_reduce(tf.distribute.ReduceOp.SUM, vector.read_value()) / devices.replicas)

    @tf.function
    def several() -> None:
        for _ in tf.range(times):
            devices.strategy.run(summed)

    def once() -> float:
        began = time.perf_counter()
        several()
        for value in devices.strategy.experimental_local_results(vector):
            value.numpy()
        return (time.perf_counter() - began) / times

    once()
    return median(once() for _ in range(5))
