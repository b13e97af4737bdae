"""How long a training step takes, and what the mask costs: variants interleaved in one run, medians compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import tensorflow as tf

from sweep.bench.roofline import Rates
from sweep.data import open_dataset
from sweep.devices import Devices
from sweep.experiment import Experiment
from sweep.hardware import gpu_ids, hardware
from sweep.progress import Work
from sweep.pruning.masks import by_quantile
from sweep.training.program import Program
from sweep.training.schedule import Epoch, epoch_of
from sweep.utilisation import watched


@dataclass(frozen=True)
class Timing:
    """Of one variant of the step. None: not known here."""

    hardware: str
    model: str
    width: float
    size: int
    precision: str
    batch: int  # over all devices
    devices: int
    variant: str  # masked or unmasked
    first_seconds: float | None = None  # until the first step is done: tracing and compiling
    step_ms: float | None = None  # median
    images_per_second: float | None = None
    epoch_seconds: float | None = None  # of as many images as the usual data set of this size has
    utilisation: float | None = None  # percent, of the GPU
    memory_gib: float | None = None  # peak on the device, both variants
    roofline: float | None = None  # the least time the hardware allows ÷ the time taken
    failure: str = ""


def time_steps(
    experiment: Experiment,
    devices: Devices,
    masks: tuple[bool, ...],
    rounds: int,
    steps: int,
    rates: Callable[[str], Rates],
    work: Work,
) -> list[Timing]:
    """Median step time with the mask (half of the weights gone) and without it, `rounds` × `steps` steps of each.

    `rates` are asked for last: what TensorFlow computes before it traces a program changes the name under which the
    compiled one is kept, where TF_XLA_FLAGS names a folder for that.
    """
    recipe, variants = experiment.recipe, ["masked" if mask else "unmasked" for mask in masks]
    known = (
        hardware(), experiment.model.name, experiment.model.width, experiment.data.image_size, recipe.precision,
        recipe.batch, devices.replicas,
    )  # fmt: skip
    try:
        first, each, busy, memory, network = _measure(experiment, devices, masks, rounds, steps, work)
    except tf.errors.ResourceExhaustedError:
        return [Timing(*known, variant, failure="out of memory") for variant in variants]
    least = rates(recipe.precision).seconds(network, recipe.batch // devices.replicas, recipe.precision)
    return [
        Timing(
            *known,
            variant,
            first[i],
            1e3 * median(each[i]),
            recipe.batch / median(each[i]),
            usual_images(experiment.data.image_size) / recipe.batch * median(each[i]),
            busy,
            memory,
            least / median(each[i]),
        )
        for i, variant in enumerate(variants)
    ]


def usual_images(size: int) -> int:
    """In an epoch of CIFAR-10, or of ImageNet."""
    return 50_000 if size <= 64 else 1_281_167


def _measure(experiment, devices, masks, rounds, steps, work):  # type: ignore[no-untyped-def]
    if devices.kind == "GPU":
        tf.config.experimental.reset_memory_stats("GPU:0")
    dataset = open_dataset(experiment.data).for_training_only()
    epoch = epoch_of(experiment.recipe, 0, 0, len(dataset.train), dataset.image_size)
    programs: list[Program] = []
    first: list[float] = []
    for mask in masks:
        began = time.perf_counter()
        program = Program(experiment, dataset, devices, use_mask=mask)
        weights = program.network.initial(0)
        program.load(weights, by_quantile(weights.kernels, 0.5).mask if mask else None)
        seconds(program, epoch, 1)
        first.append(time.perf_counter() - began)
        seconds(program, epoch, steps)
        programs.append(program)
    each: list[list[float]] = [[] for _ in programs]
    with watched(gpu_ids()[:1]) as gpu_busy:
        for turn in range(rounds):
            for i in np.roll(np.arange(len(programs)), turn):
                each[i].append(seconds(programs[i], epoch, steps) / steps)
            work.one_more()
        busy = gpu_busy()
    memory = None
    if devices.kind == "GPU":
        memory = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30
    return first, each, busy and 100 * busy, memory, programs[0].network


def seconds(program: Program, epoch: Epoch, steps: int) -> float:
    """Of so many steps, until the device is done."""
    began = time.perf_counter()
    program.run(epoch, 0, steps)
    program.take_sums()
    return time.perf_counter() - began
