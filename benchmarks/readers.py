"""This project's readers beside tf.data, Grain and NVIDIA DALI: the same images, in the same order, to the same device.

    lottery data prepare imagenet jpeg; lottery data prepare imagenet raw --format raw
    python benchmarks/readers.py jpeg raw [--json FILE]
    python benchmarks/readers.py jpeg raw --train mobilenet_v2 [--folders imagenet]    the training step fed from disk

Every reader is a process of its own. They are measured in turns, so that whatever else the machine does meets all of
them; medians are printed. CPU-seconds are those of the process and its children. What is not installed is left out:
pip install psutil grain array_record nvidia-dali-cuda120 (see docs/data.md). On a GPU the crops are cut there too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from libraries import WAYS, Case
from measured import REST, WARM, Measured, cpu_seconds, family
from rich.console import Console
from rich.table import Table

from sweep.hardware import gpu_ids, hardware, version_of
from sweep.utilisation import watched

LIBRARIES = ("tensorflow", "simplejpeg", "grain", "array_record", "nvidia-dali-cuda120", "nvidia-dali-cuda130")


def serve(name: str, case: Case, pipe: Connection) -> None:
    """Send what is measured in as many seconds as are received, until the pipe is closed."""
    from sweep.devices import prepare

    prepare()
    way = WAYS[name]
    batches = way.batches(case)
    finish = finishing(case, way.cropped)
    first = next(batches)
    finish(first)
    on_disk = sum(path.stat().st_size for path in way.files(case)) / 1e6
    wrong = None if way.cropped else difference(case, first[0].numpy())
    pipe.send(None)
    with suppress(EOFError):
        while True:
            read = reading(batches, finish, case.batch, pipe.recv())
            pipe.send(Measured(**read, disk_mb=on_disk, difference=wrong))


def finishing(case: Case, cropped: bool) -> Any:
    """Return what is done with a batch: on a GPU its crops are cut as in the training step; on a CPU nothing."""
    import tensorflow as tf

    from sweep.data.augment import resampled

    if not tf.config.list_physical_devices("GPU"):
        return lambda batch: tf.constant(0.0)
    if cropped:
        return lambda batch: tf.reduce_mean(tf.cast(batch[0][:, ::16], tf.float32))
    return tf.function(lambda batch: tf.reduce_mean(resampled(batch[0], batch[2], case.crop)), jit_compile=True)


def difference(case: Case, images: np.ndarray) -> float:
    """Return the mean difference of the first batch to the pixels of our reader (Pillow's) from the jpeg shards."""
    from sweep.data.shards import Reader

    reader, right = Reader(case.split()), np.empty_like(images)
    for place, row in enumerate(case.order[0]):
        reader.pixels(int(row), right[place])
    return float(np.abs(images.astype(np.int16) - right).mean())


def reading(batches: Iterator[Any], finish: Any, batch: int, seconds: float) -> dict[str, Any]:
    for _ in range(WARM):
        finish(next(batches))
    with watched(gpu_ids()[:1]) as load:
        images, last, began, cpu = 0, None, time.perf_counter(), cpu_seconds()
        while time.perf_counter() - began < seconds:
            last = finish(next(batches))
            images += batch
        float(last)  # waits for the device
        wall, cpu, busy = time.perf_counter() - began, cpu_seconds() - cpu, load().get("gpu_busy_share")
    return {"images_per_second": images / wall, "cpu_seconds": 1e3 * cpu / images, "cores": cpu / wall,
            "resident_mib": sum(one.memory_info().rss for one in family()) / 2**20, "gpu_busy": busy}  # fmt: skip


def compare(names: list[str], case: Case, rounds: int, seconds: float) -> dict[str, list[Measured]]:
    """Return what was measured of each reader in each turn."""
    context, pipes, gpu = multiprocessing.get_context("spawn"), {}, {}
    found: dict[str, list[Measured]] = {name: [] for name in names}
    with ExitStack() as readers:  # pipes are closed first, which ends the processes, also where one of them died
        for name in names:
            before, (here, there) = gpu_memory(), context.Pipe()
            process = context.Process(target=serve, args=(name, case, there))
            process.start()
            readers.callback(process.join)
            pipes[name] = readers.enter_context(here)
            there.close()
            here.recv()
            after = gpu_memory()
            gpu[name] = None if before is None or after is None else after - before
        for _ in range(rounds):
            for name, pipe in pipes.items():
                pipe.send(seconds)
                found[name].append(Measured(**{**asdict(pipe.recv()), "gpu_mib": gpu[name]}))
                time.sleep(REST)
    return found


def gpu_memory() -> float | None:
    with watched(gpu_ids()[:1]) as load:
        gib = load().get("gpu_memory_gib")
    return None if gib is None else 1024 * gib


def available(wanted: list[str]) -> list[str]:
    """Return the readers whose library is here; say in one line each what the others need."""
    names = [name for name in WAYS if any(word in name for word in wanted)] if wanted else list(WAYS)
    for name in names:
        if not here(name):
            print(f"{name}: left out, it needs pip install {WAYS[name].needs[1]}")
    return [name for name in names if here(name)]


def here(name: str) -> bool:
    module = WAYS[name].needs[0]
    package = module.partition(".")[0]
    return not module or bool(importlib.util.find_spec(package) and importlib.util.find_spec(module))


COLUMNS = {
    "images/s": ("images_per_second", "{:,.0f}"), "CPU-s per 1,000 images": ("cpu_seconds", "{:.2f}"),
    "cores": ("cores", "{:.1f}"), "GPU busy": ("gpu_busy", "{:.0%}"), "GPU MiB": ("gpu_mib", "{:,.0f}"),
    "MiB": ("resident_mib", "{:,.0f}"), "MB on disk": ("disk_mb", "{:.1f}"),
    "pixels differ by": ("difference", "{:.3f}"), "waiting": ("data_wait", "{:.1%}"),
}  # fmt: skip


def table(found: dict[str, list[Measured]], title: str) -> Table:
    """Return a table of medians; a column of which nothing is known is left out, but those of a GPU never."""
    rows = {name: {column: middle(turns, key) for column, (key, _) in COLUMNS.items()} for name, turns in found.items()}
    kept = [one for one in COLUMNS if one.startswith("GPU") or any(row[one] is not None for row in rows.values())]
    drawn = Table("reader", *kept, title=title)
    for name, row in rows.items():
        drawn.add_row(name, *("–" if row[one] is None else COLUMNS[one][1].format(row[one]) for one in kept))
    return drawn


def middle(turns: list[Measured], key: str) -> float | None:
    values = [value for turn in turns if (value := getattr(turn, key)) is not None]
    return median(values) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("jpeg", type=Path)
    parser.add_argument("raw", type=Path)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels of the network's input")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a reader in a round")
    parser.add_argument("--only", nargs="+", default=[], help="words of the readers to measure, such as ours DALI")
    parser.add_argument("--train", metavar="MODEL", help="feed the training step of this network")
    parser.add_argument("--folders", type=Path, help="class folders, a further reader of --train")
    parser.add_argument("--precision", default="bfloat16", help="of --train")
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        case = Case(words.jpeg.resolve(), words.raw.resolve(), Path(scratch), words.batch, words.size)
        if words.train:
            from fed import fed

            measure = partial(fed, model=words.train, folders=words.folders, precision=words.precision)
        else:
            measure = compare
        found = measure(available(words.only), case, rounds=words.rounds, seconds=words.seconds)
    versions = {name: version_of(name) for name in LIBRARIES}
    said = ", ".join(f"{name} {known}" for name, known in versions.items() if known != "not installed")
    what = f"{words.train}'s training step fed from disk" if words.train else "Readers"
    Console(width=160).print(
        table(found, f"{what}, batch {words.batch}, {hardware()}, medians of {words.rounds}; {said}")
    )
    if words.json:
        turns = {name: [asdict(turn) for turn in each] for name, each in found.items()}
        words.json.write_text(json.dumps({"hardware": hardware(), "versions": versions, "readers": turns}, indent=1))


if __name__ == "__main__":
    main()
