"""The report of a sweep: results.csv, the page, a LaTeX table, figures for papers."""

from __future__ import annotations

from pathlib import Path

from sweep import files
from sweep.graph.home import Home
from sweep.graph.results import images_tested, in_csv
from sweep.report.findings import Findings, findings
from sweep.report.intervals import dense_of
from sweep.report.kept import kept, write_kept
from sweep.report.tables import latex
from sweep.report.verdict import MARGIN, rule
from sweep.tracking.dashboard import FIGURES


def write_report(home: Home, margin: float = MARGIN) -> list[Path]:
    """Write all files of the report, also of an unfinished sweep; return their paths, the page first."""
    return write_findings(home, findings(home, margin))


def write_findings(home: Home, found: Findings, folder: Path | None = None) -> list[Path]:
    """Write the report of the findings to its folder or another one; return its paths, the page first."""
    from altair.utils.schemapi import debug_mode  # takes most of a second, as do both of our modules that draw

    from sweep.report.figures import write_figures
    from sweep.report.page import write_page

    folder = folder or home.report
    folder.mkdir(parents=True, exist_ok=True)
    table, paper = folder / "results.csv", folder / "results.tex"
    files.write_text(table, in_csv(found.rows))
    model, data, images = home.experiment.model.name, home.experiment.data.name, images_tested(found.results)
    caption = f"{model} on {data}{f', {images:,} test images' if images else ''}. {rule(found.margin)}"
    files.write_text(paper, latex(found.verdicts, dense_of(found.rows), caption, home.experiment.name))
    out = [table, paper, *write_kept(kept(home), folder)]
    with debug_mode(False):  # Altair checks nothing while charts are put together: it takes longer than to draw them
        out += write_figures(home, found.rows, folder, found.steps)
        page = write_page(home, found, folder)
    for name in ("kept.json", *(f"{stem}.{kind}" for stem in FIGURES for kind in ("png", "svg"))):
        if folder / name not in out:  # left from an earlier report
            (folder / name).unlink(missing_ok=True)
    return [page, *out]
