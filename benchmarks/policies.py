"""The time of a training step without a policy, with TrivialAugment and with RandAugment.

    python benchmarks/policies.py [MODEL] [SIZE] [BATCH]      default: resnet20 32 128; one line per policy

Synthetic images on one device. The three are interleaved in one process; medians of 15 rounds of 4 steps.
"""

from __future__ import annotations

import sys
from statistics import median

from sweep.bench.step import timed
from sweep.data import open_dataset
from sweep.devices import prepare
from sweep.experiment import Data, Experiment, Model, Recipe
from sweep.hardware import hardware
from sweep.training.program import Program

ROUNDS, STEPS = 15, 4
POLICIES = ("none", "trivial", "rand")


def main(model: str = "resnet20", size: int = 32, batch: int = 128) -> None:
    data = Data("synthetic", image_size=size, classes=10, images=batch * STEPS, pad=4, flip=True)
    dataset, programs = open_dataset(data), {}
    for policy in POLICIES:
        recipe = Recipe(batch=batch, policy=policy)
        programs[policy] = Program(Experiment("policies", Model(model), data, recipe), dataset, prepare(1))
        programs[policy].load(programs[policy].network.initial(0))
    epoch = programs["none"].epoch(0)
    rounds = [[timed(programs[policy], epoch, STEPS)[0] / STEPS for policy in POLICIES] for _ in range(ROUNDS + 1)]
    times = dict(zip(POLICIES, map(median, zip(*rounds[1:], strict=True)), strict=True))
    print(f"{hardware()}, {model}, {size} px, batch {batch}")
    for policy, seconds in times.items():
        print(f"{policy:8}{1e3 * seconds:8.2f} ms a step, {seconds / times['none'] - 1:+.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
