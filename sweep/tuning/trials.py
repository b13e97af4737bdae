"""Trials of a search and what became of them, as files.

A folder `tune-NAME-HASH` holds the experiment that is tuned, the search and, where trials are chosen by what came
before, a file per trial that was chosen. A trial itself is an ordinary dense run in the pool: what was tuned can be
swept on from there, and a trial that another process trains is left to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import yaml

from sweep import files, lock
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.experiment import file as experiment_file
from sweep.graph import claim
from sweep.graph.home import REASON, Home
from sweep.graph.plan import dense_of
from sweep.graph.training import Training
from sweep.tuning import search
from sweep.tuning.search import Search, Trial


@dataclass(frozen=True)
class Outcome:
    """What became of one trial."""

    trial: Trial
    folder: Path
    state: str  # waiting, begun, failed, done
    value: float | None  # of the search's metric, on validation images
    note: str = ""


@dataclass(frozen=True)
class Tuning:
    """One search for one experiment."""

    root: Path
    experiment: Experiment
    search: Search

    @cached_property
    def planned(self) -> list[Trial]:
        """The trials that are known beforehand."""
        return search.trials(self.search, self.experiment)

    def known(self, number: int) -> Trial | None:
        """Return a trial by its number, from 0; None for one that is not chosen yet."""
        if number < len(self.planned):
            return self.planned[number]
        found = files.read_json_if_there(self._chosen / f"{number}.json", {"trial": list})
        return tuple(found["trial"]) if found else None

    def choose(self, number: int) -> Trial:
        """Return a trial by its number, chosen now if no process has chosen it yet."""
        if known := self.known(number):
            return known
        with lock.alone(self.root / ".choosing.lock"):
            if known := self.known(number):
                return known
            before = {one: self._metric(self.outcome(one)) for i in range(self.search.count) if (one := self.known(i))}
            trial = search.chosen(self.search, self.experiment, before)
            files.write_json(self._chosen / f"{number}.json", {"trial": trial})
            return trial

    def home(self, trial: Trial) -> Home:
        """The trial as an experiment of its own, named after the search and the training."""
        experiment = experiment_file.load(self.root / "experiment.yaml", trial)
        name = f"{self.root.name}-{training_of(experiment).digest[:8]}"
        return Home(self.root.parent / name, replace(experiment, name=name))

    def forgive(self, trial: Trial) -> None:
        """Whoever submits it again gives it a new chance."""
        claim.forgive(self._dense(trial))

    def outcomes(self) -> list[Outcome]:
        """Return what became of every trial that is known, the best first; those of an earlier version too, which kept
        the trials that a server chose in the same folder."""
        paths = sorted(self._chosen.glob("*.json"))
        known = [*self.planned, *(tuple(files.read_json(path, {"trial": list})["trial"]) for path in paths)]
        sign = 1 if self.search.falling else -1
        found = [self.outcome(trial) for trial in dict.fromkeys(known)]
        return sorted(found, key=lambda one: (one.value is None, sign * (one.value or 0.0)))

    def outcome(self, trial: Trial) -> Outcome:
        folder, dense = self.home(trial).root, self._dense(trial)
        metric = self.search.metric.removeprefix("validation_")
        if (dense / "result.json").exists():
            found = files.read_json(dense / "result.json", {"validation": {metric: float}})["validation"]
            return Outcome(trial, folder, "done", float(found[metric]))
        if failure := files.read_json_if_there(dense / "failure.json", REASON):
            return Outcome(trial, folder, "failed", None, failure["reason"])
        return Outcome(trial, folder, "begun" if (dense / "checkpoint.h5").exists() else "waiting", None)

    def _metric(self, one: Outcome) -> float | None:
        """Return what the next choice takes for the metric of a trial: that it diverged is an answer, the worst."""
        return (math.inf if self.search.falling else 0.0) if one.state == "failed" else one.value

    @property
    def _chosen(self) -> Path:
        return self.root / "begun"

    def _dense(self, trial: Trial) -> Path:
        home = self.home(trial)
        return home.folder(training_of(home.experiment))


def training_of(experiment: Experiment) -> Training:
    """A trial trains the dense network once, with the first seed."""
    return dense_of(experiment, experiment.seeds[0])


def describe(experiment: Experiment, wanted: Search, results: Path) -> Tuning:
    """The search as it would be; nothing is written."""
    if not experiment.data.validation:
        raise Refused("data.validation: received 0, expected images to choose by; the test images stay out of it")
    return Tuning(results / f"tune-{experiment.name}-{wanted.hash(experiment)}", experiment, wanted)


def create(tuning: Tuning) -> Tuning:
    """Make its folder."""
    # written anew each time: what is no part of the hash, such as data.path, may be another now
    files.write_text(tuning.root / "experiment.yaml", experiment_file.record(tuning.experiment))
    files.write_text(tuning.root / "search.yaml", yaml.safe_dump(tuning.search.content, sort_keys=False))
    return tuning


def reopen(root: Path) -> Tuning:
    return Tuning(root, experiment_file.load(root / "experiment.yaml"), search.read(root / "search.yaml"))
