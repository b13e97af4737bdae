"""On this machine: in this process on one compiled program, or in several worker processes.

A worker process that dies takes one cell with it, not the sweep: the cell is recorded as failed and a new worker
takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from slurm.backend import say
from sweep import experiment_file
from sweep.errors import Interrupted
from sweep.interrupt import stoppable
from sweep.progress import Work
from sweep.store import Store
from sweep.worker import Failure, Stage, Worker, missing, record_failure, without_broken


@dataclass(frozen=True)
class Local:
    """`jobs` tasks at a time; 1 = in this process."""

    jobs: int = 1
    devices: int = 0
    quiet: bool = False

    def run(self, home: Store) -> list[Failure]:
        """Everything that is missing; a backend as slurm.backend describes it."""
        alone, failures = Worker(home, self.devices, quiet=self.quiet), list[Failure]()
        for stage in missing(home):
            able = without_broken(stage, failures)
            jobs = min(self.jobs, len(able.tasks))
            failures += self._in_processes(home, able, jobs) if jobs > 1 else self._here(alone, able)
        return failures

    def _here(self, worker: Worker, stage: Stage) -> list[Failure]:
        failures = []
        for number, task in enumerate(stage.tasks, 1):
            began = time.monotonic()
            failure = worker.attempt(task)
            self._say(number, stage, task, failure, time.monotonic() - began)
            failures += [failure] if failure else []
        return failures

    def _in_processes(self, home: Store, stage: Stage, jobs: int) -> list[Failure]:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        failures: list[Failure] = []
        crew = _Crew(lambda: _start(home.root, self.devices, threads), lambda task: record_failure(home, task, DIED))
        with stoppable() as stop, Work(f"{len(stage.tasks)} {stage.name}", len(stage.tasks), quiet=self.quiet) as work:
            try:
                for done, end in enumerate(crew.do(stage.tasks, jobs, lambda: stop.requested), 1):
                    task, failure, seconds = end
                    failures += [failure] if failure else []
                    self._say(done, stage, task, failure, seconds)
                    work.at(done)
            finally:
                crew.dismiss()
            if stop.requested:
                raise Interrupted("stopped; run again to continue")
        return failures

    def _say(self, number: int, stage: Stage, task: str, failure: Failure | None, seconds: float) -> None:
        if not self.quiet:
            say(number, stage, task, failure, seconds)


DIED = "its process died (killed, or out of memory)"


@dataclass
class _Member:
    process: BaseProcess
    pipe: Connection
    task: str = ""
    began: float = 0.0

    def hand(self, waiting: deque[str]) -> None:
        """Give it the next task, if there is one."""
        self.task = waiting.popleft() if waiting else ""
        if self.task:
            self.began = time.monotonic()
            with suppress(ConnectionError):  # it died already: seen when its answer is read
                self.pipe.send(self.task)


class _Crew:
    """Worker processes that take tasks from a common list."""

    def __init__(self, start: Callable[[], _Member], died: Callable[[str], Failure]) -> None:
        self._start, self._died = start, died
        self._members: list[_Member] = []

    def do(
        self, tasks: tuple[str, ...], jobs: int, stopped: Callable[[], bool]
    ) -> Iterator[tuple[str, Failure | None, float]]:
        """Yields (task, failure or None, seconds) as tasks end."""
        waiting = deque(tasks)
        self._members = [self._start() for _ in range(jobs)]
        for member in self._members:
            member.hand(waiting)
        while (busy := [m for m in self._members if m.task]) and not stopped():
            ready = wait([m.pipe for m in busy], timeout=0.2)
            for member in (m for m in busy if m.pipe in ready):
                task, seconds = member.task, time.monotonic() - member.began
                try:
                    failure: Failure | None = member.pipe.recv()
                except (EOFError, ConnectionError):
                    failure = self._died(task)
                    self._members.remove(member)
                    if waiting:
                        self._members.append(self._start())
                        self._members[-1].hand(waiting)
                else:
                    member.hand(waiting)
                yield task, failure, seconds

    def dismiss(self) -> None:
        """Ask every worker to save and end, and wait for it."""
        for member in self._members:
            if member.task:
                member.process.terminate()
            member.pipe.close()
        for member in self._members:
            member.process.join()


def _start(root: Path, devices: int, threads: int) -> _Member:
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(root, devices, threads, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Member(process, ours)


def _work(root: Path, devices: int, threads: int, pipe: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    worker = Worker(Store(root, experiment_file.load(root / "experiment.yaml")), devices, threads, quiet=True)
    while True:
        try:
            pipe.send(worker.attempt(pipe.recv()))
        except (EOFError, Interrupted, ConnectionError, KeyboardInterrupt):
            return  # nothing left to do, or the sweep was stopped


def _end_with_parent() -> None:
    """An orphan would go on training a cell that the next run takes up: it ends when its parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
