"""From the word EXPERIMENT on the command line to an experiment and its results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from sweep import experiment_file
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.store import Store, open_store

Override = Annotated[str, Parameter(help="Fields to change, such as recipe.epochs=30 seeds=[0,1]")]
Results = Annotated[Path, Parameter(help="Folder that holds the results of all experiments")]
Devices = Annotated[int, Parameter(help="Devices per training; 0 = all visible GPUs, or one CPU")]
On = Annotated[
    Literal["local", "mpi", "slurm"], Parameter(help="Where: this machine, an MPI world, or a SLURM cluster")
]

RESULTS = Path("results")
SHIPPED = Path(__file__).parents[2] / "experiments"


def find(word: str, overrides: tuple[str, ...], results: Path) -> tuple[Experiment, Path]:
    """The experiment of a YAML file, of a results folder, or of a name under `results`, and its folder."""
    path = Path(word)
    if path.is_dir():
        folder = path
    elif path.suffix in (".yaml", ".yml"):
        experiment = experiment_file.load(path, overrides)
        return experiment, results / experiment.folder
    else:
        folder = _named(word, results)
    if not (folder / "experiment.yaml").is_file():
        raise Refused(f"{folder}: no experiment.yaml in it; expected a results folder or an experiment file")
    before = experiment_file.load(folder / "experiment.yaml")
    experiment = experiment_file.load(folder / "experiment.yaml", overrides)
    if experiment.hash != before.hash:
        raise Refused(
            f"{' '.join(overrides)}: makes another experiment than {folder}; give the experiment file instead"
        )
    return experiment, folder


def open_home(word: str, overrides: tuple[str, ...], results: Path) -> Store:
    """The same, made ready for writing."""
    experiment, folder = find(word, overrides, results)
    return open_store(experiment, folder)


def read_home(word: str, overrides: tuple[str, ...], results: Path) -> Store:
    """The same, for looking only: nothing is written, and the folder may not exist yet."""
    experiment, folder = find(word, overrides, results)
    return Store(folder, experiment)


def _named(word: str, results: Path) -> Path:
    exact = results / word
    if exact.is_dir():
        return exact
    known = sorted(path.parent.name for path in results.glob("*/experiment.yaml"))
    found = [name for name in known if name.rpartition("-")[0] == word]  # NAME-HASH, where NAME may have a - too
    if len(found) == 1:
        return results / found[0]
    if found:
        raise Refused(f"{word}: several experiments of that name: {', '.join(found)}; give one of these")
    raise Refused(f"{word}: neither an experiment file nor under {results}/{experiment_file.suggestion(word, known)}")
