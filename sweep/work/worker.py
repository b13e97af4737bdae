"""The worker: does the tasks of an experiment one after another in one process, with one compiled program.

A task is given as text, the slug of a training, so that a worker process, an array element and a command line can take
it.
"""

from __future__ import annotations

import errno
import gc
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from models import Weights
from sweep import files
from sweep.errors import Busy, Diverged, Interrupted, Refused, Stuck
from sweep.experiment.point import in_order
from sweep.graph import claim
from sweep.graph.home import AGAIN, Home
from sweep.graph.mask_file import can_make
from sweep.graph.runs import Runs
from sweep.graph.training import Line, Task, Training
from sweep.hardware import commit, gpu_name, hardware
from sweep.progress import console
from sweep.pruning.scores import Gradients
from sweep.tracking.runs import track_weights, tracked
from sweep.training.compiled import compile_once, keep_compiled
from sweep.training.schedule import most_devices
from sweep.work.inputs import Skipped, mask_of, open_inputs
from sweep.work.line import run_line

if TYPE_CHECKING:  # TensorFlow is loaded only when something is trained
    from sweep.training.program import Program

BUSY_SECONDS = 2.0
# what TensorFlow and CUDA say of a GPU without room: for a process, for a tensor that is copied there, for a library
NO_MEMORY = ("out of memory", "out_of_memory", "dst tensor is not initialized", "alloc_failed", "failed to allocate")


@dataclass(frozen=True)
class Failure:
    """A task that failed.

    `refused`: its input is invalid, so trying again will not help. `memory`: it had none left; with fewer trainings
    at a time it may succeed.
    """

    task: str
    reason: str
    refused: bool = False
    memory: bool = False


