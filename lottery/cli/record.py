"""The command `lottery record`: a sweep in a few files."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lottery.cli.find import RESULTS, ExperimentName, Override, Results, read_home
from sweep.graph.record import record as write_record
from sweep.progress import console
from sweep.report import write_report


def record(
    experiment: ExperimentName,
    *overrides: Override,
    to: Annotated[Path, Parameter(help="Folder to write to, or to update; it can hold several experiments")],
    weights: Annotated[bool, Parameter(help="Also final weights, so that others can evaluate and export")] = False,
    results: Results = RESULTS,
) -> None:
    """Write a sweep for a repository or a paper: results, epochs, masks, the page with its tables and figures.

    A sweep can be continued from it: if weights are needed, their training is done again and must give the same result.

    Example: lottery record dry_run --to record
    """
    home = read_home(experiment, overrides, results)
    found = write_record(home, to, weights)
    there = read_home(str(to / home.root.name), (), to)
    page, *_ = write_report(there)
    console.print(
        f"{found.trainings} trainings and {found.masks} masks, the weights of {found.weights or 'none'}, "
        f"{found.bytes / 1e6:.1f} MB, in {to}; the page: {page}"
    )
