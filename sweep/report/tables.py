"""The verdicts as a LaTeX table for a paper."""

from __future__ import annotations

from sweep.report.statistics import Estimate
from sweep.report.verdict import Verdict

ESCAPED = str.maketrans({special: f"\\{special}" for special in "&%$#_{}"})


def latex(found: list[Verdict], caption: str) -> str:
    """Return the verdicts as a LaTeX table (needs booktabs); ± is the 95 % interval over seeds."""
    several = len({one.method for one in found}) > 1

    def method(name: str) -> str:
        return f"{name.translate(ESCAPED)} & " if several else ""

    lines = [
        r"\begin{table}",
        rf"\caption{{{caption.translate(ESCAPED)}}}",
        rf"\begin{{tabular}}{{{'l' * several}rrrll}}",
        r"\toprule",
        method("method") + r"weights remaining & rewind & seeds & test accuracy (\%) & verdict \\",
        r"\midrule",
        *(
            method(one.method)
            + rf"{100 * one.density:.2f}\,\% & {one.rewind} & {one.accuracy.seeds} & {_number(one.accuracy)} & "
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
