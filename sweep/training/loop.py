"""The one training loop, for dense run and ticket alike.

What is on disk at any moment is enough to continue to the same bits: the checkpoint holds everything that training
changes, and everything else is a function of (recipe, seed, epoch). Order of writing at the end of an epoch: snapshot,
metrics, checkpoint; so whatever a checkpoint claims to be done is there.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from models import Weights
from sweep import files
from sweep.data.feed import Resident
from sweep.errors import Diverged, Interrupted, Refused
from sweep.hardware import gpu_ids
from sweep.interrupt import Stop, stoppable
from sweep.progress import Work
from sweep.sharing import counted
from sweep.training.loss_scale import SMALLEST
from sweep.training.program import Program
from sweep.training.schedule import Epoch, epoch_of, rates_of
from sweep.utilisation import watched

CALL_SECONDS = 1.0  # of steps handed to the device in one call: signals, clock and progress are looked at in between
OUTLIERS = (("p50", 50), ("p95", 95), ("max", 100))  # of the time of a step, which is the mean over a call
RISING = 3  # epochs in a row with a higher training loss, after which a warning is printed


@dataclass(frozen=True)
class Start:
    """Where a training begins: weights, mask, and the step of the schedule it takes up."""

    weights: Weights
    step: int
    seed: int
    mask: np.ndarray | None = None
    last_rate: bool = False  # fine-tuning: the schedule's last rate throughout
    data: str = ""  # fingerprint of the images
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)  # of the optimizer: momentum; empty: none


@dataclass(frozen=True)
class Outcome:
    """What a finished training leaves. Accuracy is that of the last epoch on the test split."""

    test: dict[str, float]
    validation: dict[str, float]
    epochs: float  # trained; not whole where it began inside an epoch
    seconds: float  # over all its sessions


@dataclass(frozen=True)
class Watch:
    """Who follows a training from outside."""

    points: frozenset[int] = frozenset()  # steps of the schedule at which `reached` is called
    reached: Callable[[int], None] = lambda step: None  # called before anything says that the step is done
    before_writing: Callable[[], None] = lambda: None  # raises where another process has taken the training over
    recorded: Callable[[], None] = lambda: None  # an epoch is in metrics.jsonl
    begins: Callable[[int], None] = lambda step: None  # at a step, anew or on from a checkpoint


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
    """Train from `start`, or on from the checkpoint in `folder`, to the end of the recipe, or of so many `epochs`."""
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
    total = until * program.steps - start.step
    gpus = gpu_ids()[: program.devices.replicas]
    with (
        stoppable() as stop,
        Work(label, total, run.trained, quiet) as work,
        counted(gpus) as run.on_gpu,
        watched(gpus) as run.gpu_load,
    ):
        while not run.stopped_early and run.epoch < until:
            run.train_epoch(stop, work)
            run.finish_epoch(work)
    test = program.evaluation.metrics(program.dataset.test)
    outcome = Outcome(test, run.validation, run.trained / program.steps, run.seconds)
    watch.before_writing()  # the caller writes the result
    return outcome


class _Run:
    """A training under way: the epoch and step it is at, and the time it took so far."""

    def __init__(self, program: Program, start: Start, folder: Path, label: str, watch: Watch) -> None:
        self.program, self.start, self.folder, self.label, self.watch = program, start, folder, label, watch
        self.epoch, self.step = divmod(start.step, program.steps)
        self.seconds = 0.0  # of training, all sessions
        self.epoch_seconds = self.wait_seconds = 0.0  # of the current epoch
        self.validation: dict[str, float] = {}
        self.saved = time.monotonic()
        self.stopped_early = False
        # how many trainings are on its GPUs, this one among them
        self.on_gpu: Callable[[], float | None] = lambda: None
        self.gpu_load: Callable[[], dict[str, float]] = dict  # since it was asked before
        self._speed = 0.0  # steps per second, of the last call
        self._loss = self._right = 0.0  # sums over the current epoch
        self.step_times: list[float] = []  # milliseconds of a step in each call of the current epoch, by this process

    @property
    def at(self) -> int:
        """The step of the schedule that comes next."""
        return self.epoch * self.program.steps + self.step

    @property
    def trained(self) -> int:
        """Steps trained so far."""
        return self.at - self.start.step

    def tell_point(self) -> None:
        if self.at in self.watch.points:
            self.watch.before_writing()
            self.watch.reached(self.at)

    def _next_point(self) -> int:
        """The step of this epoch up to which nobody wants to be told."""
        steps, first = self.program.steps, self.epoch * self.program.steps
        return min([p - first for p in self.watch.points if self.at < p < first + steps], default=steps)

    def train_epoch(self, stop: Stop, work: Work) -> None:
        """The steps of this epoch."""
        program, recipe = self.program, self.program.recipe
        epoch = epoch_of(
            recipe, self.start.seed, self.epoch, len(program.dataset.train), program.dataset.image_size,
            self.start.last_rate,
        )  # fmt: skip
        feed = program.feed(program.dataset.train)
        streamed = (
            None if isinstance(feed, Resident) else feed.batches(epoch.order[self.step :], epoch.seeds[self.step :])
        )
        if self.step == 0:
            program.clear_sums()
        while self.step < program.steps:
            several = max(1, int(self._speed * CALL_SECONDS))
            self._call(epoch, min(self.step + several, self._next_point()), streamed, stop)
            self._tell(work)
            if self.step < program.steps:  # at the end of an epoch it is told when the epoch is finished
                self.tell_point()
            if stop.requested:
                self.save()
                raise Interrupted(f"{self.label}: stopped in epoch {self.epoch + 1}; run again to continue")
            if time.monotonic() - self.saved > 60 * recipe.checkpoint_minutes:
                self.save()

    def _tell(self, work: Work) -> None:
        """Tell the progress inside an epoch: loss and accuracy of it so far, speed, and the time spent waiting."""
        recipe, steps = self.program.recipe, self.program.steps
        images, wait = recipe.batch * min(self.step, self.trained), self.wait_seconds / self.epoch_seconds
        told = (f", step {self.step}/{steps}: loss {self._loss / images:.3f}, top-1 {self._right / images:.1%}, "
                f"{self._speed * recipe.batch:,.0f} images/s, {wait:.0%} of the time waiting for images")  # fmt: skip
        work.at(self.trained, f"epoch {self.epoch + 1}/{recipe.epochs}", told)

    def _call(self, epoch: Epoch, last: int, streamed: Iterator[Any] | None, stop: Stop) -> None:
        """Hand the steps up to `last` to the device, then wait for it.

        Fewer steps are handed over where a stop is asked for or images are slow. A streamed step is handed over as soon
        as its images are there, while the device works on those before it.
        """
        began = time.monotonic()
        if streamed is None:
            self.program.run(epoch, self.step, last)
        else:
            for step in range(self.step, last):
                asked = time.monotonic()
                batch = next(streamed)
                self.wait_seconds += time.monotonic() - asked
                self.program.run(epoch, step, step + 1, batch)
                if stop.requested or time.monotonic() - began > 2 * CALL_SECONDS:
                    last = step + 1
                    break
        loss, self._right = self.program.take_sums()  # waits for the device
        self._loss, took = loss, time.monotonic() - began
        if not math.isfinite(loss):
            short = "; float16 ends at 65504, recipe.precision=bfloat16 does not" if self.program.scaled else ""
            # the step is not named: how many a call takes goes by the clock, and the reason is part of the results
            raise Diverged(f"loss is {loss} in epoch {self.epoch + 1}{short}")
        if self.program.loss_scale < SMALLEST:
            raise Diverged(f"the gradient overflows at every loss scale, in epoch {self.epoch + 1}")
        self._speed = (last - self.step) / took
        self.step_times.append(1e3 / self._speed)
        self.step = last
        self.seconds += took
        self.epoch_seconds += took

    def finish_epoch(self, work: Work) -> None:
        program, recipe = self.program, self.program.recipe
        images = min(program.steps, self.trained) * recipe.batch  # of this epoch: fewer where it began inside it
        loss, right = (total / images for total in program.take_sums())
        rates = rates_of(recipe, self.epoch, program.steps, self.start.last_rate)
        on_gpu, gpu_load = self.on_gpu(), self.gpu_load()  # before the evaluation, which is another load
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
                **{f"validation_{name}": value for name, value in self.validation.items()},
                "learning_rate": float(rates[-1]),
                **({"loss_scale": program.loss_scale} if program.scaled else {}),
                "seconds": self.epoch_seconds,
                "evaluation_seconds": evaluating,
                "images_per_second": images / self.epoch_seconds,
                "step_ms": 1e3 * self.epoch_seconds * recipe.batch / images,
                **{
                    f"step_ms_{name}": float(np.percentile(self.step_times, q))
                    for name, q in OUTLIERS
                    if self.step_times
                },
                "data_wait_share": self.wait_seconds / self.epoch_seconds,
                "devices": program.devices.replicas,
                **({"trainings_on_gpu": on_gpu} if on_gpu is not None else {}),
                **gpu_load,
            },
        )
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

    def save(self) -> None:
        self.watch.before_writing()
        attributes = {
            "hash_of_start": fingerprint(self.start),
            "data": self.start.data,
            **{name: getattr(self, name) for name in _PROGRESS},
            **{f"validation_{name}": value for name, value in self.validation.items()},
        }
        files.write_arrays(self.folder / "checkpoint.h5", self.program.state(), attributes)
        self.saved = time.monotonic()

    def resume(self, checkpoint: Path) -> None:
        state, attributes = files.read_arrays(checkpoint)
        if attributes.get("hash_of_start") != fingerprint(self.start):
            raise Refused(f"{checkpoint}: begun from other weights or another mask; delete it to train this anew")
        before = attributes.get("data", self.start.data)  # none: of a version that did not say it
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


def fingerprint(start: Start) -> str:
    """Return a digest of everything a training begins from: a checkpoint of another beginning must not be continued."""
    digest = hashlib.sha256(f"{start.step} {start.seed}{' last rate' if start.last_rate else ''}".encode())
    for vector in (*start.weights, start.mask, *start.memory.values()):
        if vector is not None:
            digest.update(np.ascontiguousarray(vector).tobytes())
    return digest.hexdigest()[:16]
