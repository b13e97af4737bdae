"""Where every training of an experiment stands, from its files alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sweep import files
from sweep.experiment import Point
from sweep.experiment.point import in_order
from sweep.graph import claim
from sweep.graph.home import AGAIN, REASON, RESULT, Home, steps_per_epoch
from sweep.graph.training import Task
from sweep.progress import duration


@dataclass(frozen=True)
class State:
    """`waiting`, `begun` (not finished, and not known to run), `running`, `failed`, `done`, or `skipped`: a layer
    is fully pruned, so it is not trained; on SLURM also `lost`: submitted, not finished, and no longer there."""

    task: str
    state: str
    epoch: int  # epochs of the schedule that are complete
    note: str = ""  # of a failure: its reason; of a running task: where
    top1: float | None = None  # of a finished training, on the test split
    starts: int = 0
    seconds_left: float | None = None  # of a begun training, at the speed it had


def state_of(home: Home, training: Task, lacking: Sequence[Point] = ()) -> State:
    """`lacking`: points of a finished training whose weights are wanted and not there, so that it is trained again."""
    task, epochs, folder = training.slug, training.recipe.epochs, home.folder(training)
    place = folder / AGAIN if lacking else folder
    begun = claim.read(place)
    starts = begun.starts if begun else 0
    if not lacking and (result := files.read_json_if_there(folder / "result.json", RESULT)):
        return State(task, "done", home.last_epoch(training), top1=result["test"]["top1"], starts=starts)
    if reason := home.skipped(training):
        return State(task, "skipped", 0, reason)
    lines = files.read_metrics(place)
    epoch = lines[-1]["epoch"] if lines else 0
    if failure := files.read_json_if_there(folder / "failure.json", REASON):
        return State(task, "failed", epoch, failure["reason"], starts=starts)
    left = (epochs - epoch) * median(map(_seconds, lines)) if lines else None
    if begun and claim.answers(place, begun):
        return State(task, "running", epoch, f"process {begun.pid} on {begun.host}", None, starts, left)
    if begun or (place / "checkpoint.h5").exists():
        return State(task, "begun", epoch, f"on {begun.host}" if begun else "", None, starts, left)
    points = ", ".join(in_order(map(str, lacking)))
    return State(task, "waiting", epoch, f"done, but its weights at {points} are not there" if lacking else "")


def states(home: Home, lacking: Mapping[str, Sequence[Point]] | None = None) -> list[State]:
    """Return the state of every training, in the order of the plan; `lacking`: points that are missing, by name."""
    there, lacking = folders(home), lacking or {}
    return [
        state_of(home, one, lacking.get(one.name, ())) if one.name in there else State(one.slug, "waiting", 0)
        for one in home.graph
    ]


def missing(home: Home) -> list[Task]:
    """What is not done, and what is done but did not keep a point that others start from; in the order of the plan."""
    there, lacking = folders(home), home.missing_points()
    return [
        training
        for training in home.graph
        if training.name not in there or not home.done(training) or training.name in lacking
    ]


def epochs_left(home: Home, training: Task, lacking: Sequence[Point] = ()) -> float:
    """Return the epochs a missing training still needs. It continues from its checkpoint; a finished one that lacks
    points is trained again up to the last of them."""
    folder, until = home.folder(training), float(training.recipe.epochs)
    begins = until - training.epochs
    if lacking:
        steps, end = steps_per_epoch(folder), home.last_epoch(training)
        until, folder = math.ceil(max(at.step(steps, end) for at in lacking) / steps), folder / AGAIN
    lines = files.read_metrics(folder) if (folder / "checkpoint.h5").exists() else []
    return max(0.0, until - (lines[-1]["epoch"] if lines else begins))


def folders(home: Home) -> set[str]:
    """One look at the pool, instead of one for each of thousands of trainings."""
    pool = home.pool / "trainings"
    return {path.name for path in pool.iterdir()} if pool.is_dir() else set()


def epoch_seconds(home: Home) -> float | None:
    """Median time of an epoch of the dense runs, evaluation included; of n trainings on a GPU each takes 1/n of it.

    None before it was measured.
    """
    lines = [line for training in home.graph.dense for line in files.read_metrics(home.folder(training))]
    return median(_seconds(line) / line.get("trainings_on_gpu", 1) for line in lines) if lines else None


def _seconds(line: dict[str, Any]) -> float:
    return float(line["seconds"] + line["evaluation_seconds"])


def predicted_seconds(home: Home, devices: int = 0) -> dict[str, float] | None:
    """Return the time of each ticket and control, predicted from the dense run's epochs on as many devices as that had.

    With `devices`, of jobs of their own on so many devices: scaled, and with the time that a start takes. None before
    an epoch was measured.
    """
    each, start = epoch_seconds(home), 0.0
    if each is None:
        return None
    if devices:
        each, start = each * max(1.0, _dense_devices(home) / devices), start_seconds(home)
    return {one.slug: start + each * one.epochs for one in home.graph if not one.dense}


def start_seconds(home: Home) -> float:
    """Return the median time that the finished dense runs took before their first step; 0 where none says it."""
    return median([each["start_seconds"] for each in _dense_results(home) if each.get("start_seconds")] or [0.0])


def _dense_results(home: Home) -> list[dict[str, Any]]:
    found = (files.read_json_if_there(home.folder(one) / "result.json", RESULT) for one in home.graph.dense)
    return [result for result in found if result]


def _dense_devices(home: Home) -> int:
    return max((result["devices"] for result in _dense_results(home)), default=1)


@dataclass(frozen=True)
class Forecast:
    """What finished tickets and controls took, and what the dense run's epochs had predicted for them."""

    trainings: int
    took: float
    predicted: float

    @property
    def ratio(self) -> float:
        return self.took / self.predicted if self.predicted else 1.0

    def __str__(self) -> str:
        off = f"{abs(self.ratio - 1):.0%} {'more' if self.ratio > 1 else 'less'}"
        each, said = duration(self.took / self.trainings), duration(self.predicted / self.trainings)
        took = f"{self.trainings} finished tickets and controls took {each} of a device each"
        return f"{took}, {off} than the {said} predicted"


