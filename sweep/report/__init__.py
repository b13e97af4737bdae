"""What a sweep found: results.csv, the page, a LaTeX table, figures for papers."""

from __future__ import annotations

from pathlib import Path

from sweep import files
from sweep.graph.home import Home
from sweep.graph.results import collect, write_csv
from sweep.report.figures import write_figures
from sweep.report.page import write_page
from sweep.report.tables import latex
from sweep.report.verdict import MARGIN, rule, verdicts


def write_report(home: Home, margin: float = MARGIN) -> list[Path]:
    """All files of the report; for an unfinished sweep, of what is there."""
    rows = collect(home)
    home.report.mkdir(parents=True, exist_ok=True)
    table, paper = home.report / "results.csv", home.report / "results.tex"
    write_csv(rows, table)
    files.write_text(paper, latex(verdicts(rows, margin), f"{home.experiment.name}. {rule(margin)}"))
    return [write_page(home, rows, margin), table, paper, *write_figures(home, rows)]
