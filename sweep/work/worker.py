"""Does one task of an experiment after another in one process, on one compiled program.

A task is a word, the slug of a training: it can be handed to a worker process, an array element or a person's command
line alike, as data.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sweep import files
from sweep.errors import Busy, Diverged, Interrupted, Refused, Stuck
from sweep.graph import claim
from sweep.graph.home import Home
from sweep.graph.training import Training
from sweep.hardware import gpu_name, hardware
from sweep.progress import console
from sweep.tracking.runs import track_weights, tracked
from sweep.training.compiled import compile_all, keep_compiled
from sweep.training.schedule import most_devices

if TYPE_CHECKING:  # TensorFlow is loaded only when something is trained
    from sweep.training.program import Program

BUSY_SECONDS = 2.0


@dataclass(frozen=True)
class Failure:
    """A task that did not succeed. `refused`: its input cannot be used, and trying again will not help."""

    task: str
    reason: str
    refused: bool = False


class Worker:
    """Performs tasks. The program is compiled at the first task and serves all later ones of the same recipe."""

    def __init__(
        self, home: Home, devices: int = 0, threads: int = 0, quiet: bool = False, restarts: int | None = None
    ) -> None:
        self.home, self.devices, self.threads, self.quiet = home, devices, threads, quiet
        self.restarts = restarts  # of a task from the same point before it is given up; None: a person decides
        self._program: tuple[object, Program, str] | None = None

    def program(self, training: Training) -> tuple[Program, str]:
        """The program that trains it, and the fingerprint of its data."""
        key = (training.model, training.data, training.recipe)
        if self._program is None or self._program[0] != key:
            keep_compiled(self.home.pool / "compiled")
            from sweep.data import open_dataset
            from sweep.data.fingerprint import fingerprint
            from sweep.devices import first, prepare
            from sweep.training.program import Program

            dataset = open_dataset(training.data)
            devices = prepare(self.devices, self.threads)
            if not self.devices:  # all there are, or as many as can share a batch
                devices = first(devices, most_devices(training.recipe, devices.replicas))
            program = Program(training, dataset, devices)
            if not self.quiet:
                console.print(str(program))
            self._program = key, program, fingerprint(dataset, training.data)
        return self._program[1], self._program[2]

    def warm_up(self) -> bool:
        """Compile ahead for others, where there is a GPU to compile for."""
        if not gpu_name():
            return False
        compile_all(self.program(self.home.graph.trainings[-1])[0])
        return True

    def perform(self, task: str) -> None:
        """Do the task, unless it is done."""
        home, training = self.home, self.home.training(task)
        folder = home.folder(training)
        if home.done(training):
            if wanted := home.missing_points(training):
                points = ", ".join(map(str, wanted))
                console.print(f"{task}: its weights at {points} were not kept; it is trained again up to there")
                from sweep.work.start import replay_points

                replay_points(home, self.program(training)[0], training, wanted, self.quiet)
            return
        # before anything can go wrong, so that a start that dies while compiling counts too
        mine = claim.take(folder, self.restarts)
        with claim.beating(folder, mine):
            (folder / "failure.json").unlink(missing_ok=True)
            files.write_json(folder / "training.json", training.described() | {"name": training.name})
            from sweep.training.loop import Watch
            from sweep.work.start import run_training

            program, fingerprint = self.program(training)
            for parent in training.needs:
                check_data(home, parent, training, fingerprint)
            with tracked(home, training, folder, hardware()) as tracker:
                watch = Watch(before_writing=partial(claim.check, folder, mine), recorded=tracker.epoch)
                run_training(home, program, training, fingerprint, self.quiet, watch)
                if training.mask is None:
                    track_weights(home, training, tracker)

    def attempt(self, task: str) -> Failure | None:
        """Do the task; what went wrong is recorded beside its results and returned, so that others can go on."""
        try:
            self.perform(task)
        except (Interrupted, Busy):
            raise
        except (Refused, Diverged, Stuck) as error:
            return record_failure(self.home, task, str(error), refused=isinstance(error, Refused))
        except Exception as error:  # any fault of one cell, out of memory too, must not end the others
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return record_failure(self.home, task, reason, traceback.format_exc())
        (self.home.folder_of(task) / "failure.json").unlink(missing_ok=True)
        return None

    def attempt_patiently(self, task: str) -> Failure | None:
        """The same; where another process has the training, wait until it is done or free."""
        said = False
        while True:
            try:
                return self.attempt(task)
            except Busy as error:
                if not said:
                    console.print(f"{error}; waiting for it")
                said = True
                time.sleep(BUSY_SECONDS)


def check_data(home: Home, parent: Training, training: Training, fingerprint: str) -> None:
    """A ticket on other images than its dense run had would be a mistake nobody sees."""
    if parent.data != training.data:
        return
    result = home.folder(parent) / "result.json"
    if not result.exists():
        raise Refused(f"{parent.slug}: is not done, and {training.slug} starts from it; lottery sweep does both")
    before = files.read_json(result).get("fingerprint")
    if before != fingerprint:
        raise Refused(
            f"data: {parent.name} was trained on other images (fingerprint {before}, these have {fingerprint}); "
            "expected the same ones at data.path"
        )


def record_failure(home: Home, task: str, reason: str, trace: str = "", refused: bool = False) -> Failure:
    content = {"task": task, "reason": reason, "traceback": trace}
    files.write_json(home.folder_of(task) / "failure.json", content)
    return Failure(task, reason, refused)
