"""The local backend: trains in this process, or in several worker processes.

If a worker process dies or is stopped, its training is recorded as failed and a new worker replaces it; the sweep
continues. On a machine with GPUs every worker has its own, or shares one if there are more workers than GPUs; `per_gpu`
of them share it under MPS, which is faster if one training leaves much of a GPU idle.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from slurm.backend import Ready
from sweep.errors import Busy, Interrupted, Refused, Superseded
from sweep.experiment import Experiment
from sweep.graph.home import Home
from sweep.hardware import visible_gpus
from sweep.interrupt import stoppable
from sweep.mps import shared_gpus
from sweep.progress import console
from sweep.work.worker import Failure, Worker, forget_failure, record_failure

PAUSE_SECONDS = 0.2
ENDS_SECONDS = 10.0  # within which an idle worker ends
DIED = "its process died (killed, or out of memory)"
Answer = Failure | Busy | Superseded | str | None  # of a worker whose attempt ended: None if all is well, or DIED


@dataclass(frozen=True)
class Local:
    """The local backend with `jobs` tasks at a time; 1 = in this process."""

    jobs: int = 1
    devices: int = 0
    quiet: bool = False
    per_gpu: int = 1  # number of jobs on one GPU
    only: Collection[str] | None = None  # these tasks only; None = everything that is missing
    restarts: int | None = None  # starts of a task without progress; None: it fails if its process dies

    def run(self, home: Home) -> list[Failure]:
        """Do what is missing and return the failures."""
        ready = Ready(home, self.only, self.quiet)
        jobs = min(self.jobs, ready.total)
        if jobs > 1:
            with shared_gpus(self.per_gpu):
                self._in_processes(ready, jobs)
        else:
            self._here(ready)
        return ready.failures

    def _here(self, ready: Ready) -> None:
        worker = Worker(ready.home, self.devices, quiet=self.quiet, restarts=self.restarts)
        while ready.waiting:
            task = ready.next()
            if task is None:  # other processes have all that is left
                time.sleep(PAUSE_SECONDS)
                continue
            try:
                ready.end(task, worker.attempt(task))
            except Busy as error:
                ready.again(task, str(error))

    def _in_processes(self, ready: Ready, jobs: int) -> None:
        crew = _Crew(ready.home, jobs, self)
        deaths = Counter[str]()
        with stoppable() as stop, ready.watched() as course:
            try:
                while ready.waiting and not stop.requested:
                    crew.hand_out(ready)
                    course.look(sum(bool(member.task) for member in crew.members))
                    for member, task, answer in crew.answers():
                        taken = isinstance(answer, Superseded)
                        if (answer == DIED or taken) and stop.requested:  # it was stopped too and has saved itself
                            continue
                        if taken:
                            raise Superseded(f"{task}: begun again elsewhere; this process leaves it alone")
                        deaths[task] += answer == DIED
                        self._ended(ready, crew, member, task, answer, deaths[task])
            finally:
                crew.dismiss()
            if stop.requested:
                raise Interrupted("stopped; run again to continue")

    def _ended(self, ready: Ready, crew: _Crew, member: _Member, task: str, answer: Answer, deaths: int) -> None:
        """Record how an attempt of a task ended, or have it tried again."""
        lacking = isinstance(answer, Failure) and answer.memory
        if lacking and member.beside:  # fewer may have room
            left = crew.fewer(member)
            console.print(f"{task}: out of memory; it starts again later, {left} at a time")
            forget_failure(ready.home, task)
            return ready.again(task)
        if lacking:  # also alone: the workers that this training has cost were not to blame
            crew.refill()
        if answer == DIED or lacking:  # a process that had no memory cannot use TensorFlow again
            crew.replace(member)
        if answer == DIED and deaths > (self.restarts or 0):
            ready.end(task, record_failure(ready.home, task, DIED))
        elif isinstance(answer, Failure | None):
            ready.end(task, answer)
        else:
            ready.again(task, "" if answer == DIED else str(answer))


@dataclass
class _Member:
    process: BaseProcess
    pipe: Connection
    place: int  # index of its share of the machine
    task: str = ""
    beside: bool = False  # whether there were others when it got its task: an idle one keeps its memory too


class _Crew:
    """The worker processes, each with its share of the machine."""

    def __init__(self, home: Home, jobs: int, local: Local) -> None:
        self.home, self.local = home, local
        self.threads = max(1, (os.cpu_count() or 1) // jobs)
        self.shares = shares(visible_gpus(), jobs, local.devices, local.per_gpu)
        self.members = [self._start(place) for place in range(jobs)]

    def _start(self, place: int) -> _Member:
        context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
        ours, theirs = context.Pipe()
        share = self.shares[place]
        beside = self.shares.count(share) if share else self.local.per_gpu  # workers on the same GPUs
        words = (self.home.root, self.home.experiment, self.local, self.threads, share, beside, theirs)
        process = context.Process(target=_work, args=words, daemon=True)
        process.start()
        theirs.close()
        return _Member(process, ours, place)

    def hand_out(self, ready: Ready) -> None:
        for free in [member for member in self.members if not member.task]:
            task = ready.next()
            if task is None:
                return
            # a worker that died while idle is replaced; no training failed
            member = free if free.process.is_alive() else self.replace(free)
            member.task, member.beside = task, len(self.members) > 1
            with suppress(ConnectionError):  # it died just now, which `answers` will see
                member.pipe.send(task)

    def answers(self) -> Iterator[tuple[_Member, str, Answer]]:
        """Yield (member, task, answer) for tasks that ended."""
        busy = {member.pipe: member for member in self.members if member.task}
        for pipe in wait(list(busy), PAUSE_SECONDS):
            member = busy[pipe]  # type: ignore[index]  # only pipes are waited for
            task, member.task = member.task, ""
            try:
                yield member, task, member.pipe.recv()
            except (EOFError, ConnectionError):
                yield member, task, DIED

    def replace(self, member: _Member) -> _Member:
        member.pipe.close()
        self.members[self.members.index(member)] = new = self._start(member.place)
        return new

    def fewer(self, member: _Member) -> int:
        """Let an idle worker end; the last one is replaced. Return how many are left."""
        if len(self.members) == 1:
            self.replace(member)
        else:
            self.members.remove(member)
            member.pipe.close()
            member.process.join(ENDS_SECONDS)  # others get its memory only then
        return len(self.members)

    def refill(self) -> None:
        """Start a worker in every place that has none."""
        free = set(range(len(self.shares))) - {member.place for member in self.members}
        self.members += [self._start(place) for place in sorted(free)]

    def dismiss(self) -> None:
        """Stop all workers, which save their trainings, and wait for them."""
        for member in self.members:
            if member.task:
                member.process.terminate()
            member.pipe.close()
        for member in self.members:
            member.process.join()


def places(per_gpu: int, devices: int = 0) -> int:
    """Return the number of trainings at a time, `per_gpu` on each GPU or on the CPU; raise Refused if invalid."""
    if devices < 0:
        raise Refused(f"--devices {devices}: expected 0 (all there are) or more")
    if per_gpu < 1:
        raise Refused(f"--per-gpu {per_gpu}: expected 1 or more")
    if per_gpu > 1 and devices > 1:
        raise Refused(f"--per-gpu {per_gpu}: expected 1 where a training has several devices (--devices {devices})")
    return per_gpu * max(1, len(visible_gpus())) if per_gpu > 1 else 1


def shares(gpus: list[str], jobs: int, devices: int = 0, per_gpu: int = 1) -> list[str | None]:
    """Return CUDA_VISIBLE_DEVICES of each of `jobs` workers with `devices` GPUs each; None if there are too few GPUs.

    >>> shares(["0", "1"], 4), shares(["0", "1", "2", "3"], 2), shares([], 2)
    (['0', '1', '0', '1'], ['0,1', '2,3'], [None, None])
    >>> shares(["0", "1", "2", "3"], 4, per_gpu=2)
    ['0', '1', '0', '1']
    """
    if per_gpu > 1:  # use no more GPUs than needed
        gpus, devices = gpus[: -(-jobs // per_gpu)], 1
    each = devices or max(1, len(gpus) // jobs)
    if not gpus or each > len(gpus):  # else logical parts of the first GPU
        return [None] * jobs
    parts = [",".join(gpus[first : first + each]) for first in range(0, len(gpus) - each + 1, each)]
    return [parts[i % len(parts)] for i in range(jobs)]


def _work(
    root: Path, experiment: Experiment, local: Local, threads: int, share: str | None, per_gpu: int, pipe: Connection
) -> None:
    """Run a worker process. `experiment` is the one of this sweep; the file in the folder may have changed since."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if share is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = share
    home = Home(root, experiment)
    worker = Worker(home, local.devices, threads, quiet=True, restarts=local.restarts, per_gpu=per_gpu)
    while True:
        try:
            task = pipe.recv()
            try:
                answer: Answer = worker.attempt(task)
            except (Busy, Superseded) as error:
                answer = error
            pipe.send(answer)
        except (EOFError, ConnectionError, KeyboardInterrupt, Interrupted):
            return  # nothing left to do, or the sweep was stopped and the training is saved


def _end_with_parent() -> None:
    """End this process when its parent is gone, so that it does not train what the next run will start."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
