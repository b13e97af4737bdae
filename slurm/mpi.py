"""The MPI backend: rank 0 hands out tasks, every other rank does them one after the other on its own GPU.

A task is sent as data, the results folder and its name, and a Failure or None comes back. Results are files, so a rank
that dies loses its running task and nothing that was finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from slurm.backend import Ready
from slurm.local import shares
from sweep.errors import Busy, Refused
from sweep.experiment import Experiment
from sweep.graph.home import Home
from sweep.hardware import visible_gpus
from sweep.interrupt import stoppable
from sweep.work.worker import Failure, Worker

THREADS = "LOTTERY_THREADS"  # environment variable: CPU threads of this rank
PER_GPU = "LOTTERY_PER_GPU"  # environment variable: ranks on this rank's GPU
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Mpi:
    """The MPI backend, used on rank 0."""

    ranks: Executor
    quiet: bool = False

    def run(self, home: Home) -> list[Failure]:
        ready, under_way = Ready(home, quiet=self.quiet), dict[Future[Any], str]()
        try:
            # a signal reaches every rank: training ranks save themselves, and rank 0 must live to learn it
            with stoppable(), ready.watched() as course:
                while ready.waiting:
                    while (task := ready.next()) is not None:  # ranks start them in this order
                        under_way[self.ranks.submit(_perform, home.root.resolve(), home.experiment, task)] = task
                    ended, _ = wait(under_way, PAUSE_SECONDS if under_way else 0, FIRST_COMPLETED)
                    for future in ended:
                        task = under_way.pop(future)
                        try:
                            ready.end(task, *future.result())
                        except Busy as error:
                            ready.again(task, str(error))
                    course.look(len(under_way))
                    if not under_way:
                        time.sleep(PAUSE_SECONDS)
        except BaseException:
            self.ranks.shutdown(wait=False, cancel_futures=True)  # else a saved rank would start the next task
            raise
        return ready.failures


@contextmanager
def world() -> Iterator[Executor | None]:
    """Yield the other ranks as an executor on rank 0; the other ranks work until it is done and then get None."""
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except (ImportError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise Refused(f"--on mpi: {why}; expected an MPI library, the cluster's own or pip's mpich") from None

    if MPI.COMM_WORLD.size == 1:
        raise Refused(
            "--on mpi: this MPI world has one rank; expected mpiexec -n N or srun -n N with N of 2 or more "
            "(rank 0 hands out, N - 1 train; with srun --mpi must name the kind that MPI was built for, such as pmi2)"
        )
    rank = MPI.COMM_WORLD.rank
    here = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).allgather(rank)
    training = [each for each in here if each != 0]  # rank 0 only hands out tasks
    if rank != 0:  # one GPU and a share of the node's cores, before TensorFlow sees them
        each = shares(visible_gpus(), len(training), devices=1)
        share = each[training.index(rank)]
        if share is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = share
        os.environ[PER_GPU] = str(each.count(share) if share else 1)
        os.environ[THREADS] = str(max(1, (os.cpu_count() or 1) // len(training)))
    ranks: Any  # an Executor on rank 0, None elsewhere
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as ranks:
        yield ranks


def _perform(root: Path, experiment: Experiment, task: str) -> tuple[Failure | None, float]:
    """Do a task on this rank; return its failure or None, and the seconds it took."""
    began = time.monotonic()
    return _worker(root, experiment).attempt(task), time.monotonic() - began


@cache
def _worker(root: Path, experiment: Experiment) -> Worker:
    """Return this rank's worker. `experiment` is the one of this sweep; the file in the folder may have changed."""
    threads, per_gpu = int(os.environ[THREADS]), int(os.environ[PER_GPU])
    return Worker(Home(root, experiment), threads=threads, quiet=True, per_gpu=per_gpu)
