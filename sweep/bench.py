"""How long a training step takes, and what the mask costs: variants interleaved in one run, medians compared."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from sweep.data import open_dataset
from sweep.devices import Devices
from sweep.experiment import Experiment
from sweep.masks import by_quantile
from sweep.program import Program
from sweep.recipe import epoch_of


@dataclass(frozen=True)
class Timing:
    """Of one variant of the step."""

    variant: str
    first_seconds: float  # first call: tracing and compiling
    step_ms: float  # median
    images_per_second: float


def time_steps(
    experiment: Experiment, devices: Devices, masks: tuple[bool, ...], rounds: int, steps: int
) -> list[Timing]:
    """Median step time with the mask (half of the weights gone) and without it, `rounds` × `steps` steps of each."""
    dataset = open_dataset(experiment.data)
    programs = [Program(experiment, dataset, devices, use_mask=mask) for mask in masks]
    epoch = epoch_of(experiment.recipe, 0, 0, len(dataset.train), dataset.image_size)
    first: list[float] = []
    for program in programs:
        weights = program.network.initial(0)
        program.load(weights, by_quantile(weights.kernels, 0.5).mask if program.use_mask else None)
        first.append(_seconds(program, epoch, 1))
    each: list[list[float]] = [[] for _ in programs]
    for turn in range(rounds):
        for i in np.roll(np.arange(len(programs)), turn):
            each[i].append(_seconds(programs[i], epoch, steps) / steps)
    return [
        Timing(
            "masked" if mask else "unmasked", first[i], 1e3 * median(each[i]), experiment.recipe.batch / median(each[i])
        )
        for i, mask in enumerate(masks)
    ]


def _seconds(program: Program, epoch, steps: int) -> float:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    program.run(epoch, 0, steps)
    program.take_sums()
    return time.perf_counter() - began
