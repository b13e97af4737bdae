"""The execution of one training: snapshots at the points that others need, and its result."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from models import Weights
from sweep import files
from sweep.experiment import END, Point
from sweep.experiment.point import LADDER
from sweep.graph.home import Home, kept_steps, snapshot_at
from sweep.graph.runs import run_of
from sweep.graph.snapshot_file import attributes_of
from sweep.graph.training import Task
from sweep.hardware import circumstances
from sweep.pruning.cost import costs_of
from sweep.training.loop import Outcome, Watch, train
from sweep.training.program import Program
from sweep.work.inputs import Inputs


def run_training(home: Home, inputs: Inputs, began: float, quiet: bool, watch: Watch) -> None:
    """Train, keep the weights that others start from, and write the result. `began`: time of the claim."""
    training, folder, program, start = inputs.training, inputs.folder, inputs.program, inputs.start()
    watch = replace(
        watch, points=_points(home, program, training), begins=partial(drop_later, folder),
        reached=partial(keep, inputs, folder),
    )  # fmt: skip
    starting = time.time() - began  # loading, reading and compiling, before the first step
    outcome = train(program, start, folder, training.slug, quiet=quiet, watch=watch)
    final = keep(inputs, folder, END)
    result = result_of(outcome, inputs)
    result |= {"run": run_of(final), "start_seconds": max(0.0, starting)}
    files.write_json(folder / "result.json", result)
    if training.mask:
        (folder / "checkpoint.h5").unlink(missing_ok=True)


def _points(home: Home, program: Program, training: Task) -> frozenset[int]:
    """Return the steps at which a dense run keeps its weights: points that others need, and early ones (LADDER)."""
    if not training.dense:
        return frozenset()
    asked = [at for at in home.points_asked(training) if at != END]
    total = END.step(program.recipe, program.steps)
    steps = {at.step(program.recipe, program.steps) for at in (*asked, *LADDER)}
    return frozenset(step for step in steps if step < total)


def drop_later(folder: Path, step: int) -> None:
    """Delete snapshots after `step`, left by an abandoned attempt: on a GPU the next one may have other weights."""
    for later in kept_steps(folder):
        if later > step:
            snapshot_at(folder, later).unlink(missing_ok=True)
    (folder / "snapshots" / "final.h5").unlink(missing_ok=True)


def keep(inputs: Inputs, folder: Path, at: int | Point) -> Weights:
    """Write the weights after `at` steps as a snapshot in `folder`, or at END those that are evaluated; return them."""
    training, program, network = inputs.training, inputs.program, inputs.program.network
    if isinstance(at, Point):
        step, path = at.step(program.recipe, program.steps), folder / "snapshots" / "final.h5"
        weights = program.evaluation.weights()
    else:
        step, path, weights = at, snapshot_at(folder, at), program.weights()
    attributes = {"training": training.name, "step": step, **attributes_of(network, training.model.width)}
    memory = program.memory() if program.recipe.rewind_momentum else {}
    files.write_snapshot(path, network, weights, attributes, memory)
    return weights


def result_of(outcome: Outcome, inputs: Inputs) -> dict[str, Any]:
    """Return the content of result.json."""
    program, metrics, epochs = inputs.program, files.read_metrics(inputs.folder), outcome.epochs
    out: dict[str, Any] = {
        "training": inputs.training.name,
        "test": outcome.test,
        "validation": outcome.validation,
        "epochs": int(epochs) if float(epochs).is_integer() else epochs,
        "steps_per_epoch": program.steps,
        "seconds": outcome.seconds,
        "devices": program.devices.replicas,
        "trainings_per_gpu": program.devices.sharing,
        "norm_images": program.recipe.norm_images or program.recipe.batch,
        "images": program.images,
        "fingerprint": program.fingerprint,
        "runs": inputs.runs,
        "test_images": len(program.dataset.test),
        **({"cores": program.devices.cores} if program.devices.cores else {}),
        **circumstances(),
    }
    lines = [line for line in metrics if "trainings_on_gpu" in line]
    if lines and len(lines) == len(metrics):
        out["gpu_seconds"] = sum(
            line.get("devices", program.devices.replicas)  # sessions may differ in devices
            * (line["seconds"] + line["evaluation_seconds"])
            / line["trainings_on_gpu"]
            for line in lines
        )
    mask = inputs.mask
    out |= costs_of(mask.mask if mask else None, program.network)
    if mask:
        out |= {
            "density": mask.density,
            "kept": int(mask.mask.sum()),
            "prunable": int(mask.mask.size),
            "threshold": mask.threshold,
        }
    return out
