"""Training steps on images in the memory of a GPU (data.resident), as many as ImageNet's: memory, loading, images/s.

    python benchmarks/resident.py --images 10000 1331167 --size 160 --model mobilenet_v2 --batch 256

The images are random and made in memory, so loading takes what the copy to the device takes, and no disk.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import tensorflow as tf

from sweep.bench.step import timed
from sweep.data import DEVIATION, MEAN, Dataset, feed
from sweep.data.prepared import Prepared
from sweep.data.shards import RECORD, Reader, Shards
from sweep.devices import Devices, prepare
from sweep.experiment import Data, Experiment, Model, Recipe
from sweep.hardware import hardware
from sweep.training.program import Program

CLASSES = 1000
DIFFERENT = 997  # images; the others repeat them


class Made(Reader):
    """A reader of random squares."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards)
        size = shards.prepared.size
        self.different = np.random.default_rng(0).integers(0, 256, (DIFFERENT, size, size, 3), np.uint8)

    def squares(self, rows: np.ndarray, out: np.ndarray, pool: ThreadPoolExecutor, gpu: bool = False) -> None:
        np.take(self.different, rows % DIFFERENT, axis=0, out=out, mode="clip")  # "raise" copies once more


def made(images: int, size: int) -> Dataset:
    """Return a data set of so many squares that exist only when they are read."""
    names, counts = tuple(map(str, range(CLASSES))), {"train": 1, "test": 1}
    prepared = Prepared(Path("made"), "raw", size, names, counts, {"train": images, "test": CLASSES})

    def split(name: str, count: int) -> Shards:
        records = np.zeros(count, RECORD)
        records["row"], records["label"] = np.arange(count), np.arange(count) % CLASSES
        records["height"], records["width"] = 400, 500
        return Shards(prepared, name, records)

    splits = split("train", images), split("train", 0), split("test", CLASSES)
    return Dataset("shards", CLASSES, size, 3, *splits, MEAN, DEVIATION, names)


def measured(devices: Devices, model: str, images: int, size: int, batch: int, steps: int, rounds: int) -> str:
    """Return one row of the table."""
    dataset, recipe = made(images, size), Recipe(batch=batch, learning_rate=0.01, precision="bfloat16")
    began = time.perf_counter()
    program = Program(Experiment("resident", Model(model), Data("shards", resident="on"), recipe), dataset, devices)
    program.load(program.network.initial(0))
    ready = time.perf_counter() - began
    epoch = program.epoch(0)
    steps = min(steps, len(epoch.order))
    _, *seconds = (timed(program, epoch, steps)[0] for _ in range(rounds + 1))
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e9 if devices.kind == "GPU" else float("nan")
    speed = steps * batch / median(seconds)
    gb = images * size**2 * 3 / 1e9
    return f"{images:,} images, {gb:.1f} GB: peak {peak:.1f} GB, ready after {ready:.0f} s, {speed:,.0f} images/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[10_000, 1_331_167])
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7)
    words = parser.parse_args()
    devices, feed.open_reader = prepare(), lambda split, cache: Made(split)
    print(f"{words.model}, {words.size} px, batch {words.batch}, bfloat16, {hardware()}, TensorFlow {tf.__version__}")
    for images in words.images:
        print(measured(devices, words.model, images, words.size, words.batch, words.steps, words.rounds), flush=True)


if __name__ == "__main__":
    main()