class Worker:
    """A process's worker. The program is compiled at the first task and used for all later ones of the same recipe."""

    def __init__(
        self,
        home: Home,
        devices: int = 0,
        threads: int = 0,
        quiet: bool = False,
        restarts: int | None = None,
        per_gpu: int = 1,
    ) -> None:
        self.home, self.devices, self.threads, self.quiet, self.per_gpu = home, devices, threads, quiet, per_gpu
        self.restarts = restarts  # starts without progress before a task counts as failed; None: no limit
        self._program: tuple[object, Program] | None = None
        self._check: Callable[[], None] | None = None  # raises if another process has taken over the current task
        commit()  # cached now, when this code is loaded, for later results

    def program(self, training: Task) -> Program:
        """Return the program of a task, compiled if the last one was of another model, data set or recipe."""
        key = (training.model, training.data, training.recipe)
        if self._program is None or self._program[0] != key:
            self._program = None  # its images and weights leave the devices before others come,
            gc.collect()  # although a program and its compiled functions refer to each other
            compiled = keep_compiled(self.home.pool)
            from sweep.data import open_dataset
            from sweep.devices import first, prepare
            from sweep.training.program import Program

            dataset = open_dataset(training.data)
            devices = prepare(self.devices, self.threads)
            if not self.devices:  # as many as can share a batch
                devices = first(devices, most_devices(training.recipe, devices.replicas))
            program = Program(training, dataset, replace(devices, sharing=self.per_gpu))
            if not self.quiet:
                console.print(str(program))
            if compiled:
                compile_once(program, compiled)
            self._program = key, program
        return self._program[1]

    def gradients(self, training: Training, weights: Weights) -> Gradients:
        """Return the gradients of a training's network on its data, for pruning scores."""
        from sweep.training.gradients import DeviceGradients

        return DeviceGradients(self.program(training), weights, training.seed)

    def warm_up(self) -> bool:
        """Compile the last training's program if there is a GPU, for later processes to find; return whether."""
        if not gpu_name():
            return False
        self.program(self.home.graph.trainings[-1])
        return True

    def perform(self, task: str) -> None:
        """Do the task, unless it is done; train a finished one again if weights that others need are missing."""
        home, training, self._check = self.home, self.home.training(task), None
        folder = home.folder(training)
        if home.done(training):
            if training.name in home.missing_points():
                self._again(training)
            return
        # claimed first, so that a start that dies while compiling counts too
        with self._claimed(folder) as (mine, check):
            if home.done(training):  # by another process meanwhile
                return
            (folder / "failure.json").unlink(missing_ok=True)
            try:
                inputs = open_inputs(home, training, self)
            except Skipped as why:
                self._skip(training, why)
                return
            described = training.described() | {"name": training.name, "runs": inputs.begun_from}
            files.write_json(folder / "training.json", described)
            if isinstance(training, Line):
                run_line(inputs, check)
                return
            from sweep.training.loop import Watch
            from sweep.work.start import run_training

            with tracked(home, training, folder, hardware(), inputs.mask) as tracker:
                watch = Watch(before_writing=check, recorded=tracker.epoch)
                run_training(home, inputs, mine.began, self.quiet, watch)
                if training.dense:
                    track_weights(home, training, tracker)

    def _again(self, training: Task) -> None:
        """Train a finished training again for the missing weights that others need."""
        home, folder = self.home, self.home.folder(training)
        with self._claimed(folder / AGAIN) as (_, check):
            wanted = home.missing_points().get(training.name)
            if not wanted:  # another process has done it meanwhile
                return
            (folder / "failure.json").unlink(missing_ok=True)
            points = ", ".join(in_order(map(str, wanted)))
            console.print(f"{training.slug}: its weights at {points} are not there; it is trained again up to there")
            from sweep.work.again import as_recorded, train_again

            inputs = open_inputs(home, as_recorded(home, training), self)
            train_again(home, inputs, wanted, check, self.quiet)

    @contextmanager
    def _claimed(self, place: Path) -> Iterator[tuple[claim.Claim, Callable[[], None]]]:
        """Hold the claim on a task; yield it and a function that raises if another process has taken it over."""
        mine = claim.take(place, self.restarts)
        self._check = partial(claim.check, place, mine)
        with claim.beating(place, mine):
            yield mine, self._check

    def skip_collapsed(self) -> None:
        """Write skipped.json for trainings whose mask fully prunes a layer, as far as masks can be made from files."""
        home = self.home
        for training in home.graph:
            if training.mask is None or home.done(training) or not all(map(home.done, training.needs)):
                continue
            # the network of a transferred one is known only with its data
            if not training.transferred and can_make(home, training.mask):
                try:
                    mask_of(home, training, self)
                except Skipped as why:
                    self._skip(training, why)
                except Refused:  # reported when it is its turn
                    pass

    def _skip(self, training: Task, why: Skipped) -> None:
        said = {"task": training.slug, "reason": str(why), "runs": Runs(self.home.pool).before(training)}
        files.write_json(self.home.folder(training) / "skipped.json", said)

    def attempt(self, task: str) -> Failure | None:
        """Do the task; record what fails in failure.json and return it, so that other tasks can continue."""
        try:
            self.perform(task)
        except (Interrupted, Busy):
            raise
        except (Refused, Diverged, Stuck) as error:
            return self._failed(task, str(error), refused=isinstance(error, Refused))
        except Exception as error:  # no failure of one training, even out of memory, may stop the others
            if isinstance(error, OSError) and error.errno in files.FULL:
                where = error.filename or self.home.folder_of(task)  # the system does not always name the file
                return self._failed(task, f"{where}: {error.strerror}; make room and run again")
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            if memory := out_of_memory(error):
                reason = (
                    f"out of memory; expected a smaller recipe.batch, fewer trainings on a GPU, or for shards "
                    f"data.resident=off ({reason})"
                )
            return replace(self._failed(task, reason, traceback.format_exc()), memory=memory)
        (self.home.folder_of(task) / "failure.json").unlink(missing_ok=True)
        return None

    def _failed(self, task: str, reason: str, trace: str = "", refused: bool = False) -> Failure:
        """Record a failure, unless another process has taken over the task (raise Superseded)."""
        if self._check:
            self._check()
        return record_failure(self.home, task, reason, trace, refused)

    def attempt_patiently(self, task: str) -> Failure | None:
        """Attempt a task; while another process has the training, wait until it is done or free."""
        said = False
        while True:
            try:
                return self.attempt(task)
            except Busy as error:
                if not said:
                    console.print(f"{error}; waiting for it")
                said = True
                time.sleep(BUSY_SECONDS)


def out_of_memory(error: Exception) -> bool:
    """Return whether an error says that this machine or its GPU had no memory left."""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "ResourceExhaustedError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return kind in ("InternalError", "RuntimeError") and any(words in str(error).lower() for words in NO_MEMORY)


def forget_failure(home: Home, task: str) -> None:
    """Remove failure.json of a task that is tried again, and do not count its start as one without progress."""
    for folder in (home.folder_of(task), home.folder_of(task) / AGAIN):
        (folder / "failure.json").unlink(missing_ok=True)
        claim.forgive(folder)


def record_failure(home: Home, task: str, reason: str, trace: str = "", refused: bool = False) -> Failure:
    """Write failure.json and return the failure; if it cannot be written (full disk), only return it."""
    try:
        files.write_json(home.folder_of(task) / "failure.json", {"task": task, "reason": reason, "traceback": trace})
    except OSError as error:
        reason += f"; and this could not be written ({error.strerror})" if str(error.strerror) not in reason else ""
    return Failure(task, reason, refused)
