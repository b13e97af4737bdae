"""Where a training begins, and what it leaves: the value in the graph turned into weights, a mask and files."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from models import Network, Weights
from sweep import files
from sweep.errors import Refused
from sweep.experiment import END, Point
from sweep.experiment.point import LADDER
from sweep.graph import claim
from sweep.graph.home import Home, kept_steps, snapshot_at
from sweep.graph.mask_file import Found
from sweep.graph.runs import Runs, run_of
from sweep.graph.training import Training
from sweep.hardware import circumstances
from sweep.training.loop import Outcome, Start, Watch, train
from sweep.training.program import Program


def run_training(
    home: Home, program: Program, training: Training, mask: Found | None, fingerprint: str, quiet: bool, watch: Watch
) -> None:
    """Train it, keep the weights that others start from, and leave its result."""
    folder, runs = home.folder(training), Runs(home.pool).before(training)
    start = replace(start_of(home, training, program.network, program.steps, mask), data=fingerprint)
    points = frozenset(_points(home, program, training))
    watch = replace(
        watch, points=points, begins=partial(drop_later, folder),
        reached=lambda at: keep(folder, program, training, at, program.weights()),
    )  # fmt: skip
    mine = claim.read(folder)
    starting = time.time() - mine.began if mine else 0.0  # loading, reading and compiling, before the first step
    outcome = train(program, start, folder, training.slug, quiet=quiet, watch=watch)
    final = program.evaluation.weights()
    keep(folder, program, training, END, final)
    result = result_of(outcome, program, training, fingerprint, mask, files.read_metrics(home.folder(training)))
    result |= {"run": run_of(final), "runs": runs, "start_seconds": max(0.0, starting)}
    files.write_json(folder / "result.json", result)
    if training.mask:
        (folder / "checkpoint.h5").unlink(missing_ok=True)


def start_of(home: Home, training: Training, network: Network, steps: int, mask: Found | None) -> Start:
    """`steps`: of an epoch."""
    begin = training.begin.step(steps, training.recipe.epochs)
    if begin >= training.recipe.epochs * steps:
        raise Refused(f"prune.rewind: {training.begin} lies after the end ({training.recipe.epochs * steps} steps)")
    for has, wants in zip(mask.network.of("kernel") if mask else (), network.of("kernel"), strict=False):
        if has != wants:  # only `Found.on` lays it on another number of classes
            raise Refused(f"{training.slug}: {has.name} of its mask has shape {has.shape}, expected {wants.shape}")
    origin = training.start
    if origin.of is None:
        weights = network.initial(origin.seed or 0)
    else:
        weights = files.read_snapshot(home.snapshot(origin.of, origin.at), network)
    if origin.keeps:
        other = network.initial(origin.other or 0).kernels
        signs, sizes = (weights.kernels, other) if origin.keeps == "signs" else (other, weights.kernels)
        weights = Weights(np.copysign(sizes, signs), weights.others, weights.statistics)
    return Start(weights, begin, training.seed, mask.mask if mask else None, training.rates == "last")


def _points(home: Home, program: Program, training: Training) -> set[int]:
    """Steps at which its weights are kept: of a dense run those that others start from, and a ladder of early ones."""
    if training.kind != "dense":
        return set()
    asked = [at for at in home.points_asked(training) if at != END]
    total = program.recipe.epochs * program.steps
    steps = {at.step(program.steps, program.recipe.epochs) for at in (*asked, *LADDER)}
    return {step for step in steps if step < total}


def drop_later(folder: Path, step: int) -> None:
    """What an attempt that was given up had kept beyond it: on a GPU the next one goes elsewhere."""
    for later in kept_steps(folder):
        if later > step:
            snapshot_at(folder, later).unlink(missing_ok=True)
    (folder / "snapshots" / "final.h5").unlink(missing_ok=True)


def keep(folder: Path, program: Program, training: Training, at: int | Point, weights: Weights) -> None:
    """As the weights after `at` steps, or as the final ones."""
    network = program.network
    attributes = {
        "training": training.name,
        "step": program.recipe.epochs * program.steps if isinstance(at, Point) else at,
        "image_size": network.image_size,
        "channels": network.channels,
        "classes": network.classes,
        "width": training.model.width,
    }
    path = folder / "snapshots" / "final.h5" if isinstance(at, Point) else snapshot_at(folder, at)
    files.write_snapshot(path, network, weights, attributes)


def result_of(
    outcome: Outcome,
    program: Program,
    training: Training,
    fingerprint: str,
    mask: Found | None,
    metrics: list[dict[str, Any]],
) -> dict[str, Any]:
    """What result.json says of any training, its circumstances included."""
    epochs = outcome.epochs
    out: dict[str, Any] = {
        "training": training.name,
        "test": outcome.test,
        "validation": outcome.validation,
        "epochs": int(epochs) if float(epochs).is_integer() else epochs,
        "steps_per_epoch": program.steps,
        "seconds": outcome.seconds,
        "devices": program.devices.replicas,
        "trainings_per_gpu": program.devices.sharing,
        "norm_images": program.recipe.norm_images or program.recipe.batch,
        "fingerprint": fingerprint,
        "test_images": len(program.dataset.test),
        **circumstances(),
    }
    lines = [line for line in metrics if "trainings_on_gpu" in line]
    if lines and len(lines) == len(metrics):
        out["gpu_seconds"] = sum(
            line.get("devices", program.devices.replicas)  # each sitting may have had others
            * (line["seconds"] + line["evaluation_seconds"])
            / line["trainings_on_gpu"]
            for line in lines
        )
    if mask:
        out |= {
            "density": mask.density,
            "kept": int(mask.mask.sum()),
            "prunable": int(mask.mask.size),
            "threshold": mask.threshold,
        }
    return out
