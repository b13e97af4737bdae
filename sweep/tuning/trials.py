"""Trials of a search and what became of them, as files.

A folder `tune-NAME-HASH` holds the experiment that is tuned, the search, and a file per trial that was begun. A trial
itself is an ordinary dense run in the pool: what was tuned can be swept on from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from sweep import files
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.experiment import file as experiment_file
from sweep.graph import claim
from sweep.graph.home import REASON, Home, open_home
from sweep.graph.plan import dense_of
from sweep.graph.training import Training
from sweep.tuning import search
from sweep.tuning.search import Search, Trial

GIVEN = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_ENTITY")  # by wandb's agent to a trial


@dataclass(frozen=True)
class Outcome:
    """Of one trial."""

    trial: Trial
    folder: Path
    state: str  # waiting, begun, failed, done
    value: float | None  # of the search's metric, on validation images
    note: str = ""


@dataclass(frozen=True)
class Begun:
    """A trial on record."""

    trial: Trial
    element: str  # of the job array that began it; empty: no array
    environment: dict[str, str]  # by which wandb knows the run

    @contextmanager
    def known_to_wandb(self) -> Iterator[None]:
        import wandb

        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name in self.environment:
                del os.environ[name]
            os.environ.update(before)
            wandb.teardown()  # it reads its environment once


@dataclass(frozen=True)
class Tuning:
    """One search for one experiment."""

    root: Path
    experiment: Experiment
    search: Search

    @property
    def results(self) -> Path:
        return self.root.parent

    @property
    def led_by(self) -> Path:
        """Where it is on record that wandb's server leads the search, and hands out the trials."""
        return self.root / "wandb-sweep.json"

    def home(self, trial: Trial) -> Home:
        """The trial as an experiment of its own, named after the search and the training."""
        experiment = experiment_file.load(self.root / "experiment.yaml", trial)
        name = f"{self.root.name}-{training_of(experiment).digest[:8]}"
        return Home(self.results / name, replace(experiment, name=name))

    def begin(self, trial: Trial) -> Home:
        """The trial's own folder; the trial is on record from here, with what it takes to go on with it."""
        home = self.home(trial)
        open_home(home.experiment, home.root)
        given = {name: os.environ[name] for name in GIVEN if name in os.environ}
        begun = {"trial": trial, "element": element(), "environment": given}
        files.write_json(self.root / "begun" / f"{home.root.name}.json", begun)
        return home

    def begun(self) -> list[Begun]:
        shape = {"trial": list, "element": str, "environment": dict}
        kept = [files.read_json(path, shape) for path in sorted((self.root / "begun").glob("*.json"))]
        return [Begun(tuple(one["trial"]), one["element"], one["environment"]) for one in kept]

    def left_behind(self) -> list[Begun]:
        """Trials that were begun by this element of the array, or by a process that is gone, and did not end."""
        mine = [one for one in self.unfinished() if one.element == element()]
        return [one for one in mine if one.element or self._deserted(one.trial)]

    def unfinished(self) -> list[Begun]:
        ended = self.ended()
        return [one for one in self.begun() if one not in ended]

    def ended(self) -> list[Begun]:
        """Trials with an answer: that one diverged is an answer too."""
        return [one for one in self.begun() if self.outcome(one.trial).state in ("done", "failed")]

    def forgive(self, trial: Trial) -> None:
        """Whoever submits it again gives it a new chance."""
        claim.forgive(self._dense(trial))

    def _deserted(self, trial: Trial) -> bool:
        folder = self._dense(trial)
        owner = claim.read(folder)
        return owner is not None and claim.works(folder, owner) is False

    def _dense(self, trial: Trial) -> Path:
        home = self.home(trial)
        return home.folder(training_of(home.experiment))

    def outcomes(self) -> list[Outcome]:
        """Of every trial that was planned or begun, the best first."""
        planned = [] if self.led_by.exists() else search.trials(self.search, self.experiment)
        found = [self.outcome(trial) for trial in dict.fromkeys([*planned, *(one.trial for one in self.begun())])]
        sign = 1 if self.search.falling else -1
        return sorted(found, key=lambda one: (one.value is None, sign * (one.value or 0.0)))

    def outcome(self, trial: Trial) -> Outcome:
        folder, dense = self.home(trial).root, self._dense(trial)
        metric = self.search.metric.removeprefix("validation_")
        if (dense / "result.json").exists():
            found = files.read_json(dense / "result.json", {"validation": {metric: float}})["validation"]
            return Outcome(trial, folder, "done", float(found[metric]))
        if (dense / "failure.json").exists():
            return Outcome(trial, folder, "failed", None, files.read_json(dense / "failure.json", REASON)["reason"])
        return Outcome(trial, folder, "begun" if (dense / "checkpoint.h5").exists() else "waiting", None)


def element() -> str:
    """The number of the array element that this process is, or nothing. A new job has the same numbers."""
    return os.environ.get("SLURM_ARRAY_TASK_ID", "")


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
    tuning.root.mkdir(parents=True, exist_ok=True)
    # written anew each time: what is no part of the hash, such as data.path, may be another now
    files.write_text(tuning.root / "experiment.yaml", experiment_file.record(tuning.experiment))
    files.write_text(tuning.root / "search.yaml", yaml.safe_dump(tuning.search.content, sort_keys=False))
    return tuning


def reopen(root: Path) -> Tuning:
    return Tuning(root, experiment_file.load(root / "experiment.yaml"), search.read(root / "search.yaml"))
