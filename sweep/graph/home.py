"""The places of files: an experiment's own folder, and beside it the pool of trainings and masks that all share.

results/trainings/NAME/   snapshots/step-N.h5 and final.h5, metrics.jsonl, checkpoint.h5; at the end result.json
results/masks/NAME.h5
results/EXPERIMENT/       experiment.yaml, report/, wandb/
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from sweep import files
from sweep.errors import Refused
from sweep.experiment import BEGINNING, END, Experiment, Point
from sweep.experiment import file as experiment_file
from sweep.graph import packed
from sweep.graph.plan import Graph, graph_of
from sweep.graph.runs import Runs
from sweep.graph.training import Mask, Task, Training
from sweep.progress import console

AGAIN = "again"  # subfolder of a finished training in which it is trained again for missing weights


class Home:
    """The folder of one experiment, and the pool beside it."""

    def __init__(self, root: Path, experiment: Experiment) -> None:
        self.root = root
        self.experiment = experiment

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.experiment)

    @cached_property
    def pool(self) -> Path:
        """Return the results root, shared by all its experiments; for a record (`lottery record`), a temporary copy."""
        return packed.readable(self.root.parent)

    @property
    def report(self) -> Path:
        return self.root / "report"

    def training(self, task: str) -> Task:
        """Return the training with this slug or name."""
        return self.graph[task]

    def folder(self, training: Task) -> Path:
        return self.pool / "trainings" / training.name

    def folder_of(self, task: str) -> Path:
        return self.folder(self.training(task))

    def mask(self, mask: Mask) -> Path:
        return self.pool / "masks" / f"{mask.name}.h5"

    def snapshot(self, training: Task, at: Point) -> Path:
        """Return the path of a training's snapshot at a point; its result says how many steps an epoch has."""
        folder = self.folder(training)
        if at == END:
            return folder / "snapshots" / "final.h5"
        known = at.unit == "it" or at == BEGINNING
        return snapshot_at(folder, at.step(training.recipe, 0 if known else steps_per_epoch(folder)))

    @property
    def on_record(self) -> bool:
        """Whether the folder's experiment.yaml asks for the same trainings."""
        path = self.root / "experiment.yaml"
        if not path.is_file():
            return False
        return {one.name for one in graph_of(experiment_file.load(path))} == {one.name for one in self.graph}

    def folders(self) -> set[str]:
        """Return the names of all trainings in the pool, listed once instead of asked for thousands of times."""
        trainings = self.pool / "trainings"  # not by glob, for which a folder that may not be read is empty
        return {path.name for path in trainings.iterdir()} if trainings.is_dir() else set()

    def done(self, training: Task) -> bool:
        """Whether a training has a result, or was skipped."""
        return (self.folder(training) / "result.json").exists() or bool(self.skipped(training))

    def result(self, training: Task) -> dict[str, Any] | None:
        """Return the content of result.json, or None if the training is not done."""
        return files.read_json_if_there(self.folder(training) / "result.json", RESULT)

    def skipped(self, training: Task) -> str:
        """Return why a training was skipped (a layer is fully pruned, see `prune.collapse`), or ""."""
        folder = self.folder(training)  # an experiment with another prune.collapse may have trained it
        found = None if (folder / "result.json").exists() else files.read_json_if_there(folder / "skipped.json", REASON)
        if not found or self.experiment.prune.collapse != "skip" or Runs(self.pool).other(found.get("runs") or {}):
            return ""
        return str(found["reason"])

    def points_asked(self, training: Task) -> set[Point]:
        """Return the points of a training that any experiment of the pool needs; all of them are kept when it runs."""
        out = set(self.graph.points_of(training))
        for described in descriptions(self.pool):
            if described.parent == self.root:
                continue
            try:
                out |= set(graph_of(experiment_file.load(described)).points_of(training))
            except Refused as error:
                console.print(f"{error}; what it asks of {training.slug} is not kept")
        return out

    def reads(self, training: Task, exists: Callable[[Path], bool] = Path.exists) -> list[tuple[Training, Point]]:
        """Return the weights that a training needs now: its start and, if its mask is not made, the mask's source."""
        out = list(training.starts)
        mask = training.mask.as_made if training.mask and training.uses != training.starts else None
        while mask and not mask.at_start and not exists(self.mask(mask)):
            out.append((mask.of, mask.method.at))
            mask = mask.within
        return out

    def weights(self, training: Task, at: Point) -> Literal["there", "to come", "lost", "never"]:
        """Return the state of a training's weights at a point.

        `to come`: it is not done; `lost`: it is done and they are missing; `never`: recipe.stop_at ended it before or
        at this point.
        """
        folder = self.folder(training)
        if not (folder / "result.json").exists():
            return "to come"
        recipe = training.recipe
        if recipe.stop_at and at != END and (ended := self.last_epoch(training)) < recipe.epochs:
            steps = steps_per_epoch(folder)
            if at.step(recipe, steps) >= recipe.steps_before(ended, steps):
                return "never"
        return "there" if self.snapshot(training, at).exists() else "lost"

    def last_epoch(self, training: Task) -> int:
        """Return the last epoch of a finished training: the recipe's, or an earlier one with recipe.stop_at."""
        lines = files.read_metrics(self.folder(training)) if training.recipe.stop_at else []
        return lines[-1]["epoch"] if lines else training.recipe.epochs

    def starts(self, training: Task) -> list[Path]:
        """Return the snapshots that a task starts from; raise Refused if weights that it needs are missing."""
        for need, at in self.reads(training):
            if (state := self.weights(need, at)) == "never":
                raise Refused(f"{need.slug}: recipe.stop_at ended it before or at {at}; expected an earlier point")
            if state == "lost":
                said = f"{need.slug}: its weights at {at} are not there; lottery sweep trains it again up to there"
                raise Refused(said)
        return [self.snapshot(need, at) for need, at in training.starts]

    def waits_for(self, training: Task) -> list[Training]:
        """Return the trainings to be done before this one: unfinished, or finished with weights it needs missing."""
        lost = {need.name for need, at in self.reads(training) if self.weights(need, at) in ("to come", "lost")}
        return [need for need in training.needs if need.name in lost or not self.done(need)]

    def missing_points(self) -> dict[str, list[Point]]:
        """Return, by name of finished trainings, the points whose missing weights an unfinished training needs.

        A training that is done again for lost weights may itself need weights that are lost.
        """
        there = self.folders()
        exists, state = cache(Path.exists), cache(self.weights)  # ask the file system once, for all tickets
        out: dict[str, list[Point]] = {}
        for training in reversed(self.graph.trainings):  # parents come before their children
            if training.name in there and training.name not in out and self.done(training):
                continue
            if not any(need.name in there for need in training.needs):
                continue
            for need, at in self.reads(training, exists):
                if state(need, at) == "lost" and at not in out.get(need.name, ()):
                    out.setdefault(need.name, []).append(at)
        return out


