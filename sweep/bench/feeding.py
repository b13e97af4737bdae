"""How fast a data set reaches the device, and how many CPU cores keep a GPU busy."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from sweep.data import disk, open_dataset
from sweep.data.feed import Sharded, feed
from sweep.data.resident import Resident
from sweep.devices import Devices
from sweep.errors import Refused
from sweep.experiment import Data, Recipe
from sweep.progress import Work
from sweep.training.schedule import epoch_of

WARM = 2  # batches read before the measurement


@dataclass(frozen=True)
class Feeding:
    source: str
    images: int
    images_per_second: float  # with all cores of this node
    images_per_cpu_second: float  # with one core
    cores: int
    rate: float  # images per second that a GPU trains on
    cores_needed: float  # cores to feed that GPU
    data_wait_share: float  # share of time the GPU would wait, if fed by this node
    busy: float  # share of this node's cores in use; far below 1, the disk is the limit


def measure(
    data: Data, devices: Devices, batch: int, seconds: float, rate: float, work: Work, cold: bool = False
) -> Feeding:
    """Return the speed of reading training batches as a training does, measured for about `seconds`.

    `cold`: every epoch begins with shards that are not in the system's cache, so their disk is measured.
    """
    dataset = open_dataset(data)
    source = feed(dataset.train, devices, dataset.image_size, data.cache)
    if isinstance(source, Resident):
        raise Refused(f"{data.path or data.name}: trained from the device's memory; nothing is read while it trains")
    if cold and not isinstance(source, Sharded):
        raise Refused(f"{data.path}: expected a folder that lottery data prepare made, with --cold")
    batch = min(batch, len(dataset.train))
    images, wall, cpu, number = 0, 0.0, 0.0, 0
    while wall < seconds:
        epoch = epoch_of(Recipe(batch=batch), 0, number, len(dataset.train), dataset.image_size)
        if cold and isinstance(source, Sharded):
            disk.forget(source.reader.paths)
        before = time.perf_counter(), time.process_time()
        for step, _ in enumerate(source.batches(epoch.order, epoch.seeds)):
            if number == 0 and step == WARM:  # the first few also open files
                before, images = (time.perf_counter(), time.process_time()), 0
                continue
            images += batch
            work.at(min(seconds, wall + time.perf_counter() - before[0]))
            if wall + time.perf_counter() - before[0] > seconds:
                break
        wall += time.perf_counter() - before[0]
        cpu += time.process_time() - before[1]
        number += 1
    cores = len(os.sched_getaffinity(0))
    own = images / cpu
    return Feeding(
        source=data.path or data.name,
        images=images,
        images_per_second=images / wall,
        images_per_cpu_second=own,
        cores=cores,
        rate=rate,
        cores_needed=rate / own,
        data_wait_share=max(0.0, 1 - images / wall / rate),
        busy=min(1.0, cpu / wall / cores),
    )
