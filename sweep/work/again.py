"""Weights that a finished training did not keep, or lost: it is trained again, up to the last of them.

That is a training like any other, in the folder `again` beside its record: claimed, saved, gone on with. The record
stays as it is. Every epoch must come out with the loss on record and the end with its hash; then its weights are taken.
"""

from __future__ import annotations

import math
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
from sweep.experiment.point import in_order
from sweep.graph.home import AGAIN, RESULT, Home, kept_steps, metrics_of
from sweep.graph.mask_file import Found
from sweep.graph.runs import run_of
from sweep.graph.training import Training
from sweep.hardware import circumstances, gpu_name
from sweep.training.loop import Watch, train
from sweep.training.program import Program
from sweep.work.start import drop_later, keep, start_of


class Other(Exception):
    """Trained again, it is not the same training: other kernels round differently, and that grows."""


def train_again(
    home: Home,
    program: Program,
    training: Training,
    mask: Found | None,
    fingerprint: str,
    wanted: list[Point],
    before_writing: Callable[[], None],
    quiet: bool = False,
) -> None:
    """The weights at the wanted points, in the training's folder."""
    folder, words = home.folder(training), ", ".join(in_order(map(str, wanted)))
    place, lost = folder / AGAIN, f"{training.slug}: its weights at {words} are not there"
    result = files.read_json(folder / "result.json", RESULT)
    if result["devices"] != program.devices.replicas:
        raise Refused(f"{lost}, and it was trained on {result['devices']} devices, not on {program.devices.replicas}; "
                      f"expected --devices {result['devices']}")  # fmt: skip
    lines = metrics_of(folder) if END in wanted else files.read_metrics(folder)
    losses = {line["epoch"]: line["train_loss"] for line in lines if "train_loss" in line}
    last, steps = max(losses, default=0), program.steps  # with recipe.stop_at perhaps not all epochs
    between = {at.step(steps, program.recipe.epochs) for at in wanted if at != END}
    if max(between, default=0) >= program.recipe.epochs * steps:
        raise Refused(f"{training.slug}: {words} lies after its end ({program.recipe.epochs * steps} steps)")
    until = last if END in wanted else math.ceil(max(between) / steps)
    start = replace(start_of(home, training, program.network, steps, mask), data=fingerprint)
    kept = f"expected a point it kept ({', '.join(f'{s}it' for s in kept_steps(folder)) or 'none'}) or another seed"
    if not set(range(1 + start.step // steps, 1 + until)) <= set(losses):
        raise Refused(f"{lost}, nor its losses up to there, to compare a second training with; {kept}")
    if _passed(place, between, steps):
        (place / "checkpoint.h5").unlink()
    watch = Watch(
        points=frozenset(between), begins=partial(drop_later, place), before_writing=before_writing,
        reached=lambda at: keep(place, program, training, at, program.weights()),
        recorded=partial(_compare, place, losses),
    )  # fmt: skip
    try:
        train(program, start, place, f"{training.slug}, again up to {words}", quiet, watch, until)
        if END in wanted:
            final = program.evaluation.weights()
            if result.get("run") not in (None, run_of(final)):
                raise Other("other weights at its end")
            keep(place, program, training, END, final)
    except Other as other:
        for path in (place / "snapshots", place / "checkpoint.h5", place / "metrics.jsonl"):  # its claim stays
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        why = f"{other}; {_difference(result)}" if _difference(result) else str(other)
        raise Refused(f"{lost}, and trained again it is another training ({why}); {kept}") from None
    before_writing()
    for path in (place / "snapshots").iterdir():
        (folder / "snapshots").mkdir(exist_ok=True)
        os.replace(path, folder / "snapshots" / path.name)
    shutil.rmtree(place)


def _passed(place: Path, wanted: Collection[int], steps: int) -> bool:
    """Whether an earlier second training, for other points, is beyond one of these and did not keep it."""
    checkpoint = place / "checkpoint.h5"
    if not checkpoint.exists():
        return False
    at = files.read_attributes(checkpoint)
    return any(step < at["epoch"] * steps + at["step"] for step in set(wanted) - set(kept_steps(place)))


def _compare(place: Path, losses: dict[int, float]) -> None:
    for line in files.read_metrics(place):
        if line["train_loss"] != losses[line["epoch"]]:
            raise Other(f"train loss of epoch {line['epoch']} {line['train_loss']}, recorded {losses[line['epoch']]}")


def _difference(result: dict[str, Any]) -> str:
    """Why that may be: what was different then, or what a GPU needs to round the same."""
    here = circumstances()
    other = [f"{result[key]} then, {here[key]} here" for key in ("hardware", "driver", "tensorflow")
             if result.get(key) not in (None, here[key])]  # fmt: skip
    if gpu_name() and not other:
        return "a GPU rounds the same only with autotuned/ of the results it was trained in"
    return "; ".join(other)
