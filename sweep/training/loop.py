"""The training loop, one for dense runs, tickets and controls.

What is on disk at any moment is enough to continue to the same bits: the checkpoint holds everything that training
changes, and everything else is a function of (recipe, seed, epoch). At the end of an epoch, snapshots are written
first, then metrics, then the checkpoint; so what a checkpoint says is done is on disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sweep import files
from sweep.errors import Diverged, Interrupted, Refused
from sweep.hardware import gpu_ids
from sweep.interrupt import Stop, stoppable
from sweep.progress import Work
from sweep.sharing import counted
from sweep.training.loss_scale import SMALLEST
from sweep.training.program import Program
from sweep.training.schedule import Epoch, rates_of
from sweep.training.start import Start
from sweep.training.steps import drawn_ahead, fed, stream
from sweep.utilisation import watched

CALL_SECONDS = 1.0  # length of one call to the device, after which signals, clock and progress are looked at
OUTLIERS = (("p50", 50), ("p95", 95), ("max", 100))  # percentiles of step times, each the mean over a call
WAITING, WAITED = 0.2, 1.0  # share and seconds of an epoch spent waiting for images, above which a warning is printed
RISING = 4  # epochs in a row with a higher training loss, after which a warning is printed


@dataclass(frozen=True)
class Outcome:
    """The result of a finished training: metrics of the last epoch's weights on test and validation split, and time."""

    test: dict[str, float]
    validation: dict[str, float]
    epochs: float  # epochs trained; a fraction if training began inside an epoch
    seconds: float  # time of training, all sessions together


@dataclass(frozen=True)
class Watch:
    """The callbacks of a training: the owner is told about points, epochs and the beginning, and may stop a write."""

    points: frozenset[int] = frozenset()  # steps of the schedule at which `reached` is called
    reached: Callable[[int], Any] = lambda step: None  # called before metrics or checkpoint say that the step is done
    before_writing: Callable[[], None] = lambda: None  # raises if another process has taken over the training
    recorded: Callable[[], None] = lambda: None  # called after an epoch was written to metrics.jsonl
    begins: Callable[[int], None] = lambda step: None  # called with the step where training starts or resumes


NOBODY = Watch()


def train(
    program: Program,
    start: Start,
    folder: Path,
    label: str,
    quiet: bool = False,
    watch: Watch = NOBODY,
    epochs: int | None = None,
) -> Outcome:
    """Train from `start`, or continue the checkpoint in `folder`, up to `epochs` (default: the recipe's)."""
    checkpoint, until = folder / "checkpoint.h5", program.recipe.epochs if epochs is None else epochs
    run = _Run(program, start, folder, label, watch)
    program.load(start.weights, start.mask, start.memory)
    watch.before_writing()
    if checkpoint.exists():
        run.resume(checkpoint)
        watch.begins(run.at)
    else:
        files.trim_metrics(folder, lambda line: False)
        watch.begins(run.at)
        run.tell_point()
    total = program.recipe.steps_before(until, program.steps) - start.step
    gpus = gpu_ids()[: program.devices.replicas]
    with (
        stoppable() as stop,
        Work(label, total, run.trained, quiet) as work,
        counted(gpus) as run.on_gpu,
        watched(gpus) as run.gpu_load,
    ):
        feed = program.feed(program.dataset.train)  # made in this thread, not in the one that draws
        draw = partial(program.epoch, seed=start.seed, last_rate=start.last_rate)
        drawn = drawn_ahead(draw, range(run.epoch, run.epoch if run.stopped_early else until))
        with closing(fed(feed, drawn, run.step)) as each:
            for epoch, batches in each:
                run.train_epoch(epoch, batches, stop, work)
                run.finish_epoch(work)
                if run.stopped_early:
                    break
    test = program.evaluation.metrics(program.dataset.test)
    watch.before_writing()  # the caller will write the result
    return Outcome(test, run.validation, run.epochs, run.seconds)


