"""The command `lottery masks`: makes the masks of an experiment, shows what each keeps, compares them."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, Override, Results, print_json, read_home
from lottery.cli.say import failed
from slurm import arrays
from sweep import files, progress
from sweep.errors import Refused
from sweep.experiment import END
from sweep.graph.home import RESULT, Home
from sweep.graph.mask_file import Found
from sweep.graph.training import Mask, Task
from sweep.progress import console, duration
from sweep.pruning.masks import kernel_sizes, remaining
from sweep.report.overlaps import found_in, made, pairs, title
from sweep.work.worker import Failure, Worker

LEAST = 3  # number of kernels shown


def masks(
    experiment: ExperimentName,
    *overrides: Override,
    compare: Annotated[
        bool, Parameter(help="Compare masks of one density: weights shared, and expected by chance")
    ] = False,
    json_: Json = False,
    warm_up: Annotated[bool, Parameter(help="Then compile the tickets' program on the GPU")] = False,
    results: Results = RESULTS,
) -> int:
    """Make the masks that finished trainings allow, and show the kernels that keep the least of their weights.

    In a SLURM job, waiting tickets also get their predicted time limit.
    Example: lottery masks cifar10_resnet20 --compare
    """
    home = read_home(experiment, overrides, results)
    if compare:
        _compare(home, json_)
        return 0
    if json_:
        print_json([_counted(mask, found_in(home, mask)) for mask in made(home)])
        return 0
    failures, lacking = list[Failure](), home.missing_points()
    for training in home.graph.sources:
        if not home.done(training):  # its failure.json says why
            failures.append(Failure(training.slug, "is not done, so its masks cannot be made"))
            continue
        try:
            summary(home, training)
        except Refused as error:
            failures.append(Failure(training.slug, str(error), refused=True))
            continue
        if END in lacking.get(training.name, ()):
            said = "its weights at end are not there for some of its masks; lottery sweep trains it again"
            failures.append(Failure(training.slug, said))
    some = len(failures) < len(home.graph.sources)
    worker = Worker(home)
    worker.skip_collapsed()
    if warm_up and some:
        _warm_up(worker)
    if "SLURM_JOB_ID" in os.environ and some:
        limit = arrays.limit_times(home)
        console.print(f"time limit of a training: {limit or 'as submitted'}")
        failed(failures)
        return 0  # so that the tickets of seeds with masks can start
    return failed(failures)


def summary(home: Home, dense: Task, make: bool = True) -> None:
    """Print the accuracy of a dense run and what each of its masks keeps; missing masks are made if `make`."""
    result = files.read_json(home.folder(dense) / "result.json", RESULT)
    took = duration(result.get("seconds", 0.0))
    console.print(f"dense run, seed {dense.origin}: test accuracy {result['test']['top1']:.2%}, {took}", markup=False)
    for mask in made(home):
        if mask.of.origin == dense.origin and (make or home.mask(mask.as_made).exists()):
            console.print(f"  {title(mask, seed=False)}: {_said(found_in(home, mask))}")


def _counted(mask: Mask, found: Found) -> dict[str, Any]:
    return {
        "mask": mask.name, "seed": mask.of.origin, "method": str(mask.method), mask.level.kind: mask.level.value,
        "round": mask.round, "density": found.density, "kept": int(found.mask.sum()), "prunable": found.mask.size,
        "threshold": found.threshold, "kernels": remaining(found.mask, found.network),
    }  # fmt: skip


def _said(found: Found) -> str:
    how = f"threshold {found.threshold:.4g}, " if found.threshold is not None else ""
    line = f"{how}{found.mask.sum()} of {found.mask.size} prunable weights remain"
    left, sizes = remaining(found.mask, found.network), kernel_sizes(found.network)
    shares = sorted((count / size, name, count, size) for (name, count), size in zip(left.items(), sizes, strict=True))
    least = ", ".join(f"{name} {count} of {size}" for _, name, count, size in shares[:LEAST])
    empty = sum(count == 0 for _, _, count, _ in shares)
    warning = f"; WARNING: {empty} layer{'s' if empty > 1 else ''} fully pruned" if empty else ""
    return f"{line}{warning}; least: {least}"


def _compare(home: Home, as_json: bool) -> None:
    """Show pairs of masks of one density that differ in seed, method, round or point; if there are none, controls."""
    masks = made(home)
    others = dict.fromkeys(mask for one in home.graph if (mask := one.mask) and mask.as_made in masks)
    found = pairs(home, masks) or pairs(home, list(others))
    if as_json:
        return print_json(
            [{"one": pair.one, "other": pair.other, "density": pair.density, **asdict(pair.overlap)} for pair in found]
        )
    if not found:
        raise Refused(
            f"{home.root}: no two masks of one density yet; expected several seeds, methods, points or controls"
        )
    table = Table("mask", "and", "remaining", "shared", "chance, counts per kernel", "chance")
    for pair in found:
        shares = (pair.density, pair.overlap.shared, pair.overlap.chance_in_kernels, pair.overlap.chance)
        table.add_row(pair.one, pair.other, *(f"{share:.1%}" for share in shares))
    progress.show(table)


def _warm_up(worker: Worker) -> None:
    """Compile the tickets' program; errors are only printed, because each ticket can compile it itself."""
    began = time.monotonic()
    try:
        done = worker.warm_up()
    except Exception as error:
        console.print(f"not compiled ahead, every ticket does it for itself: {type(error).__name__}: {error}")
        return
    took = duration(time.monotonic() - began)
    console.print(f"compiled ahead in {took}" if done else "nothing to compile ahead: there is no GPU here")
