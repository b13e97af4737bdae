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
    results: Results = RESULTS,
) -> int:
    """All of a sweep but weights, for a repository or a paper: results, epochs, masks, and tables and figures of them.

    The sweep goes on from it too: where weights are needed, their training is done again, and fails unless it comes
    out the same.

    Example: lottery record dry_run --to record
    """
    home = read_home(experiment, overrides, results)
    found = write_record(home, to)
    there = read_home(str(to / home.root.name), (), to)
    page, *_ = write_report(there)
    console.print(
        f"{found.trainings} trainings and {found.masks} masks, {found.bytes / 1e6:.1f} MB without weights, in {to}; "
        f"the page: {page}"
    )
    return 0
