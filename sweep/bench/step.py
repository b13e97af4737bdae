"""The time of a training step in several variants: interleaved in one process, medians compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

import numpy as np
import tensorflow as tf

from sweep.bench.roofline import Rates
from sweep.data import open_dataset
from sweep.data.resident import Resident
from sweep.devices import Devices
from sweep.experiment import Experiment
from sweep.hardware import gpu_ids, hardware
from sweep.progress import Work
from sweep.pruning.allocations import lowest_out
from sweep.training.program import Program
from sweep.training.schedule import Epoch
from sweep.training.steps import stream
from sweep.utilisation import watched


@dataclass(frozen=True)
class Timing:
    """The measurement of one variant of the step; None: not known on this device."""

    hardware: str
    model: str
    width: float
    size: int
    precision: str
    batch: int  # over all devices
    devices: int
    variant: str  # masked, unmasked, or the field that is changed
    first_seconds: float | None = None  # time until the first step is done, with tracing and compiling
    step_ms: float | None = None  # median
    quartiles: tuple[float, float, float] = (1.0, 1.0, 1.0)  # of step time ÷ that of the first variant, round by round
    images_per_second: float | None = None
    epoch_seconds: float | None = None  # time of an epoch of `usual_images` images
    utilisation: float | None = None  # percent of the time the GPU was busy
    memory_gib: float | None = None  # peak on the device, over all variants
    roofline: float | None = None  # least possible time ÷ time taken
    failure: str = ""


def time_steps(
    variants: Mapping[str, tuple[Experiment, bool]],
    devices: Devices,
    rounds: int,
    steps: int,
    rates: Callable[[str], Rates],
    work: Work,
) -> list[Timing]:
    """Return the median step time of every variant, over `rounds` × `steps` steps.

    A variant is an experiment, and whether it has a mask (half of the weights pruned).
    `rates` is called last: what TensorFlow computes before it traces a program changes the name of the compiled
    program, and so whether it is found in the folder that TF_XLA_FLAGS names.
    """
    found = [
        Timing(
            hardware(), one.model.name, one.model.width, one.data.image_size, one.recipe.precision,
            one.recipe.batch_at(0), devices.replicas, name,
        )
        for name, (one, _) in variants.items()
    ]  # fmt: skip
    opened = cache(lambda data: open_dataset(data).for_training_only())
    programs: list[tuple[Program, Epoch]] = []
    first: list[float] = []
    each: list[list[float]] = [[] for _ in variants]
    try:
        if devices.kind == "GPU":
            tf.config.experimental.reset_memory_stats("GPU:0")
        for one, mask in variants.values():
            dataset = opened(one.data)
            began = time.perf_counter()
            program = Program(one, dataset, devices, use_mask=mask)
            epoch = program.epoch(0)
            weights = program.network.initial(0)
            program.load(weights, lowest_out(np.abs(weights.kernels), 0.5) if mask else None)
            timed(program, epoch, 1)
            first.append(time.perf_counter() - began)
            timed(program, epoch, min(steps, len(epoch.order)))
            programs.append((program, epoch))
        steps = min(steps, *(len(epoch.order) for _, epoch in programs))
        with watched(gpu_ids()[:1]) as gpu_busy:
            for turn in range(rounds):
                for i in np.roll(np.arange(len(programs)), turn):
                    each[i].append(timed(*programs[i], steps)[0] / steps)
                work.one_more()
            busy = gpu_busy().get("gpu_busy_share")
    except tf.errors.ResourceExhaustedError:
        return [replace(timing, failure="out of memory") for timing in found]
    memory = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30 if devices.kind == "GPU" else None
    out = []
    for timing, (program, _), start, times in zip(found, programs, first, each, strict=True):
        least = rates(timing.precision).seconds(program.network, timing.batch // devices.replicas, timing.precision)
        low, middle, high = np.percentile(np.divide(times, each[0]), (25, 50, 75)).tolist()
        step = median(times)
        out.append(replace(
            timing, first_seconds=start, step_ms=1e3 * step, quartiles=(low, middle, high),
            images_per_second=timing.batch / step, epoch_seconds=usual_images(timing.size) / timing.batch * step,
            utilisation=busy and 100 * busy, memory_gib=memory, roofline=least / step,
        ))  # fmt: skip
    return out


def usual_images(size: int) -> int:
    """Return the number of training images of CIFAR-10, or for larger images of ImageNet."""
    return 50_000 if size <= 64 else 1_281_167


def timed(program: Program, epoch: Epoch, steps: int) -> tuple[float, float]:
    """Return the seconds of so many steps, until the device is done, and how many of them were waiting for images."""
    feed, waited, began = program.feed(program.dataset.train), 0.0, time.perf_counter()
    if isinstance(feed, Resident):
        program.run(epoch, 0, steps)
    else:
        _, waited = stream(program, epoch, range(steps), feed.batches(epoch.order[:steps], epoch.seeds[:steps]))
    program.take_sums()
    return time.perf_counter() - began, waited
