"""Several trainings on one GPU at the same time: their images per second together, and their start-up time.

Every training is a process, as in a sweep. They start together, compile, wait for each other, and then train for the
same time, so that none is measured while it has the GPU to itself.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.graph.speeds import Packing, network_of
from sweep.hardware import hardware, visible_gpus
from sweep.mps import shared_gpus

BARRIER_SECONDS = 900.0  # longest wait until all have compiled


def pack(experiment: Experiment, results: Path, per_gpu: int, seconds: float) -> Packing:
    """Measure `per_gpu` trainings on the first GPU, each for `seconds` after all have started."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(per_gpu)
    threads = max(1, (os.cpu_count() or 1) // per_gpu)
    with shared_gpus(per_gpu):
        pipes, processes = [], []
        for _ in range(per_gpu):
            ours, theirs = context.Pipe()
            words = (experiment, results, threads, barrier, seconds, theirs)
            processes.append(context.Process(target=_train, args=words, daemon=True))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        told, open_ = [], list(pipes)
        try:
            while open_:
                said = wait(open_)  # a process that dies is seen at once; the others would wait for it
                told += [pipe.recv() for pipe in open_ if pipe in said]
                open_ = [pipe for pipe in open_ if pipe not in said]
        except EOFError:
            raise Refused(f"{per_gpu} trainings at a time: one of them died (out of memory?); expected fewer") from None
        finally:
            for process in processes:
                process.terminate()
                process.join()
    rate = sum(images / took for _, images, took, _ in told)
    return Packing(hardware(), network_of(experiment), per_gpu, rate, max(start for start, *_ in told), told[0][3])


def _train(
    experiment: Experiment, results: Path, threads: int, barrier: Barrier, seconds: float, pipe: Connection
) -> None:
    began = time.monotonic()
    if gpus := visible_gpus():
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[0]
    from sweep.training.compiled import compile_once, keep_compiled

    compiled = keep_compiled(results)
    from sweep.bench.step import timed
    from sweep.data import open_dataset
    from sweep.devices import prepare
    from sweep.training.program import Program

    program = Program(experiment, open_dataset(experiment.data), replace(prepare(1, threads), sharing=barrier.parties))
    if compiled:
        compile_once(program, compiled)
    program.load(program.network.initial(0))
    epoch = program.epoch(experiment.recipe.epochs - 1)  # at full size
    timed(program, epoch, 1)
    start = time.monotonic() - began
    timed(program, epoch, program.steps)  # not measured: the first epoch is slower
    barrier.wait(BARRIER_SECONDS)
    began, epochs = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        timed(program, epoch, program.steps)
        epochs += 1
    images = program.steps * experiment.recipe.batch
    pipe.send((start, epochs * images, time.monotonic() - began, images))
