"""Arguments and options that several commands share."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from lottery.cli import completion
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.work.find import SHIPPED, find, open_home, read_home

__all__ = [
    "RESULTS", "SHIPPED", "Devices", "ExperimentName", "Json", "On", "Override", "Results", "TrainingName",
    "checked_home", "find", "open_home", "print_json", "read_home",
]  # fmt: skip

ExperimentName = Annotated[
    str,
    Parameter(
        help="A file, the name or folder of results, or else the name of a shipped experiment",
        completer=completion.experiments,
    ),
]
TrainingName = Annotated[str, Parameter(help="Trainings, as lottery plan lists them", completer=completion.trainings)]
Override = Annotated[str, Parameter(help="Fields to change, such as recipe.epochs=30 seeds=[0,1]")]
Results = Annotated[Path, Parameter(help="Folder that holds the results of all experiments")]
Devices = Annotated[int, Parameter(help="Devices per training; 0 = all visible GPUs, or one CPU")]
On = Annotated[
    Literal["local", "mpi", "slurm"], Parameter(help="Where: this machine, an MPI world, or a SLURM cluster")
]

Json = Annotated[bool, Parameter(name="--json", help="Print JSON instead of a table")]

RESULTS = Path("results")


def print_json(value: Any) -> None:
    """Print a value as JSON; a dataclass becomes an object with its fields."""
    print(json.dumps(value, indent=1, default=asdict))


def checked_home(experiment: str, overrides: tuple[str, ...], results: Path, mistakes: dict[str, bool]) -> Home:
    """Return the home of an experiment for reading; raise Refused with all mistakes in options and fields.

    `mistakes`: a message about each option, and whether it applies.
    """
    wrong = [said for said, true in mistakes.items() if true]
    try:
        home = read_home(experiment, overrides, results)
    except Refused as error:
        raise Refused("\n".join([*wrong, str(error)])) from None
    if wrong:
        raise Refused("\n".join(wrong))
    return home
