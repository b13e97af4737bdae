"""What a sweep found: results.csv, a table for the terminal, figures for papers."""

from __future__ import annotations

from pathlib import Path

from sweep.report.figures import write_figures
from sweep.report.results import collect, write_csv
from sweep.store import Store


def write_report(home: Store) -> list[Path]:
    """All files of the report; for an unfinished sweep, of what is there."""
    rows = collect(home)
    home.report.mkdir(parents=True, exist_ok=True)
    table = home.report / "results.csv"
    write_csv(rows, table)
    return [table, *write_figures(home, rows)]