RESULT: files.Shape = {  # keys of result.json that are read
    "test": {"top1": files.SHARE, "top5": files.SHARE, "loss": (int, float)}, "validation": {"top1?": files.SHARE},
    "devices": files.COUNT, "steps_per_epoch": files.COUNT, "seconds?": float, "hardware?": str,
    "trainings_per_gpu?": files.COUNT, "epochs?": float, "gpu_seconds?": float, "threshold?": float,
    "density?": files.SHARE, "kept?": int, "prunable?": files.COUNT, "instability?": float, "start_seconds?": float,
    "test_images?": int, "macs?": files.SHARE, "bytes?": files.COUNT,
    "cores?": files.COUNT, "date?": str, "commit?": str, "driver?": str, "tensorflow?": str,
    "version?": str, "run?": str, "runs?": {},
}  # fmt: skip
REASON: files.Shape = {"reason": str, "runs?": {}}  # shape of failure.json and skipped.json


def descriptions(pool: Path) -> list[Path]:
    """Return experiment.yaml of all experiments of a pool, also those that cannot be read.

    A glob would skip these, and the trainings they ask for would look unreferenced.
    """
    out = []
    for path in sorted(folder / "experiment.yaml" for folder in pool.iterdir()):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # reading it will raise
            pass
        out.append(path)
    return out


def snapshot_at(folder: Path, step: int) -> Path:
    return folder / "snapshots" / f"step-{step:08d}.h5"


def kept_steps(folder: Path) -> list[int]:
    """Return the steps at which the training in `folder` has kept its weights."""
    return sorted(int(path.stem.removeprefix("step-")) for path in (folder / "snapshots").glob("step-*.h5"))


def steps_per_epoch(folder: Path) -> int:
    """Return the steps of an epoch of `recipe.batch`, of the finished training in `folder`, or raise Refused."""
    result = files.read_json_if_there(folder / "result.json", RESULT)
    if result is None:
        raise Refused(f"{folder.name}: it is not done, so how many steps its epochs have is not known; lottery sweep "
                      "trains it")  # fmt: skip
    return int(result["steps_per_epoch"])


def epochs_of(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a training's epochs so far; raise Refused if it is done and some are lost."""
    found = files.read_metrics(folder)
    return metrics_of(folder) if found and (folder / "result.json").exists() else found


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of every epoch of a finished training; raise Refused if some are lost."""
    found, result = files.read_metrics(folder), files.read_json(folder / "result.json", RESULT)
    # a training that began inside an epoch has a line for its rest; earlier versions did not record how many there are
    epochs = math.ceil(result["epochs"]) if result.get("epochs") is not None else len(found)
    if len(found) != epochs:
        raise Refused(f"{folder / 'metrics.jsonl'}: {len(found)} of {epochs} epochs; bring it back from a copy, or "
                      "delete the folder to train it again")  # fmt: skip
    return found


def open_home(experiment: Experiment, root: Path) -> Home:
    """Return the experiment's folder, created or updated with the experiment as it is; a record is unpacked there."""
    refuse_old(root)
    described, home = root / "experiment.yaml", Home(root, experiment)
    try:
        packed.unpack_here(root.parent)
        dropped: set[Task] = set()
        if described.exists():
            before = Home(root, _described(described))
            if before.experiment == experiment:
                return home
            ended, now, then = {*filter(before.done, before.graph)}, experiment.data, before.experiment.data
            if ended and now.name == then.name and now.listing != then.listing:
                raise Refused(
                    f"data.path: other images than those {described} was planned with (listing {now.listing}, before "
                    f"{then.listing}); put them back, or give the experiment another name"
                )
            dropped = ended - {*home.graph}
        files.write_text(described, experiment_file.record(experiment))
        if dropped:
            console.print(f"{root}: it no longer asks for {len(dropped)} of its finished trainings; they stay where "
                          "they are, and lottery tidy lists what no experiment asks for")  # fmt: skip
    except OSError as error:
        raise Refused(f"{error.filename or root}: {error.strerror}; expected a folder that can be written") from None
    return home


def _described(path: Path) -> Experiment:
    try:
        return experiment_file.load(path)
    except Refused as error:
        raise Refused(f"{error}; what an earlier version took may be deleted, and is written anew") from None


def refuse_old(root: Path) -> None:
    """Raise Refused for results of version 0.1, whose trainings were in the experiment's own folder."""
    if (root / "dense").is_dir() or (root / "cells").is_dir():
        raise Refused(f"{root}: results of version 0.1, which this version cannot read; look at them with 0.1.0, or "
                      "move the folder away and run the experiment again")  # fmt: skip
