"""The verdicts as a LaTeX table for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.report.intervals import estimate
from sweep.report.statistics import Estimate
from sweep.report.verdict import Verdict
from sweep.report.words import with_test

ESCAPED = str.maketrans({special: f"\\{special}" for special in "&%$#_{}"})
# raw LaTeX, below what is escaped
EXPLAINED = (
    r"$\pm$: 95\,\% interval (Student) of the mean over seeds, not the standard deviation. $\Delta$: mean difference "
    r"from the dense network in percentage points, paired by seed, with its 95\,\% interval, not corrected for the "
    r"number of tickets. $p$: one-sided, of the test in brackets, corrected for it (Holm)."
)


def latex(found: Sequence[Verdict], dense: Mapping[int, float], caption: str, label: str = "tickets") -> str:
    """Return the verdicts as a LaTeX table below their dense network, whose accuracies are given by seed."""
    several = len({one.method for one in found}) > 1

    def line(*cells: str) -> str:
        return " & ".join(cells[not several :]) + r" \\"

    whole = estimate([*dense.values()])
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        rf"\caption{{{caption.translate(ESCAPED)} {EXPLAINED}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{'l' * several}rrrllll}}",
        r"\toprule",
        line("method", "weights remaining", "rewind", "seeds", r"test accuracy (\%)", r"$\Delta$", "$p$", "verdict"),
        r"\midrule",
        line("dense", r"100\,\%", "--", str(whole.seeds), _number(whole), "--", "--", "--"),
        *(
            line(one.method.translate(ESCAPED), rf"{100 * one.density:.2f}\,\%", one.rewind, str(one.accuracy.seeds),
                 _number(one.accuracy), _difference(one.difference), _p(one), one.outcome)
            for one in found
        ),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _number(value: Estimate) -> str:
    if not value.seeds:
        return "--"
    return f"{100 * value.mean:.2f}" + (rf" $\pm$ {100 * value.half:.2f}" if value.half is not None else "")


def _difference(value: Estimate | None) -> str:
    return f"${100 * value.mean:+.2f}$ {value.interval}".rstrip() if value else "--"


def _p(one: Verdict) -> str:
    return with_test(one).replace("<", "$<$") if one.p is not None else "--"
