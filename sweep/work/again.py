"""Training again for weights that a finished training did not keep, or lost: up to the last point that is needed.

It is an ordinary training in the subfolder `again`: claimed, saved and resumed. The first result stays as it is. Every
epoch must have the recorded loss, and the end the recorded hash; only then are the weights used.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment import END, Point
from sweep.experiment.forms import Switch
from sweep.experiment.point import in_order
from sweep.graph.home import AGAIN, RESULT, Home, kept_steps, metrics_of
from sweep.graph.runs import run_of
from sweep.graph.training import Task
from sweep.hardware import circumstances, gpu_name
from sweep.training.loop import Watch, train
from sweep.training.program import Program
from sweep.work.inputs import Inputs
from sweep.work.start import drop_later, keep


class Other(Exception):
    """The second training differs from the first: other kernels round differently, and the difference grows."""


class _First:
    """The record of the first training, whose weights at the wanted points are missing."""

    def __init__(self, home: Home, inputs: Inputs, wanted: list[Point]) -> None:
        training, folder = inputs.training, inputs.folder
        self.name, self.wanted, self.last = training.slug, wanted, home.last_epoch(training)
        self.words = ", ".join(in_order(map(str, wanted)))
        self.lost = f"{self.name}: its weights at {self.words} are not there"
        kept = ", ".join(f"{step}it" for step in kept_steps(folder)) or "none"
        self.instead = f"expected a point it kept ({kept}) or another seed"
        self.result = files.read_json(folder / "result.json", RESULT)
        lines = metrics_of(folder) if END in wanted else files.read_metrics(folder)
        self.losses = {line["epoch"]: line["train_loss"] for line in lines if "train_loss" in line}

    def goal(self, program: Program, begin: int) -> tuple[frozenset[int], int]:
        """Return the steps whose weights to keep, and the epochs to train; raise Refused if that is impossible."""
        recipe, steps, devices = program.recipe, program.steps, self.result["devices"]
        total = END.step(recipe, steps)
        if devices != program.devices.replicas:
            raise Refused(f"{self.lost}, and it was trained on {devices} devices, not on {program.devices.replicas}; "
                          f"expected --devices {devices}")  # fmt: skip
        if (images := self.result.get("images", program.images)) != program.images:
            raise Refused(f"{self.lost}, and it was trained on images that were {images}, not {program.images} "
                          f"(data.resident, docs/data.md); {self.instead}")  # fmt: skip
        points = frozenset(at.step(recipe, steps) for at in self.wanted if at != END)
        if max(points, default=0) >= total:
            raise Refused(f"{self.name}: {self.words} lies after its end ({total} steps)")
        epoch, rest = recipe.epoch_at(max(points, default=0), steps)
        until = self.last if END in self.wanted else epoch + bool(rest)
        if not set(range(1 + recipe.epoch_at(begin, steps)[0], 1 + until)) <= set(self.losses):
            raise Refused(f"{self.lost}, nor its losses up to there, to compare a second training with; {self.instead}")
        return points, until

    def compare(self, place: Path) -> None:
        """Raise Other if an epoch of the second training has another loss than the first had."""
        for line in files.read_metrics(place):
            if line["train_loss"] != (loss := self.losses[line["epoch"]]):
                raise Other(f"train loss of epoch {line['epoch']} {line['train_loss']}, recorded {loss}")


def as_recorded(home: Home, training: Task) -> Task:
    """Return a finished training with its shards resident on the devices, or streamed, as they were then."""
    images = files.read_json(home.folder(training) / "result.json", RESULT).get("images")
    if not images or training.data.name != "shards":
        return training
    resident: Switch = "off" if images == "streamed" else "on"
    return replace(training, data=replace(training.data, resident=resident))


def train_again(
    home: Home, inputs: Inputs, wanted: list[Point], before_writing: Callable[[], None], quiet: bool
) -> None:
    """Train again up to the wanted points and write their weights into the training's folder, or raise Refused."""
    training, folder, program, start = inputs.training, inputs.folder, inputs.program, inputs.start()
    first, place = _First(home, inputs, wanted), folder / AGAIN
    points, until = first.goal(program, start.step)
    if _passed(place, points, program):
        (place / "checkpoint.h5").unlink()
    watch = Watch(
        points=points, begins=partial(drop_later, place), before_writing=before_writing,
        reached=partial(keep, inputs, place), recorded=partial(first.compare, place),
    )  # fmt: skip
    try:
        train(program, start, place, f"{training.slug}, again up to {first.words}", quiet, watch, until)
        if END in wanted:
            final = keep(inputs, place, END)
            if first.result.get("run") not in (None, run_of(final)):
                raise Other("other weights at its end")
    except Other as other:
        for path in (place / "snapshots", place / "checkpoint.h5", place / "metrics.jsonl"):  # keeps the claim
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        why = "; ".join(filter(None, (str(other), _difference(first.result))))
        raise Refused(f"{first.lost}, and trained again it is another training ({why}); {first.instead}") from None
    before_writing()
    (folder / "snapshots").mkdir(exist_ok=True)
    for path in (place / "snapshots").iterdir():
        os.replace(path, folder / "snapshots" / path.name)
    shutil.rmtree(place)


def _passed(place: Path, wanted: Collection[int], program: Program) -> bool:
    """Whether the checkpoint of an earlier second training is past a wanted step that it did not keep."""
    checkpoint = place / "checkpoint.h5"
    if not checkpoint.exists():
        return False
    at = files.read_attributes(checkpoint)
    now = program.recipe.steps_before(at["epoch"], program.steps) + at["step"]
    return any(step < now for step in set(wanted) - set(kept_steps(place)))


def _difference(result: dict[str, Any]) -> str:
    """Return why a second training may differ: other hardware or software, or a GPU without its autotuning choices."""
    here = circumstances()
    other = [f"{result[key]} then, {here[key]} here" for key in ("hardware", "driver", "tensorflow")
             if result.get(key) not in (None, here[key])]  # fmt: skip
    if gpu_name() and not other:
        return "a GPU rounds the same only with autotuned/ of the results it was trained in"
    return "; ".join(other)
