"""The same ticket on 1, 2 and 4 devices, with plain and with shaped layers: how far apart are its weights?

    python benchmarks/devices.py DATA [WIDTH]       a table; DATA: CIFAR-10's archive or folder

MobileNetV2 at 32 px, float32, batch 128 of which 32 images are normalised together, mixup on, 20 steps from a mask on
an initialization. On one GPU the devices are parts of it. Every combination is a process of its own, because TensorFlow
sets up its devices once; a row compares it with plain layers on one device.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS = (1, 20)
COMBINATIONS = [(layers, count) for layers in ("plain", "shaped") for count in (1, 2, 4)]


def one(data: str, width: float, layers: str, count: int, out: str) -> None:
    import tensorflow as tf

    from sweep.data import open_dataset
    from sweep.devices import prepare
    from sweep.experiment import Data, Experiment, Model, Recipe
    from sweep.pruning.allocations import uniform
    from sweep.pruning.masks import kernel_shapes
    from sweep.training.program import Program

    tf.config.experimental.enable_tensor_float_32_execution(False)  # rounding of float32, not of 10 bits
    recipe = Recipe(
        epochs=30, batch=128, norm_images=32, learning_rate=0.1, nesterov=True, weight_decay=5e-4, warmup_epochs=2,
        mixup=0.2, layers=layers, xla="on",
    )  # fmt: skip
    asked = Experiment("devices", Model("mobilenet_v2_small", width), Data("cifar10", data, pad=4, flip=True), recipe)
    program = Program(asked, open_dataset(asked.data), prepare(count))
    weights = program.network.initial(0)
    mask = uniform(np.abs(weights.kernels), kernel_shapes(program.network), 0.8)
    program.load(weights, mask)
    epoch, found, done = program.epoch(0), {}, 0
    for step in STEPS:
        program.run(epoch, done, step)
        found[f"step{step}"], done = program.weights().kernels, step
    found["loss"] = np.array(program.take_sums()[0] / (STEPS[-1] * recipe.batch))
    np.savez(out, **found)


def main(data: str, width: float) -> None:
    print(f"MobileNetV2 width {width:g}, 32 px, float32, norm_images 32 of 128, mixup 0.2")
    print(f"{'layers':8}{'devices':>8}{'mean loss of 20 steps':>24}" + "".join(f"{f'after {s}':>28}" for s in STEPS))
    with tempfile.TemporaryDirectory() as folder:
        first = None
        for layers, count in COMBINATIONS:
            out = str(Path(folder) / f"{layers}{count}.npz")
            subprocess.run([sys.executable, __file__, data, str(width), layers, str(count), out], check=True)
            with np.load(out) as read:
                found = dict(read)
            first = first or found
            row = f"{layers:8}{count:>8}{float(found['loss']):>24.6f}"
            for step in STEPS:
                mine, theirs = found[f"step{step}"], first[f"step{step}"]
                apart, norm = np.abs(mine - theirs).max(), np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
                row += f"{f'{apart:.1e}, {norm:.1e} of norm':>28}"
            print(row, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 6:
        one(sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