class _Run:
    """A training in progress: the epoch and step it is at, and the seconds it has taken."""

    def __init__(self, program: Program, start: Start, folder: Path, label: str, watch: Watch) -> None:
        self.program, self.start, self.folder, self.label, self.watch = program, start, folder, label, watch
        self.epoch, self.step = program.recipe.epoch_at(start.step, program.steps)
        self.seconds = 0.0  # time of training, all sessions
        self.epoch_seconds = self.wait_seconds = 0.0  # of the current epoch
        self.validation: dict[str, float] = {}
        self.saved = time.monotonic()
        self.stopped_early = False
        # number of trainings on its GPUs, including this one
        self.on_gpu: Callable[[], float | None] = lambda: None
        self.gpu_load: Callable[[], dict[str, float]] = dict  # means since its last call
        self._speed = 0.0  # steps per second in the last call
        self._loss = self._right = 0.0  # sums over the current epoch
        self._told_waiting = False
        self.step_times: list[float] = []  # milliseconds per step of each call in this epoch, this process

    @property
    def at(self) -> int:
        """Return the next step of the schedule."""
        return self.program.recipe.steps_before(self.epoch, self.program.steps) + self.step

    @property
    def steps(self) -> int:
        """Return the number of steps of the current epoch."""
        return self.program.recipe.steps_at(self.epoch, self.program.steps)

    @property
    def trained(self) -> int:
        """Return the number of steps trained so far."""
        return self.at - self.start.step

    @property
    def epochs(self) -> float:
        """Return the number of epochs trained so far; a fraction if training began or is inside an epoch."""
        recipe, per_epoch = self.program.recipe, self.program.steps
        places = (recipe.epoch_at(step, per_epoch) for step in (self.start.step, self.at))
        begin, now = (epoch + Fraction(step, recipe.steps_at(epoch, per_epoch)) for epoch, step in places)
        return float(now - begin)

    def tell_point(self) -> None:
        """Call `watch.reached` if the training is at one of the points to watch."""
        if self.at in self.watch.points:
            self.watch.before_writing()
            self.watch.reached(self.at)

    def _next_point(self) -> int:
        """Return the step of this epoch at which the next point to watch is, or else the end of the epoch."""
        first = self.at - self.step
        return min([p - first for p in self.watch.points if self.at < p < first + self.steps], default=self.steps)

    def train_epoch(self, epoch: Epoch, batches: Iterator[Any] | None, stop: Stop, work: Work) -> None:
        """Train the remaining steps of the current epoch, whose inputs are `epoch`; write checkpoints when due.

        `batches`: of these steps, unless their images are on the device. Raise Interrupted after a signal.
        """
        program, recipe = self.program, self.program.recipe
        if self.step == 0:
            program.clear_sums()
        while self.step < self.steps:
            several = max(1, int(self._speed * CALL_SECONDS))
            self._call(epoch, min(self.step + several, self._next_point()), batches, stop)
            self._tell(work)
            if self.step < self.steps:  # finish_epoch reports the point at the end of an epoch
                self.tell_point()
            if stop.requested:
                self.save()
                raise Interrupted(f"{self.label}: stopped in epoch {self.epoch + 1}; run again to continue")
            if time.monotonic() - self.saved > 60 * recipe.checkpoint_minutes:
                self.save()

    def _tell(self, work: Work) -> None:
        """Report the progress inside an epoch: its loss and accuracy so far, speed, and time waiting for images."""
        recipe, batch = self.program.recipe, self.program.recipe.batch_at(self.epoch)
        images, wait = batch * min(self.step, self.trained), self.wait_seconds / self.epoch_seconds
        told = (f", step {self.step}/{self.steps}: loss {self._loss / images:.3f}, top-1 {self._right / images:.1%}, "
                f"{self._speed * batch:,.0f} images/s, {wait:.0%} of the time waiting for images")  # fmt: skip
        work.at(self.trained, f"epoch {self.epoch + 1}/{recipe.epochs}", told)

    def _call(self, epoch: Epoch, last: int, batches: Iterator[Any] | None, stop: Stop) -> None:
        """Train steps up to `last` on the device and wait for it; raise Diverged if the loss is not finite.

        It stops earlier after a signal or if images are slow.
        """
        began = time.monotonic()
        if batches is None:
            self.program.run(epoch, self.step, last)
        else:
            late = lambda: stop.requested or time.monotonic() - began > 2 * CALL_SECONDS  # noqa: E731
            last, waited = stream(self.program, epoch, range(self.step, last), batches, late)
            self.wait_seconds += waited
        loss, self._right, *_ = self.program.take_sums()  # waits for the device
        self._loss, took = loss, time.monotonic() - began
        if not math.isfinite(loss):
            short = "; float16 ends at 65504, recipe.precision=bfloat16 does not" if self.program.scaled else ""
            # the step is not named: how many a call takes depends on the clock, and this reason is part of the results
            raise Diverged(f"loss is {loss} in epoch {self.epoch + 1}{short}")
        if self.program.loss_scale < SMALLEST:
            raise Diverged(f"the gradient overflows at every loss scale, in epoch {self.epoch + 1}")
        first, self._speed = not self._speed, (last - self.step) / took
        if not first:  # the first call of a process also compiles
            self.step_times.append(1e3 / self._speed)
        self.step = last
        self.seconds += took
        self.epoch_seconds += took

    def finish_epoch(self, work: Work) -> None:
        """Evaluate the validation split, append a line to metrics.jsonl and write the checkpoint."""
        program, recipe = self.program, self.program.recipe
        batch = recipe.batch_at(self.epoch)
        images = min(self.steps, self.trained) * batch  # of this epoch; fewer if training began inside it
        loss, right, *top5 = (total / images for total in program.take_sums())
        rates = rates_of(recipe, self.epoch, program.steps, self.start.last_rate)
        times = self.step_times
        on_gpu, gpu_load = self.on_gpu(), self.gpu_load()  # before the evaluation, which has another load
        began = time.monotonic()
        held_out = program.dataset.validation
        self.validation = program.evaluation.metrics(held_out) if len(held_out) else {}
        evaluating = time.monotonic() - began
        self.epoch, self.step = self.epoch + 1, 0
        self.stopped_early = bool(recipe.stop_at) and self.validation["top1"] >= recipe.stop_at
        self.watch.before_writing()
        self.tell_point()
        files.append_metrics(
            self.folder,
            {
                "epoch": self.epoch,
                "train_loss": loss,
                "train_top1": right,
                **({"train_top5": top5[0]} if top5 and math.isfinite(top5[0]) else {}),
                **{f"validation_{name}": value for name, value in self.validation.items()},
                "learning_rate": float(rates[-1]),
                **({"loss_scale": program.loss_scale} if program.scaled else {}),
                "seconds": self.epoch_seconds,
                "evaluation_seconds": evaluating,
                "images_per_second": images / self.epoch_seconds,
                "step_ms": 1e3 * self.epoch_seconds * batch / images,
                **{f"step_ms_{name}": float(np.percentile(times, q)) for name, q in OUTLIERS if times},
                "data_wait_share": self.wait_seconds / self.epoch_seconds,
                "devices": program.devices.replicas,
                **({"trainings_on_gpu": on_gpu} if on_gpu is not None else {}),
                **gpu_load,
            },
        )
        self._warn_of_waiting(work, batch)
        self.seconds += evaluating
        self.epoch_seconds = self.wait_seconds = 0.0
        self.step_times.clear()
        self.save()
        self.watch.recorded()
        losses = [line["train_loss"] for line in files.read_metrics(self.folder)[-RISING - 1 :]]
        if len(losses) > RISING and all(before < after for before, after in pairwise(losses)):
            work.say(f"{self.label}: the training loss has risen for {RISING} epochs, from {losses[0]:.3f} to "
                     f"{losses[-1]:.3f}; is recipe.learning_rate too high?")  # fmt: skip
        accuracy = f", validation {self.validation['top1']:.2%}" if self.validation else ""
        work.at(self.trained, f"epoch {self.epoch}/{recipe.epochs}: loss {loss:.3f}{accuracy}")

    def _warn_of_waiting(self, work: Work, batch: int) -> None:
        """Print once that reading is slower than training, with the speed at which images come now."""
        share = self.wait_seconds / self.epoch_seconds
        if share > WAITING and self.wait_seconds > WAITED and not self._told_waiting:
            self._told_waiting = True
            work.say(f"{self.label}: {share:.0%} of epoch {self.epoch} went into waiting for images, which come at "
                     f"{self._speed * batch:,.0f} a second; a faster disk (data.cache), raw shards or more "
                     "cores per GPU help (docs/data.md)")  # fmt: skip

    def save(self) -> None:
        self.watch.before_writing()
        attributes = {
            "hash_of_start": self.start.digest,
            "data": self.start.data,
            **{name: getattr(self, name) for name in _PROGRESS},
            **{f"validation_{name}": value for name, value in self.validation.items()},
        }
        files.write_arrays(self.folder / "checkpoint.h5", self.program.state(), attributes)
        self.saved = time.monotonic()

    def resume(self, checkpoint: Path) -> None:
        """Load the state of a checkpoint; raise Refused if it belongs to another start or other images."""
        state, attributes = files.read_arrays(checkpoint)
        if attributes.get("hash_of_start") != self.start.digest:
            raise Refused(f"{checkpoint}: begun from other weights or another mask; delete it to train this anew")
        before = attributes.get("data", self.start.data)  # earlier versions did not write it
        if before != self.start.data:
            raise Refused(f"{checkpoint}: begun on other images (fingerprint {before}, these have {self.start.data}); "
                          "expected the same ones at data.path")  # fmt: skip
        self.program.restore(state)
        for name in _PROGRESS:
            setattr(self, name, attributes[name])
        prefix = "validation_"
        self.validation = {n.removeprefix(prefix): v for n, v in attributes.items() if n.startswith(prefix)}
        files.trim_metrics(self.folder, lambda line: line["epoch"] <= self.epoch)


_PROGRESS = ("epoch", "step", "seconds", "epoch_seconds", "wait_seconds", "stopped_early")
