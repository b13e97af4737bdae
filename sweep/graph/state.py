"""The state of every training of an experiment, from its files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sweep import files
from sweep.experiment import END, Point
from sweep.experiment.point import in_order
from sweep.graph import claim
from sweep.graph.home import AGAIN, REASON, Home, steps_per_epoch
from sweep.graph.training import Task
from sweep.progress import duration


@dataclass(frozen=True)
class State:
    """The state of one training.

    `waiting`, `begun` (not finished and not known to run), `running`, `failed`, `done` or `skipped` (a layer is fully
    pruned); on SLURM also `lost` (submitted, not finished, and no longer in the queue).
    """

    task: str
    state: str
    epoch: int  # number of completed epochs of the schedule
    note: str = ""  # why it failed, or where it runs
    top1: float | None = None  # test accuracy if it is done
    starts: int = 0
    seconds_left: float | None = None  # of a begun training, at its speed so far


def state_of(home: Home, training: Task, lacking: Sequence[Point] = ()) -> State:
    """Return the state of a training. `lacking`: points of a finished one whose weights must be trained again."""
    task, epochs, folder = training.slug, training.recipe.epochs, home.folder(training)
    place = folder / AGAIN if lacking else folder
    begun = claim.read(place)
    starts = begun.starts if begun else 0
    if not lacking and (result := home.result(training)):
        return State(task, "done", home.last_epoch(training), top1=result["test"]["top1"], starts=starts)
    if reason := home.skipped(training):
        return State(task, "skipped", 0, reason)
    lines = files.read_metrics(place)
    epoch = lines[-1]["epoch"] if lines else 0
    if failure := files.read_json_if_there(folder / "failure.json", REASON):
        return State(task, "failed", epoch, failure["reason"], starts=starts)
    known = lines and not (training.recipe.stages or training.recipe.first_size)  # else later epochs take longer
    left = (epochs - epoch) * median(map(_seconds, lines)) if known else None
    if begun and claim.answers(place, begun):
        return State(task, "running", epoch, f"process {begun.pid} on {begun.host}", None, starts, left)
    if begun or (place / "checkpoint.h5").exists():
        return State(task, "begun", epoch, f"on {begun.host}" if begun else "", None, starts, left)
    points = ", ".join(in_order(map(str, lacking)))
    return State(task, "waiting", epoch, f"done, but its weights at {points} are not there" if lacking else "")


def states(home: Home, lacking: Mapping[str, Sequence[Point]] | None = None) -> list[State]:
    """Return the state of every training, in the order of the plan; `lacking`: points with missing weights, by name."""
    there, lacking = home.folders(), lacking or {}
    return [
        state_of(home, one, lacking.get(one.name, ())) if one.name in there else State(one.slug, "waiting", 0)
        for one in home.graph
    ]


def missing(home: Home) -> list[Task]:
    """Return the trainings that are not done or lack weights that others need, in the order of the plan."""
    there, lacking = home.folders(), home.missing_points()
    return [
        training
        for training in home.graph
        if training.name not in there or not home.done(training) or training.name in lacking
    ]


def epochs_left(home: Home, training: Task, lacking: Sequence[Point] = ()) -> float:
    """Return the epochs a missing training still needs; with `lacking`, up to the last of these points."""
    folder, until = home.folder(training), float(training.recipe.epochs)
    begins = until - training.epochs
    if lacking:
        steps, ends = steps_per_epoch(folder), home.last_epoch(training)
        recipe, ended = training.recipe, Point(ends, "ep")
        epoch, rest = recipe.epoch_at(max((ended if at == END else at).step(recipe, steps) for at in lacking), steps)
        until, folder = epoch + bool(rest), folder / AGAIN
    lines = files.read_metrics(folder) if (folder / "checkpoint.h5").exists() else []
    return max(0.0, until - (lines[-1]["epoch"] if lines else begins))


def _seconds(line: dict[str, Any]) -> float:
    return float(line["seconds"] + line["evaluation_seconds"])


def predicted_seconds(home: Home, devices: int = 0) -> dict[str, float] | None:
    """Return the predicted time of each ticket and control, on as many devices as the dense run; None if unknown.

    It goes by the median of a dense run's epochs, each ÷ the trainings on its GPU; if images grow with the epochs, by
    that of the same epoch. With `devices`: as jobs of their own on so many devices, scaled and with start-up time,
    which is what dense runs took before their first step.
    """
    spent: dict[int, list[float]] = {}
    for training in home.graph.dense:
        for line in files.read_metrics(home.folder(training)):
            spent.setdefault(line["epoch"], []).append(_seconds(line) / line.get("trainings_on_gpu", 1))
    if not spent:
        return None
    usual, scale, start = median(seconds for each in spent.values() for seconds in each), 1.0, 0.0
    if devices:
        scale = max(1.0, _dense_devices(home) / devices)
        start = median([one["start_seconds"] for one in _dense_results(home) if one.get("start_seconds")] or [0.0])

    def seconds(one: Task) -> float:
        recipe = one.recipe
        if not (recipe.stages or recipe.first_size):
            return usual * one.epochs
        begin = recipe.epochs - one.epochs
        shares = ((epoch + 1, min(1.0, epoch + 1 - begin)) for epoch in range(int(begin), recipe.epochs))
        return sum(share * median(spent.get(epoch, [usual])) for epoch, share in shares)

    return {one.slug: start + scale * seconds(one) for one in home.graph if not one.dense}


def _dense_results(home: Home) -> list[dict[str, Any]]:
    return [*filter(None, map(home.result, home.graph.dense))]


def _dense_devices(home: Home) -> int:
    return max((result["devices"] for result in _dense_results(home)), default=1)


@dataclass(frozen=True)
class Forecast:
    """Device-seconds of finished tickets and controls: taken, and predicted from the dense run's epochs."""

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
    """Return predicted and real times of finished trainings on as many devices as the dense run, or None."""
    predicted, there, devices = predicted_seconds(home) or {}, home.folders(), _dense_devices(home)
    pairs = []
    for training in home.graph:
        if training.slug in predicted and training.name in there:
            result = home.result(training)
            if result and result["devices"] == devices and result.get("seconds"):
                pairs.append((device_seconds(result) / devices, predicted[training.slug]))
    return Forecast(len(pairs), sum(a for a, _ in pairs), sum(b for _, b in pairs)) if pairs else None


