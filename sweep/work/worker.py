"""Does one task of an experiment after another in one process, on one compiled program.

A task is a word, the slug of a training: it can be handed to a worker process, an array element or a person's command
line alike, as data.
"""

from __future__ import annotations

import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from models import Network, Weights
from sweep import files
from sweep.errors import Busy, Diverged, Interrupted, Refused, Stuck
from sweep.experiment.point import in_order
from sweep.graph import claim
from sweep.graph.home import AGAIN, RESULT, Home
from sweep.graph.mask_file import Found, can_make, make_mask
from sweep.graph.runs import Runs
from sweep.graph.training import Line, Training
from sweep.hardware import commit, gpu_name, hardware
from sweep.progress import console
from sweep.pruning.masks import emptied
from sweep.pruning.scores import Gradients
from sweep.tracking.runs import track_weights, tracked
from sweep.training.compiled import compile_once, keep_compiled
from sweep.training.schedule import most_devices

if TYPE_CHECKING:  # TensorFlow is loaded only when something is trained
    from sweep.training.program import Program

BUSY_SECONDS = 2.0


class OnDevice:
    """What a mask found in a training may need besides files, made only if it does."""

    def __init__(self, worker: Worker, training: Training) -> None:
        self.worker, self.training = worker, training

    @property
    def network(self) -> Network:
        return self.worker.program(self.training)[0].network

    def gradients(self, weights: Weights, seed: int) -> Gradients:
        from sweep.training.gradients import DeviceGradients

        return DeviceGradients(self.worker.program(self.training)[0], weights, seed)


@dataclass(frozen=True)
class Failure:
    """A task that did not succeed. `refused`: its input cannot be used, and trying again will not help."""

    task: str
    reason: str
    refused: bool = False


