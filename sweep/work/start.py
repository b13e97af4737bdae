"""Where a training begins, and what it leaves: the value in the graph turned into weights, a mask and files."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from models import Network, Weights
from sweep import files
from sweep.errors import Refused
from sweep.experiment import END, Point
from sweep.experiment.point import LADDER, in_order
from sweep.graph.home import Home, kept_steps, snapshot_at
from sweep.graph.mask_file import Found
from sweep.graph.runs import Runs, run_of
from sweep.graph.training import Training
from sweep.hardware import circumstances
from sweep.training.loop import Other, Outcome, Start, Watch, replay, train
from sweep.training.program import Program


def run_training(
    home: Home, program: Program, training: Training, mask: Found | None, fingerprint: str, quiet: bool, watch: Watch
) -> None:
    """Train it, keep the weights that others start from, and leave its result."""
    folder, runs = home.folder(training), Runs(home.pool).before(training)
    start = replace(start_of(home, training, program.network, program.steps, mask), data=fingerprint)
    points = frozenset(_points(home, program, training))
    watch = replace(
        watch, points=points, begins=partial(_drop_later, folder),
        reached=lambda at: _keep(home, program, training, at, program.weights()),
    )  # fmt: skip
    outcome = train(program, start, folder, training.slug, quiet=quiet, watch=watch)
    final = program.final_weights()
    _keep(home, program, training, END, final)
    result = result_of(outcome, program, training, fingerprint, mask, files.read_metrics(home.folder(training)))
    result |= {"run": run_of(final), "runs": runs}
    files.write_json(folder / "result.json", result)
    if training.mask:
        (folder / "checkpoint.h5").unlink(missing_ok=True)


def replay_points(
    home: Home, program: Program, training: Training, mask: Found | None, wanted: list[Point], quiet: bool
) -> None:
    """Weights that a finished training did not keep, or lost: it is trained again up to the last of them."""
    folder, words = home.folder(training), ", ".join(in_order(map(str, wanted)))
    lost = f"{training.slug}: its weights at {words} are not there"
    kept = (
        f"expected a point it kept ({', '.join(f'{step}it' for step in kept_steps(folder)) or 'none'}) or another seed"
    )
    losses = {line["epoch"]: line["train_loss"] for line in files.read_metrics(folder) if "train_loss" in line}
    last = max(losses, default=0)  # epochs that it trained: with recipe.stop_at perhaps not all
    between = {at.step(program.steps, program.recipe.epochs) for at in wanted if at != END}
    if max(between, default=0) >= program.recipe.epochs * program.steps:
        raise Refused(f"{training.slug}: {words} lies after its end ({program.recipe.epochs} epochs of {program.steps} "
                      "steps); expected an earlier point")  # fmt: skip
    steps = between | ({last * program.steps} if END in wanted else set())
    start = start_of(home, training, program.network, program.steps, mask)
    if not set(range(1 + start.step // program.steps, 1 + math.ceil(max(steps) / program.steps))) <= set(losses):
        raise Refused(f"{lost}, nor its losses up to there, to compare a second training with; {kept}")
    try:
        found = replay(program, start, f"{training.slug}, again up to {words}", steps, losses, quiet)
        final = program.final_weights()
        if END in wanted and Runs(home.pool).there(training.name) not in (None, run_of(final)):
            raise Other("other weights at its end")
    except Other as other:
        same = "on a GPU the same only with autotuned/ of its results, the same kind of GPU and driver"
        raise Refused(f"{lost}, and trained again it is another training ({other}; {same}); {kept}") from None
    for step in between:
        _keep(home, program, training, step, found[step])
    if END in wanted:
        _keep(home, program, training, END, final)


def start_of(home: Home, training: Training, network: Network, steps: int, mask: Found | None) -> Start:
    """`steps`: of an epoch."""
    begin = training.begin.step(steps, training.recipe.epochs)
    if begin >= training.recipe.epochs * steps:
        raise Refused(f"prune.rewind: {training.begin} lies after the end ({training.recipe.epochs * steps} steps)")
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


def _drop_later(folder: Path, step: int) -> None:
    """What an attempt that was given up had kept beyond it: on a GPU the next one goes elsewhere."""
    for later in kept_steps(folder):
        if later > step:
            snapshot_at(folder, later).unlink(missing_ok=True)
    (folder / "snapshots" / "final.h5").unlink(missing_ok=True)


def _keep(home: Home, program: Program, training: Training, at: int | Point, weights: Weights) -> None:
    """As the weights after `at` steps, or as the final ones."""
    network, folder = program.network, home.folder(training)
    final = isinstance(at, Point)
    attributes = {
        "training": training.name,
        "step": program.recipe.epochs * program.steps if final else at,
        "image_size": network.image_size,
        "channels": network.channels,
        "classes": network.classes,
        "width": training.model.width,
    }
    path = home.snapshot(training, END) if isinstance(at, Point) else snapshot_at(folder, at)
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
