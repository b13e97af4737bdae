"""The training step fed by each reader, in one process, in turns: for `benchmarks/readers.py --train`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from libraries import WAYS, Case
from measured import REST, WARM, Measured, cpu_seconds

from sweep.data import open_dataset
from sweep.devices import prepare
from sweep.experiment import Data, Experiment, Model, Recipe
from sweep.hardware import gpu_ids
from sweep.training.program import Program
from sweep.training.schedule import Epoch
from sweep.training.steps import stream
from sweep.utilisation import watched


@dataclasses.dataclass(frozen=True)
class Fed:
    """A compiled program and where its batches come from; None: they are on the device."""

    program: Program
    batches: Iterator[Any] | None

    @cached_property
    def epoch(self) -> Epoch:
        return self.program.epoch(0)

    def train(self, steps: int) -> float:
        """Train so many steps as the training loop does, wait for the device; return the seconds waited for images."""
        waited, rows = 0.0, len(self.epoch.order)
        for first in range(0, steps, rows):
            count = min(rows, steps - first)
            if self.batches is None:
                self.program.run(self.epoch, 0, count)
            else:
                waited += stream(self.program, self.epoch, range(count), self.batches)[1]
        self.program.take_sums()
        return waited


def fed(
    names: list[str], case: Case, rounds: int, seconds: float, model: str, folders: Path | None, precision: str
) -> dict[str, list[Measured]]:
    """Return what was measured of the training step with each reader in each turn."""
    devices, recipe = prepare(), Recipe(batch=case.batch, learning_rate=0.01, precision=precision)

    def program(data: Data) -> Program:
        dataset = open_dataset(data).for_training_only()
        made = Program(Experiment("readers", Model(model), data, recipe), dataset, devices)
        made.load(made.network.initial(0))
        return made

    def again(made: Program) -> Iterator[Any]:
        """Yield the batches of one epoch after the other."""
        for epoch in map(made.epoch, count()):
            yield from made.feed(made.dataset.train).batches(epoch.order, epoch.seeds)

    ways = {name: WAYS[name] for name in names if not WAYS[name].cropped}  # the step cuts its crops itself
    data = Data("shards", path=str(case.jpeg), cache="off", resident="off", image_size=case.crop, flip=True)
    shards = program(data)
    sources = {name: Fed(shards, way.batches(case)) for name, way in ways.items()}
    if folders:
        made = program(Data("folder", path=str(folders), image_size=case.crop, flip=True))
        sources["class folders"] = Fed(made, again(made))
    sources["shards on the device"] = Fed(program(dataclasses.replace(data, resident="on")), None)
    found: dict[str, list[Measured]] = {name: [] for name in sources}
    for one in sources.values():
        one.train(WARM)  # traces and compiles
    for _ in range(rounds):
        for name, one in sources.items():
            found[name].append(turn(one, case.batch, seconds))
            time.sleep(REST)
    return found


def turn(source: Fed, batch: int, seconds: float) -> Measured:
    """Return speed and share of waiting over about so many seconds."""
    began = time.perf_counter()
    source.train(WARM)
    steps = max(WARM, int(seconds * WARM / (time.perf_counter() - began)))
    with watched(gpu_ids()[:1]) as load:
        began, cpu = time.perf_counter(), cpu_seconds()
        waited = source.train(steps)
        wall, cpu, busy = time.perf_counter() - began, cpu_seconds() - cpu, load().get("gpu_busy_share")
    images = steps * batch
    return Measured(images / wall, 1e3 * cpu / images, cpu / wall, gpu_busy=busy, data_wait=waited / wall)