def forecast(home: Home) -> Forecast | None:
    """Return predicted and real times of finished trainings on as many devices as the dense run; None without any."""
    predicted, there, devices = predicted_seconds(home) or {}, folders(home), _dense_devices(home)
    pairs = []
    for training in home.graph:
        if training.slug in predicted and training.name in there:
            result = files.read_json_if_there(home.folder(training) / "result.json", RESULT)
            if result and result["devices"] == devices and result.get("seconds"):
                pairs.append((device_seconds(result) / devices, predicted[training.slug]))
    return Forecast(len(pairs), sum(a for a, _ in pairs), sum(b for _, b in pairs)) if pairs else None


@dataclass(frozen=True)
class Cost:
    """Device-hours of an experiment's trainings, and at a price per hour their cost."""

    spent: float
    to_come: float | None  # None before the dense run was measured
    price: float

    def __str__(self) -> str:
        said = f"{self.spent:.3g} device-hours{self._money(self.spent)} spent"
        if self.to_come is None:
            return said
        return f"{said}, {self.to_come:.3g}{self._money(self.to_come)} remaining"

    def _money(self, hours: float) -> str:
        return f" ({hours * self.price:,.2f})" if self.price else ""


def device_seconds(result: dict[str, Any]) -> float:
    """Return the device-seconds of a training; of a shared GPU its share, or an equal part if that was not measured."""
    share = result["devices"] / result.get("trainings_per_gpu", 1)
    return float(result.get("gpu_seconds", result.get("seconds", 0.0) * share))


@dataclass
class _Tally:
    """Device-hours of finished trainings, and the epochs that took them."""

    hours: float = 0.0
    epochs: float = 0.0


def cost_of(home: Home) -> Cost:
    """What the finished trainings took, and what the missing ones are predicted to take: an epoch as much as those of
    the finished tickets and controls, or before there are any as those of the dense runs."""
    left, there, lacking = 0.0, folders(home), home.missing_points()
    dense, others = _Tally(), _Tally()
    for training in home.graph:
        path = home.folder(training) / "result.json"
        result = files.read_json_if_there(path, RESULT) if training.name in there else None
        if result:
            tally = dense if training.dense else others
            tally.hours += device_seconds(result) / 3600
            tally.epochs += training.epochs if result.get("seconds") else 0.0
            left += epochs_left(home, training, lacking[training.name]) if training.name in lacking else 0.0
        elif training.name not in there:
            left += training.epochs
        elif not home.skipped(training):
            left += epochs_left(home, training)
    like = others if others.epochs else dense
    to_come = like.hours / like.epochs * left if like.epochs else None
    return Cost(dense.hours + others.hours, to_come, home.experiment.cluster.price_per_gpu_hour)
