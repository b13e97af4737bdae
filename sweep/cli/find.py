"""Words that several commands take, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from sweep.work.find import find, open_home, read_home

__all__ = ["RESULTS", "SHIPPED", "Devices", "Json", "On", "Override", "Results", "find", "open_home", "read_home"]

Override = Annotated[str, Parameter(help="Fields to change, such as recipe.epochs=30 seeds=[0,1]")]
Results = Annotated[Path, Parameter(help="Folder that holds the results of all experiments")]
Devices = Annotated[int, Parameter(help="Devices per training; 0 = all visible GPUs, or one CPU")]
On = Annotated[
    Literal["local", "mpi", "slurm"], Parameter(help="Where: this machine, an MPI world, or a SLURM cluster")
]

Json = Annotated[bool, Parameter(name="--json", help="For a script: JSON instead of a table")]

RESULTS = Path("results")
SHIPPED = Path(__file__).parents[2] / "experiments"
