"""In an MPI world: rank 0 hands tasks out, every other rank does them one after the other on its own GPU.

What is handed out is data, the results folder and the word of a task, and what comes back is a Failure or none. The
results are files, so a rank that dies takes the tasks under way with it and nothing that was finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from slurm.backend import say
from sweep import experiment_file
from sweep.errors import Refused
from sweep.interrupt import stoppable
from sweep.progress import Work
from sweep.store import Store
from sweep.worker import Failure, Stage, Worker, missing, without_broken

THREADS = "LOTTERY_THREADS"  # of this rank's share of the node, for the tasks it will do


@dataclass(frozen=True)
class Mpi:
    """A backend as slurm.backend describes it, on rank 0."""

    ranks: Executor
    quiet: bool = False

    def run(self, home: Store) -> list[Failure]:
        failures: list[Failure] = []
        for stage in missing(home):
            failures += self._stage(home, without_broken(stage, failures))
        return failures

    def _stage(self, home: Store, stage: Stage) -> list[Failure]:
        failures = []
        futures = {self.ranks.submit(_perform, str(home.root.resolve()), task): task for task in stage.tasks}
        try:
            # a signal reaches every rank: those that train save themselves, and rank 0 lives to hear it
            with stoppable(), Work(f"{len(futures)} {stage.name}", max(len(futures), 1), quiet=self.quiet) as work:
                for done, future in enumerate(as_completed(futures), 1):
                    failure, seconds = future.result()
                    failures += [failure] if failure else []
                    if not self.quiet:
                        say(done, stage, futures[future], failure, seconds)
                    work.at(done)
        except BaseException:
            self.ranks.shutdown(wait=False, cancel_futures=True)  # a rank that saved itself would take the next task
            raise
        return failures


@contextmanager
def world() -> Iterator[Executor | None]:
    """Rank 0 gets the other ranks to hand tasks to; these serve until it is done, and then get None."""
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    if MPI.COMM_WORLD.size == 1:
        raise Refused(
            "--on mpi: this MPI world has one rank; expected mpiexec -n N or srun -n N with N of 2 or more "
            "(rank 0 hands out, N - 1 train; with srun --mpi must name the kind that MPI was built for, such as pmi2)"
        )
    _take_share()
    ranks: Any  # an Executor on rank 0, None elsewhere; mpi4py's types say less
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as ranks:
        yield ranks


def _take_share() -> None:
    """One GPU and a share of the cores of this node for every rank that trains, before TensorFlow looks at them."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    here = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).allgather(rank)
    training = [each for each in here if each != 0]  # rank 0 only hands out
    if rank == 0:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(i) for i in range(_installed_gpus())]
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[training.index(rank) % len(gpus)]
    os.environ[THREADS] = str(max(1, (os.cpu_count() or 1) // len(training)))


def _installed_gpus() -> int:
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def _perform(root: str, task: str) -> tuple[Failure | None, float]:
    """What a rank does, and the seconds it took; its program is compiled once."""
    began = time.monotonic()
    return _worker(root).attempt(task), time.monotonic() - began


@cache
def _worker(root: str) -> Worker:
    home = Store(Path(root), experiment_file.load(Path(root) / "experiment.yaml"))
    return Worker(home, threads=int(os.environ[THREADS]), quiet=True)
