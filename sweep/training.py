"""The one training loop, for dense run and ticket alike.

What is on disk at any moment is enough to continue to the same bits: the checkpoint holds everything that training
changes, and everything else is a function of (recipe, seed, epoch). Order of writing at the end of an epoch: snapshot,
metrics, checkpoint; so whatever a checkpoint claims to be done is there.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models import Weights
from sweep import store
from sweep.data.feed import Resident
from sweep.errors import Diverged, Interrupted, Refused
from sweep.interrupt import Stop, stoppable
from sweep.program import Program
from sweep.progress import Work
from sweep.recipe import Epoch, epoch_of, learning_rates

CALL_SECONDS = 1.0  # of steps handed to the device in one call: signals, clock and progress are looked at in between


@dataclass(frozen=True)
class Start:
    """Where a training begins: weights, mask, and the epoch of the schedule it takes up."""

    weights: Weights
    epoch: int
    seed: int
    mask: np.ndarray | None = None


@dataclass(frozen=True)
class Outcome:
    """What a finished training leaves. Accuracy is that of the last epoch on the test split."""

    test: dict[str, float]
    validation: dict[str, float]
    epochs: int  # trained in this cell
    seconds: float  # over all its sittings


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Watch:
    """Who follows a training from outside."""

    before_writing: Callable[[], None] = _nothing  # raises where another process has taken the training over
    recorded: Callable[[], None] = _nothing  # an epoch is in metrics.jsonl


def train(
    program: Program,
    start: Start,
    folder: Path,
    label: str,
    on_epoch: Callable[[int], None] = lambda epoch: None,
    quiet: bool = False,
    watch: Watch | None = None,
) -> Outcome:
    """Train from `start` to the end of the recipe, or on from the checkpoint in `folder`.

    `on_epoch(n)` is called whenever n epochs of the schedule are complete, before that is put on record.
    """
    recipe, checkpoint = program.recipe, folder / "checkpoint.h5"
    watch = watch or Watch()
    run = _Run(program, start, folder, label, watch)
    program.load(start.weights, start.mask)
    if checkpoint.exists():
        run.resume(checkpoint)
    else:
        store.trim_metrics(folder, lambda line: False)
        on_epoch(start.epoch)
    total = (recipe.epochs - start.epoch) * program.steps
    with stoppable() as stop, Work(label, total, run.position(), quiet) as work:
        while not run.complete:
            run.train_epoch(stop, work)
            run.finish_epoch(work, on_epoch)
    outcome = Outcome(program.evaluate(program.dataset.test), run.validation, run.epoch - start.epoch, run.seconds)
    watch.before_writing()  # the caller writes the result
    return outcome


class _Run:
    """A training under way: the epoch and step it is at, and the time it took so far."""

    def __init__(self, program: Program, start: Start, folder: Path, label: str, watch: Watch) -> None:
        self.program, self.start, self.folder, self.label, self.watch = program, start, folder, label, watch
        self.epoch, self.step = start.epoch, 0
        self.seconds = 0.0  # of training, all sittings
        self.epoch_seconds = self.wait_seconds = 0.0  # of the current epoch
        self.validation: dict[str, float] = {}
        self.saved = time.monotonic()
        self.stopped_early = False
        self._speed = 0.0  # steps per second, of the last call

    @property
    def complete(self) -> bool:
        return self.stopped_early or self.epoch >= self.program.recipe.epochs

    def position(self) -> int:
        return (self.epoch - self.start.epoch) * self.program.steps + self.step

    def train_epoch(self, stop: Stop, work: Work) -> None:
        program, recipe = self.program, self.program.recipe
        epoch = epoch_of(recipe, self.start.seed, self.epoch, len(program.dataset.train), program.dataset.image_size)
        feed = program.feed(program.dataset.train)
        batches = feed.batches(epoch.order[self.step :], epoch.seeds[self.step :])
        if self.step == 0:
            program.clear_sums()
        while self.step < program.steps:
            began = time.monotonic()
            batch = next(batches)
            self.wait_seconds += time.monotonic() - began if not isinstance(feed, Resident) else 0.0
            several = max(1, int(self._speed * CALL_SECONDS)) if isinstance(feed, Resident) else 1
            last = min(self.step + several, program.steps)
            first = not self._speed
            self._call(epoch, last, batch, began)
            if first:
                work.start_clock(self.position())
            work.at(self.position(), f"epoch {self.epoch + 1}/{recipe.epochs}")
            if stop.requested:
                self.save()
                raise Interrupted(f"{self.label}: stopped in epoch {self.epoch + 1}; run again to continue")
            if time.monotonic() - self.saved > 60 * recipe.checkpoint_minutes:
                self.save()

    def _call(self, epoch: Epoch, last: int, batch: Any, began: float) -> None:
        self.program.run(epoch, self.step, last, batch)
        loss, _ = self.program.take_sums()  # waits for the device
        took = time.monotonic() - began
        if not math.isfinite(loss):
            raise Diverged(f"loss is {loss} in epoch {self.epoch + 1}, step {last} of {self.program.steps}")
        self._speed = (last - self.step) / took
        self.step = last
        self.seconds += took
        self.epoch_seconds += took

    def finish_epoch(self, work: Work, on_epoch: Callable[[int], None]) -> None:
        program, recipe = self.program, self.program.recipe
        loss, right = program.take_sums()
        images = program.steps * recipe.batch
        began = time.monotonic()
        self.validation = program.evaluate(program.dataset.validation) if len(program.dataset.validation) else {}
        evaluating = time.monotonic() - began
        self.epoch, self.step = self.epoch + 1, 0
        self.stopped_early = bool(recipe.stop_at) and self.validation["top1"] >= recipe.stop_at
        self.watch.before_writing()
        on_epoch(self.epoch)
        store.append_metrics(
            self.folder,
            {
                "epoch": self.epoch,
                "train_loss": loss / images,
                "train_top1": right / images,
                **{f"validation_{name}": value for name, value in self.validation.items()},
                "learning_rate": float(learning_rates(recipe, self.epoch - 1, program.steps)[-1]),
                "seconds": self.epoch_seconds,
                "evaluation_seconds": evaluating,
                "images_per_second": images / self.epoch_seconds,
                "step_ms": 1e3 * self.epoch_seconds / program.steps,
                "data_wait_share": self.wait_seconds / self.epoch_seconds,
            },
        )
        self.seconds += evaluating
        self.epoch_seconds = self.wait_seconds = 0.0
        self.save()
        self.watch.recorded()
        accuracy = f", validation {self.validation['top1']:.2%}" if self.validation else ""
        work.at(self.position(), f"epoch {self.epoch}/{recipe.epochs}: loss {loss / images:.3f}{accuracy}")

    def save(self) -> None:
        self.watch.before_writing()
        attributes = {
            "hash_of_start": fingerprint(self.start),
            **{name: getattr(self, name) for name in _KEPT},
            **{f"validation_{name}": value for name, value in self.validation.items()},
        }
        store.write_arrays(self.folder / "checkpoint.h5", self.program.state(), attributes)
        self.saved = time.monotonic()

    def resume(self, checkpoint: Path) -> None:
        state, attributes = store.read_arrays(checkpoint)
        if attributes.get("hash_of_start") != fingerprint(self.start):
            raise Refused(f"{checkpoint}: begun from other weights or another mask; delete it to train this cell anew")
        self.program.restore(state)
        for name in _KEPT:
            setattr(self, name, attributes[name])
        prefix = "validation_"
        self.validation = {n.removeprefix(prefix): v for n, v in attributes.items() if n.startswith(prefix)}
        store.trim_metrics(self.folder, lambda line: line["epoch"] <= self.epoch)


_KEPT = ("epoch", "step", "seconds", "epoch_seconds", "wait_seconds", "stopped_early")


def fingerprint(start: Start) -> str:
    """Of everything a training begins from: a checkpoint of another beginning must not be continued."""
    digest = hashlib.sha256(f"{start.epoch} {start.seed}".encode())
    for vector in (*start.weights, start.mask):
        if vector is not None:
            digest.update(np.ascontiguousarray(vector).tobytes())
    return digest.hexdigest()[:16]
