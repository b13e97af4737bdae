"""The trials of a search and their outcomes, as files.

A folder `tune-NAME-HASH` holds the experiment that is tuned, the search and, for `bayes`, a file per chosen trial. A
trial itself is an ordinary dense run in the pool: sweeps can start from it, and two processes never train it at once.
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
from sweep.graph.home import REASON, Home
from sweep.graph.plan import dense_of
from sweep.graph.training import Training
from sweep.tuning import search
from sweep.tuning.search import Search, Trial


@dataclass(frozen=True)
class Outcome:
    """The outcome of one trial."""

    trial: Trial
    folder: Path
    state: str  # waiting, begun, failed, done
    value: float | None  # the search's metric on the validation images
    note: str = ""


@dataclass(frozen=True)
class Tuning:
    """One search for one experiment."""

    root: Path
    experiment: Experiment
    search: Search

    @cached_property
    def planned(self) -> list[Trial]:
        """Return the trials that are known in advance."""
        return search.trials(self.search, self.experiment)

    def known(self, number: int) -> Trial | None:
        """Return a trial by its number, from 0; None if it is not chosen yet."""
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
        """Return the trial as an experiment of its own, named after the search and the training."""
        experiment = experiment_file.load(self.root / "experiment.yaml", trial)
        name = f"{self.root.name}-{training_of(experiment).digest[:8]}"
        return Home(self.root.parent / name, replace(experiment, name=name))

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of all known trials, the best first."""
        paths = sorted(self._chosen.glob("*.json"))
        known = [*self.planned, *(tuple(files.read_json(path, {"trial": list})["trial"]) for path in paths)]
        sign = 1 if self.search.falling else -1
        found = [self.outcome(trial) for trial in dict.fromkeys(known)]
        return sorted(found, key=lambda one: (one.value is None, sign * (one.value or 0.0)))

    def outcome(self, trial: Trial) -> Outcome:
        folder, dense = self.home(trial).root, self.dense(trial)
        metric = self.search.metric.removeprefix("validation_")
        if (dense / "result.json").exists():
            found = files.read_json(dense / "result.json", {"validation": {metric: float}})["validation"]
            return Outcome(trial, folder, "done", float(found[metric]))
        if failure := files.read_json_if_there(dense / "failure.json", REASON):
            return Outcome(trial, folder, "failed", None, failure["reason"])
        return Outcome(trial, folder, "begun" if (dense / "checkpoint.h5").exists() else "waiting", None)

    def _metric(self, one: Outcome) -> float | None:
        """Return a trial's metric for the next choice; a failed trial counts as the worst."""
        return (math.inf if self.search.falling else 0.0) if one.state == "failed" else one.value

    @property
    def _chosen(self) -> Path:
        return self.root / "begun"

    def dense(self, trial: Trial) -> Path:
        """Return the folder of a trial's training in the pool."""
        home = self.home(trial)
        return home.folder(training_of(home.experiment))


def training_of(experiment: Experiment) -> Training:
    """Return the training of a trial: the dense network, with the first seed."""
    return dense_of(experiment, experiment.seeds[0])


def describe(experiment: Experiment, wanted: Search, results: Path) -> Tuning:
    """Return the search of an experiment, without writing anything; raise Refused without validation images."""
    if not experiment.data.validation:
        raise Refused("data.validation: received 0, expected images to choose by; the test images stay out of it")
    return Tuning(results / f"tune-{experiment.name}-{wanted.hash(experiment)}", experiment, wanted)


def create(tuning: Tuning) -> Tuning:
    """Write the folder of a search."""
    # written each time: fields that are not part of the hash, such as data.path, may have changed
    files.write_text(tuning.root / "experiment.yaml", experiment_file.record(tuning.experiment))
    files.write_text(tuning.root / "search.yaml", yaml.safe_dump(tuning.search.content, sort_keys=False))
    return tuning


def reopen(root: Path) -> Tuning:
    return Tuning(root, experiment_file.load(root / "experiment.yaml"), search.read(root / "search.yaml"))
