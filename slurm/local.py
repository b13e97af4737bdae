"""On this machine: in this process on one compiled program, or in several worker processes.

A worker process that dies takes one cell with it, not the sweep: the cell is recorded as failed and a new worker
takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from slurm.backend import Failure
from sweep import experiment_file
from sweep.errors import Interrupted
from sweep.interrupt import stoppable
from sweep.progress import Work, console, duration
from sweep.store import Store
from sweep.worker import Stage, Worker, missing, record_failure


@dataclass(frozen=True)
class Local:
    """`jobs` tasks at a time; 1 = in this process."""

    jobs: int = 1
    devices: int = 0
    quiet: bool = False

    def run(self, home: Store) -> list[Failure]:
        alone: Worker | None = None
        for stage in missing(home):
            jobs = min(self.jobs, len(stage.tasks))
            if jobs > 1:
                failures = self._in_processes(home, stage, jobs)
            else:
                alone = alone or Worker(home, self.devices, quiet=self.quiet)
                failures = self._here(alone, stage)
            if failures:
                return failures  # what follows needs what failed
        return []

    def _here(self, worker: Worker, stage: Stage) -> list[Failure]:
        failures = []
        for number, task in enumerate(stage.tasks, 1):
            began = time.monotonic()
            reason = worker.attempt(task)
            self._say(number, stage, task, reason, time.monotonic() - began)
            if reason:
                failures.append(Failure(task, reason))
        return failures

    def _in_processes(self, home: Store, stage: Stage, jobs: int) -> list[Failure]:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        crew = _Crew(lambda: _start(home.root, self.devices, threads))
        failures, done = [], 0
        with stoppable() as stop, Work(f"{len(stage.tasks)} {stage.name}", len(stage.tasks), quiet=self.quiet) as work:
            try:
                for task, reason, seconds in crew.do(stage.tasks, jobs, lambda: stop.requested):
                    done += 1
                    if reason == DIED:
                        record_failure(home, task, reason)
                    if reason:
                        failures.append(Failure(task, reason))
                    self._say(done, stage, task, reason, seconds)
                    work.at(done)
            finally:
                crew.dismiss()
            if stop.requested:
                raise Interrupted("stopped; run again to continue")
        return failures

    def _say(self, number: int, stage: Stage, task: str, reason: str | None, seconds: float) -> None:
        if not self.quiet:
            end = f"FAILED: {reason}" if reason else f"done in {duration(seconds)}"
            console.print(f"[{number}/{len(stage.tasks)}] {task} {end}", markup=False)


DIED = "its process died (killed, or out of memory)"


@dataclass
class _Member:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    task: str = ""
    began: float = 0.0


class _Crew:
    """Worker processes that take tasks from a common list."""

    def __init__(self, start: Callable[[], _Member]) -> None:
        self._start, self._members = start, list[_Member]()

    def do(self, tasks: tuple[str, ...], jobs: int, stopped: Callable[[], bool]):  # type: ignore[no-untyped-def]
        """Yields (task, reason of failure or None, seconds) as tasks end."""
        waiting = deque(tasks)
        self._members = [self._start() for _ in range(jobs)]
        for member in self._members:
            _hand(member, waiting)
        while any(member.task for member in self._members) and not stopped():
            for pipe in wait([m.pipe for m in self._members if m.task], timeout=0.2):
                member = next(m for m in self._members if m.pipe is pipe)
                task, seconds = member.task, time.monotonic() - member.began
                try:
                    reason = member.pipe.recv()
                except EOFError:
                    reason = DIED
                    self._members.remove(member)
                    if waiting:
                        member = self._start()
                        self._members.append(member)
                member.task = ""
                yield task, reason, seconds
                if member in self._members:
                    _hand(member, waiting)

    def dismiss(self) -> None:
        """Ask every worker to save and end, and wait for it."""
        for member in self._members:
            if member.task:
                member.process.terminate()
            member.pipe.close()
        for member in self._members:
            member.process.join()


def _hand(member: _Member, waiting: deque[str]) -> None:
    if waiting:
        member.task, member.began = waiting.popleft(), time.monotonic()
        member.pipe.send(member.task)


def _start(root: Path, devices: int, threads: int) -> _Member:
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(root, devices, threads, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Member(process, ours)


def _work(root: Path, devices: int, threads: int, pipe: Connection) -> None:
    worker = Worker(Store(root, experiment_file.load(root / "experiment.yaml")), devices, threads, quiet=True)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return  # the list is empty, or the sweep was stopped
        try:
            pipe.send(worker.attempt(task))
        except (Interrupted, BrokenPipeError):
            return