@dataclass(frozen=True)
class Cost:
    """Device-hours of an experiment's trainings, and their cost at a price per hour."""

    spent: float
    to_come: float | None  # None before a dense run was measured
    price: float

    def __str__(self) -> str:
        said = f"{self.spent:.3g} device-hours{self._money(self.spent)} spent"
        if self.to_come is None:
            return said
        return f"{said}, {self.to_come:.3g}{self._money(self.to_come)} remaining"

    def _money(self, hours: float) -> str:
        return f" ({hours * self.price:,.2f})" if self.price else ""


def device_seconds(result: dict[str, Any]) -> float:
    """Return the device-seconds of a training; on a shared GPU, its measured share or else an equal one."""
    share = result["devices"] / result.get("trainings_per_gpu", 1)
    return float(result.get("gpu_seconds", result.get("seconds", 0.0) * share))


def cost_of(home: Home) -> Cost:
    """Return what finished trainings took and what missing ones are predicted to take, in device-hours.

    An epoch counts as long as those of finished tickets and controls or, if there are none, of the dense runs.
    """
    left, there, lacking = 0.0, home.folders(), home.missing_points()
    hours, epochs = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}  # of finished trainings: dense runs, others
    for training in home.graph:
        if training.name not in there:
            left += training.epochs
            continue
        if result := home.result(training):
            hours[training.dense] += device_seconds(result) / 3600
            epochs[training.dense] += training.epochs if result.get("seconds") else 0.0
        if training.name in lacking or not (result or home.skipped(training)):
            left += epochs_left(home, training, lacking.get(training.name, ()))
    like = not epochs[False]
    to_come = hours[like] / epochs[like] * left if epochs[like] else None
    return Cost(hours[True] + hours[False], to_come, home.experiment.cluster.price_per_gpu_hour)
