"""The verdicts as a LaTeX table for a paper."""

from __future__ import annotations

from sweep.report.statistics import Estimate
from sweep.report.verdict import Verdict

ESCAPED = str.maketrans({special: f"\\{special}" for special in "&%$#_{}"})


def latex(found: list[Verdict], caption: str) -> str:
    """Return the verdicts as a LaTeX table (needs booktabs); ± is the 95 % interval over seeds."""
    lines = [
        r"\begin{table}",
        rf"\caption{{{caption.translate(ESCAPED)}}}",
        r"\begin{tabular}{rrrll}",
        r"\toprule",
        r"weights remaining & rewind & seeds & test accuracy (\%) & verdict \\",
        r"\midrule",
        *(
            rf"{100 * one.density:.2f}\,\% & {one.rewind} & {one.accuracy.seeds} & {_number(one.accuracy)} & "
            rf"{one.outcome} \\"
            for one in found
        ),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _number(value: Estimate) -> str:
    if not value.seeds:
        return "--"
    return f"{100 * value.mean:.2f}" + (rf" $\pm$ {100 * value.half:.2f}" if value.half is not None else "")