class Worker:
    """Performs tasks. The program is compiled at the first task and serves all later ones of the same recipe."""

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
        self.restarts = restarts  # of a task from the same point before it is given up; None: a person decides
        self._program: tuple[object, Program, str] | None = None
        self._mine: tuple[str, Path, claim.Claim] | None = None  # of the task under way
        commit()  # as it is now, when this code was loaded; results say it later

    def program(self, training: Training) -> tuple[Program, str]:
        """The program that trains it, and the fingerprint of its data."""
        key = (training.model, training.data, training.recipe)
        if self._program is None or self._program[0] != key:
            compiled = keep_compiled(self.home.pool)
            from sweep.data import open_dataset
            from sweep.data.fingerprint import fingerprint
            from sweep.devices import first, prepare
            from sweep.training.program import Program

            dataset = open_dataset(training.data)
            devices = prepare(self.devices, self.threads)
            if not self.devices:  # all there are, or as many as can share a batch
                devices = first(devices, most_devices(training.recipe, devices.replicas))
            program = Program(training, dataset, replace(devices, sharing=self.per_gpu))
            if not self.quiet:
                console.print(str(program))
            if compiled:
                compile_once(program, compiled)
            self._program = key, program, fingerprint(dataset, training.data)
        return self._program[1], self._program[2]

    def warm_up(self) -> bool:
        """Compile ahead for others, where there is a GPU to compile for."""
        if not gpu_name():
            return False
        self.program(self.home.graph.trainings[-1])
        return True

    def perform(self, task: str) -> None:
        """Do the task, unless it is done."""
        home, training = self.home, self.home.training(task)
        folder = home.folder(training)
        if home.done(training):
            if training.name in home.missing_points():
                self._again(training)
            return
        # before anything can go wrong, so that a start that dies while compiling counts too
        mine = claim.take(folder, self.restarts)
        self._mine = task, folder, mine
        with claim.beating(folder, mine):
            if home.done(training):  # by another process, between the look and the claim
                return
            (folder / "failure.json").unlink(missing_ok=True)
            runs = Runs(home.pool)  # a checkpoint belongs to those of its beginning
            came_from = runs.recorded(training.name) if (folder / "checkpoint.h5").exists() else runs.before(training)
            described = training.described() | {"name": training.name, "runs": came_from}
            files.write_json(folder / "training.json", described)
            for need, at in home.lost(training):
                if home.ended_before(need, at):
                    raise Refused(f"{need.slug}: recipe.stop_at ended it before {at}; expected an earlier point")
                raise Refused(
                    f"{need.slug}: its weights at {at} are not there; lottery sweep trains it again up to there"
                )
            mask = self._mask(training)
            if self._skipped(training, mask):
                return
            from sweep.training.loop import Watch
            from sweep.work.line import run_line
            from sweep.work.start import run_training

            program, fingerprint = self.program(training)
            check_data(home, training, fingerprint)
            Runs(home.pool).refuse_replaced(*training.needs)
            if isinstance(training, Line):
                run_line(home, program, training, fingerprint, partial(claim.check, folder, mine))
                return
            with tracked(home, training, folder, hardware()) as tracker:
                watch = Watch(before_writing=partial(claim.check, folder, mine), recorded=tracker.epoch)
                run_training(home, program, training, mask, fingerprint, self.quiet, watch)
                if training.kind == "dense":
                    track_weights(home, training, tracker)

    def _again(self, training: Training) -> None:
        """For the weights that it did not keep, or lost, and others want."""
        home, place = self.home, self.home.folder(training) / AGAIN
        mine = claim.take(place, self.restarts)
        self._mine = training.slug, place, mine
        with claim.beating(place, mine):
            wanted = home.missing_points().get(training.name)
            if not wanted:  # another process had them again, between the look and the claim
                return
            (home.folder(training) / "failure.json").unlink(missing_ok=True)
            points = ", ".join(in_order(map(str, wanted)))
            console.print(f"{training.slug}: its weights at {points} are not there; it is trained again up to there")
            from sweep.work.again import train_again

            program, fingerprint = self.program(training)
            check_data(home, training, fingerprint)
            check, mask = partial(claim.check, place, mine), self._mask(training)
            train_again(home, program, training, mask, fingerprint, wanted, check, self.quiet)

    def _mask(self, training: Training) -> Found | None:
        """Its mask; None also where the training it would be found in was skipped."""
        if training.mask is None or any(self.home.skipped(parent) for parent in training.needs):
            return None
        return make_mask(self.home, training.mask, OnDevice(self, training.mask.of))

    def skip_collapsed(self) -> None:
        """Put on record which trainings are not worth starting, as far as files alone can say."""
        for training in self.home.graph:
            if training.mask is None or self.home.done(training) or not all(map(self.home.done, training.needs)):
                continue
            if can_make(self.home, training.mask):
                with suppress(Refused):  # said when its turn comes
                    self._skipped(training, self._mask(training))

    def _skipped(self, training: Training, mask: Found | None) -> bool:
        why = self._cut_through(training, mask)
        if why:
            path = self.home.folder(training) / "skipped.json"
            runs = Runs(self.home.pool).before(training)
            files.write_json(path, {"task": training.slug, "reason": why, "runs": runs})
        return bool(why)

    def _cut_through(self, training: Training, mask: Found | None) -> str:
        """Why it is not to be trained, as `prune.collapse` has it; nothing where it is."""
        collapse = self.home.experiment.prune.collapse
        skipped = next((parent for parent in training.needs if self.home.skipped(parent)), None)
        if skipped:
            return f"{skipped.slug} was skipped: {self.home.skipped(skipped)}"
        empty = emptied(mask.mask, mask.network) if mask else []
        if not empty or collapse == "train":
            return ""
        names = ", ".join(empty[:3]) + (", …" if len(empty) > 3 else "")
        why = f"the mask leaves nothing of {len(empty)} kernel{'s' if len(empty) > 1 else ''} ({names})"
        if collapse == "refuse":
            raise Refused(f"{training.slug}: {why}; expected prune.collapse skip or train, or another method or level")
        console.print(f"{training.slug}: skipped, {why}")
        return why

    def attempt(self, task: str) -> Failure | None:
        """Do the task; what went wrong is recorded beside its results and returned, so that others can go on."""
        try:
            self.perform(task)
        except (Interrupted, Busy):
            raise
        except (Refused, Diverged, Stuck) as error:
            return self._failed(task, str(error), refused=isinstance(error, Refused))
        except Exception as error:  # any fault of one cell, out of memory too, must not end the others
            if isinstance(error, OSError) and error.errno in files.FULL:
                where = error.filename or self.home.folder_of(task)  # the system does not always say
                return self._failed(task, f"{where}: {error.strerror}; make room and run again")
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return self._failed(task, reason, traceback.format_exc())
        (self.home.folder_of(task) / "failure.json").unlink(missing_ok=True)
        return None

    def _failed(self, task: str, reason: str, trace: str = "", refused: bool = False) -> Failure:
        """A copy that was superseded says nothing of its successor."""
        if self._mine and self._mine[0] == task:
            claim.check(*self._mine[1:])
        return record_failure(self.home, task, reason, trace, refused)

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


def check_data(home: Home, training: Training, fingerprint: str) -> None:
    """A ticket on other images than its dense run had would be a mistake nobody sees."""
    for parent in training.needs:
        if not home.done(parent):
            raise Refused(f"{parent.slug}: is not done, and {training.slug} starts from it; lottery sweep does both")
    alike = (one for one in training.needs or home.graph if one.data == training.data)
    found = ((one, files.read_json_if_there(home.folder(one) / "result.json", RESULT)) for one in alike)
    # what starts from nothing, as with a mask found at initialization, is compared with any that is done
    other, result = next((pair for pair in found if pair[1]), (training, None))
    if result and (before := result.get("fingerprint")) != fingerprint:
        raise Refused(
            f"data: {other.name} was trained on other images (fingerprint {before}, these have {fingerprint}); "
            "expected the same ones at data.path"
        )


def record_failure(home: Home, task: str, reason: str, trace: str = "", refused: bool = False) -> Failure:
    """Beside its results; where that cannot be written (a full disk may be the very reason), it is said only."""
    try:
        files.write_json(home.folder_of(task) / "failure.json", {"task": task, "reason": reason, "traceback": trace})
    except OSError as error:
        reason += f"; and this could not be written ({error.strerror})" if str(error.strerror) not in reason else ""
    return Failure(task, reason, refused)
