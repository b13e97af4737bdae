"""The search for an experiment and its results folder by a file, a folder or a name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sweep.data.listing import listing
from sweep.errors import Refused, suggestion
from sweep.experiment import Data, Experiment, Model
from sweep.experiment import file as experiment_file
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home, refuse_old
from sweep.graph.home import open_home as opened
from sweep.graph.snapshot_file import digest_of

SHIPPED = Path(__file__).parents[2] / "experiments"


def find(word: str, overrides: tuple[str, ...], results: Path) -> tuple[Experiment, Path]:
    """Return an experiment and its folder, given a YAML file, a folder, a name under `results` or a shipped name."""
    path = Path(word)
    if path.is_dir() and not (path / "experiment.yaml").is_file() and (results / word / "experiment.yaml").is_file():
        path = results / word  # a folder of data may have the name of its experiment
    file = SHIPPED / f"{word}.yaml"
    if not (path / "experiment.yaml").is_file() and not (results / word).is_dir() and file.is_file():
        path = file
    if path.is_dir():
        folder = path if path.name not in ("", "..") else path.resolve()  # the pool is its parent folder
    elif path.suffix in (".yaml", ".yml"):
        experiment = experiment_file.load(path, overrides)
        return _listed(experiment, results / experiment.name), results / experiment.name
    elif (results / word).is_dir():
        folder = results / word
    else:
        known = sorted({path.parent.name for path in results.glob("*/experiment.yaml")} | set(shipped()))
        raise Refused(f"{word}: neither an experiment file nor under {results}/{suggestion(word, known)}")
    refuse_old(folder)
    if not (folder / "experiment.yaml").is_file():
        raise Refused(f"{folder}: no experiment.yaml in it; expected the folder of an experiment or an experiment file")
    experiment = experiment_file.load(folder / "experiment.yaml", overrides)
    if any(override.startswith("name=") for override in overrides):  # a new experiment, as a copy of this one
        folder = folder.parent / experiment.name
    if any(override.startswith(("data.", "transfer.", "model.weights")) for override in overrides):
        experiment = _listed(experiment, folder)
    return experiment, folder


def open_home(word: str, overrides: tuple[str, ...], results: Path) -> Home:
    """Return the home of an experiment, with its folder created and up to date."""
    experiment, folder = find(word, overrides, results)
    return opened(experiment, folder)


def read_home(word: str, overrides: tuple[str, ...], results: Path) -> Home:
    """Return the home of an experiment for reading: nothing is written, and the folder need not exist."""
    experiment, folder = find(word, overrides, results)
    refuse_old(folder)
    return Home(folder, experiment)


def _listed(experiment: Experiment, folder: Path) -> Experiment:
    """Return the experiment with digests of its images and weights file or, if they are absent, those on record."""
    if not experiment.model.weights and not any(SOURCES[one.name].listed for one in experiment.datasets.values()):
        return experiment
    on_record = folder / "experiment.yaml"
    known = experiment_file.load(on_record) if on_record.is_file() else Experiment()
    model, source = _with_digest(experiment.model, known.model, folder.parent), experiment.transfer
    if source.source:
        source = replace(source, data=_with_listing(source.data, known.transfer.data))
    return replace(experiment, model=model, data=_with_listing(experiment.data, known.data), transfer=source)


def _with_digest(model: Model, known: Model, pool: Path) -> Model:
    """Return the model with the digest of its weights file; a training's name stands for its final weights."""
    if not model.weights:
        return model
    final = pool / "trainings" / model.weights / "snapshots" / "final.h5"
    path = final.resolve() if final.is_file() else Path(model.weights).expanduser()
    before = Path(known.weights)  # the pool, or the user's file, may have lain elsewhere
    same = before.parts[-4:] == final.parts[-4:] or (before.name == path.name and not before.exists())
    if known.weights and same and not path.exists():
        return replace(model, weights=known.weights, weights_digest=known.weights_digest)
    return replace(model, weights=str(path), weights_digest=digest_of(path))


def _with_listing(data: Data, known: Data) -> Data:
    if not SOURCES[data.name].listed:
        return data
    there = data.path and Path(data.path).expanduser().exists()
    return replace(data, listing=listing(data) if there else known.listing)


def shipped() -> list[str]:
    return [path.stem for path in SHIPPED.glob("*.yaml")]
