"""Does one task of an experiment after another in one process, on one compiled program.

A task is a word: `dense-seed0`, `masks-seed0`, or the slug of a cell. So a task can be handed to a worker
process, an array element or a person's command line alike, as data.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from sweep import claim, store
from sweep.compiled import compile_all, keep_compiled
from sweep.errors import Diverged, Interrupted, Refused, Stuck
from sweep.experiment import Experiment
from sweep.hardware import gpu_name, hardware
from sweep.plan import Cell, cells
from sweep.progress import console
from sweep.store import Store
from sweep.tracking import track_weights, tracked

if TYPE_CHECKING:  # TensorFlow is loaded only when something is trained
    from sweep.program import Program


@dataclass(frozen=True)
class Stage:
    """Tasks that do not depend on each other. Stages are done in order."""

    name: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """A task that did not succeed. `refused`: its input cannot be used, and trying again will not help."""

    task: str
    reason: str
    refused: bool = False


def missing(home: Store) -> list[Stage]:
    """Everything that is not done yet, in the order of dependence."""
    seeds = home.experiment.seeds
    stages = [
        Stage("dense", tuple(dense_task(s) for s in seeds if not (home.dense(s) / "result.json").exists())),
        Stage("masks", tuple(f"masks-seed{s}" for s in seeds if not home.masks(s).exists())),
        Stage(
            "cells", tuple(c.slug for c in cells(home.experiment) if not (home.cell(c.slug) / "result.json").exists())
        ),
    ]
    return [stage for stage in stages if stage.tasks]


def without_broken(stage: Stage, failures: list[Failure]) -> Stage:
    """The stage without the tasks that need what failed: those of the same seed."""
    broken = {seed_of(failure.task) for failure in failures}
    return Stage(stage.name, tuple(task for task in stage.tasks if seed_of(task) not in broken))


def seed_of(task: str) -> int:
    """Every task ends in the seed it belongs to."""
    return int(task.rpartition("seed")[2])


def dense_task(seed: int) -> str:
    return f"dense-seed{seed}"


def find_cell(experiment: Experiment, slug: str) -> Cell:
    from sweep.experiment_file import suggestion

    by_slug = {cell.slug: cell for cell in cells(experiment)}
    if slug not in by_slug:
        raise Refused(f"no cell {slug!r} in {experiment.name}{suggestion(slug, by_slug)}")
    return by_slug[slug]


class Worker:
    """Performs tasks. The program is compiled at the first task that trains and serves all later ones."""

    def __init__(
        self, home: Store, devices: int = 0, threads: int = 0, quiet: bool = False, restarts: int | None = None
    ) -> None:
        self.home, self.devices, self.threads, self.quiet = home, devices, threads, quiet
        self.restarts = restarts  # of a task from the same point before it is given up; None: a person decides

    @cached_property
    def program(self) -> Program:
        keep_compiled(self.home.root / "compiled")
        from sweep.data import open_dataset
        from sweep.devices import prepare
        from sweep.program import Program

        dataset = open_dataset(self.home.experiment.data)
        program = Program(self.home.experiment, dataset, prepare(self.devices, self.threads))
        if not self.quiet:
            console.print(str(program))
        return program

    def warm_up(self) -> bool:
        """Compile ahead for others, where there is a GPU to compile for."""
        if not gpu_name():
            return False
        compile_all(self.program)
        return True

    def perform(self, task: str) -> None:
        """Do the task, unless it is done."""
        kind, _, rest = task.partition("-seed")
        if kind == "masks":
            from sweep.mask_file import make_masks

            make_masks(self.home, int(rest))
            return
        folder = folder_of(self.home, task)
        if (folder / "result.json").exists():
            return
        # before anything can go wrong, so that a start that dies while compiling counts too
        still_mine = partial(claim.check, folder, claim.take(folder, self.restarts))
        (folder / "failure.json").unlink(missing_ok=True)
        from sweep.training import Watch

        program, cell = self.program, None if kind == "dense" else find_cell(self.home.experiment, task)
        with tracked(self.home, task, folder, cell, hardware()) as tracker:
            watch = Watch(still_mine, tracker.epoch)
            if cell:
                from sweep.ticket import run_cell

                run_cell(self.home, program, cell, self.quiet, watch)
            else:
                from sweep.dense import run_dense

                run_dense(self.home, program, int(rest), self.quiet, watch)
                track_weights(self.home, int(rest), tracker)

    def attempt(self, task: str) -> Failure | None:
        """Do the task; what went wrong is recorded beside its results and returned, so that others can go on."""
        try:
            self.perform(task)
        except Interrupted:
            raise
        except (Refused, Diverged, Stuck) as error:
            return record_failure(self.home, task, str(error), refused=isinstance(error, Refused))
        except Exception as error:  # any fault of one cell, out of memory too, must not end the others
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return record_failure(self.home, task, reason, traceback.format_exc())
        (folder_of(self.home, task) / "failure.json").unlink(missing_ok=True)
        return None


def record_failure(home: Store, task: str, reason: str, trace: str = "", refused: bool = False) -> Failure:
    store.write_json(folder_of(home, task) / "failure.json", {"task": task, "reason": reason, "traceback": trace})
    return Failure(task, reason, refused)


def folder_of(home: Store, task: str) -> Path:
    """Where a task leaves its metrics and its result."""
    kind, _, rest = task.partition("-seed")
    return home.dense(int(rest)) if kind in ("dense", "masks") else home.cell(task)
