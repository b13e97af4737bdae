"""What of a sweep travels: `lottery record`."""

from __future__ import annotations

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
    to: Annotated[
        Path, Parameter(help="Folder to write it to; one takes several experiments, and is brought up to date")
    ],
    weights: Annotated[bool, Parameter(help="Also final weights, so that others can evaluate and export")] = False,
    results: Results = RESULTS,
) -> int:
    """All of a sweep for a repository or a paper: results, epochs, masks, the page with its tables and figures.

    The sweep goes on from it too: where weights are needed, their training is done again, and fails unless it comes
    out the same.

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
    return 0
