"""This project's training step beside PyTorch's, on one GPU, in one table.

    python benchmarks/compare.py 32          # MobileNetV2 at 32 px
    python benchmarks/compare.py 224         # MobileNetV2 at 224 px
    python benchmarks/compare.py resnet50    # or resnet18, at 224 px

Our step and every mode of benchmarks/pytorch_step.py are processes of their own. One after the other they compile and
choose their kernels, each alone. Then they are measured in turns, ours, theirs, ours, theirs, so that all meet the same
clocks; a case takes less than ten minutes on an H200. Prints images per second (medians of all rounds) with the lowest
and highest turn, and the ratio to the fastest mode. torch must be installed; it is no dependency.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection
from statistics import median

BFLOAT16 = ("eager-bfloat16", "compile-bfloat16", "compile-graphs-bfloat16")
TURNS = 3
ROUNDS = 5  # of a turn


@dataclass(frozen=True)
class Case:
    model: str
    there: str  # its name in pytorch_step.py
    size: int
    batch: int
    steps: int  # of a round
    settings: tuple[str, ...] = BFLOAT16


CASES = {
    "32": Case("mobilenet_v2_small", "mobilenet_v2", 32, 128, 50, ("eager-float32", *BFLOAT16)),
    "224": Case("mobilenet_v2", "mobilenet_v2", 224, 256, 10),
    "resnet18": Case("resnet18", "resnet18", 224, 256, 10),
    "resnet50": Case("resnet50", "resnet50", 224, 256, 10),
}
Steps = Callable[[int], float]  # trains so many steps and returns their seconds
MASKED, UNMASKED = "ours bfloat16", "ours bfloat16, without the mask"


def ours(case: Case) -> dict[str, Steps]:
    """Return the compiled steps of this project, with half of the weights pruned and without a mask."""
    import numpy as np

    from lottery.cli.bench import synthetic
    from sweep.bench.step import timed
    from sweep.data import open_dataset
    from sweep.devices import prepare
    from sweep.pruning.allocations import lowest_out
    from sweep.training.program import Program

    experiment = synthetic(case.model, case.size, case.batch, "bfloat16", 1.0, "auto", case.steps)
    dataset, devices = open_dataset(experiment.data).for_training_only(), prepare()

    def prepared(mask: bool) -> Steps:
        program = Program(experiment, dataset, devices, use_mask=mask)
        epoch, weights = program.epoch(0), program.network.initial(0)
        program.load(weights, lowest_out(np.abs(weights.kernels), 0.5) if mask else None)
        timed(program, epoch, 1)
        return lambda steps: timed(program, epoch, steps)[0]

    return {MASKED: prepared(True), UNMASKED: prepared(False)}


def theirs(setting: str, case: Case) -> dict[str, Steps]:
    import torch
    from pytorch_step import prepared

    return {f"PyTorch {torch.__version__} {setting}": prepared(case.there, setting, case.size, case.batch)[0]}


def serve(make: Callable[[Case], dict[str, Steps]], case: Case, pipe: Connection) -> None:
    """Send the seconds of a step in every round, whenever a number of rounds is received, until the pipe is closed."""
    sides = make(case)
    for steps in sides.values():
        steps(case.steps)
    pipe.send(None)
    with suppress(EOFError):
        while True:
            rounds, found = pipe.recv(), {name: list[float]() for name in sides}
            for steps in sides.values():
                steps(case.steps)
            for _ in range(rounds):
                for name, steps in sides.items():
                    found[name].append(steps(case.steps) / case.steps)
            pipe.send(found)


def measured(case: Case) -> dict[str, list[list[float]]]:
    """Return of every side the seconds of a step, turn by turn and round by round."""
    context, found = multiprocessing.get_context("spawn"), dict[str, list[list[float]]]()
    with ExitStack() as sides:  # pipes are closed first, which ends the processes, then these are waited for
        pipes = []
        for make in (ours, *(partial(theirs, setting) for setting in case.settings)):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(make, case, there))
            process.start()
            sides.callback(process.join)
            pipes.append(sides.enter_context(here))
            there.close()  # so that an end of the process ends the pipe
            here.recv()
        for _ in range(TURNS):
            for pipe in pipes:
                pipe.send(ROUNDS)
                for name, seconds in pipe.recv().items():
                    found.setdefault(name, []).append(seconds)
    return found


def tell(case: Case, found: dict[str, list[list[float]]]) -> None:
    from sweep.hardware import hardware

    print(f"{hardware()}, {case.model}, {case.size} px, batch {case.batch}, "
          f"medians of {TURNS} × {ROUNDS} × {case.steps} steps")  # fmt: skip
    speeds = {name: case.batch / median(chain.from_iterable(turns)) for name, turns in found.items()}
    for name, turns in found.items():
        each = [case.batch / median(turn) for turn in turns]
        ratio = "" if name in (MASKED, UNMASKED) else f"  ours is {speeds[MASKED] / speeds[name]:.2f} x"
        print(f"  {name:<46}{speeds[name]:>9,.0f} images/s ({min(each):,.0f} to {max(each):,.0f}){ratio}")
    best = max(set(speeds) - {MASKED, UNMASKED}, key=lambda name: speeds[name])
    print(f"  ours is {speeds[MASKED] / speeds[best]:.2f} x the fastest ({best}); the mask costs "
          f"{100 * (speeds[UNMASKED] / speeds[MASKED] - 1):+.2f} % of a step", flush=True)  # fmt: skip


def main() -> None:
    for name in sys.argv[1:] or CASES:
        tell(CASES[name], measured(CASES[name]))


if __name__ == "__main__":
    main()
