"""The findings of a sweep so far, as one value that page, terminal, tables and Python interface all show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import mean

from sweep.experiment import Recipe
from sweep.experiment.point import Steps
from sweep.graph.home import Home
from sweep.graph.results import (
    Results,
    Row,
    classes_of,
    collect,
    evaluations,
    images_tested,
    results_of,
    unsealed_results,
)
from sweep.graph.state import State, states
from sweep.report import words
from sweep.report.intervals import dense_of
from sweep.report.verdict import DECIDED, MARGIN, Verdict, power, rule, verdicts


@dataclass(frozen=True)
class Findings:
    """The results of a sweep, the verdicts on its tickets, and sentences about them."""

    folder: str  # folder of the experiment
    note: str  # note in the experiment file
    margin: float  # loss of accuracy that a winning ticket may have
    rows: list[Row]
    verdicts: list[Verdict]
    states: list[State]
    results: Results
    classes: int  # 0: not known
    largest: float  # share of the largest class among the test images; 0: not known
    unsealed: int  # number of results without checksum, from versions before 0.3
    recipe: Recipe  # of the dense runs

    @property
    def answer(self) -> str:
        """Return the answer to the experiment's question in a sentence or two."""
        return words.lead(self.rows, self.verdicts, self.margin, self.steps)

    @property
    def doubts(self) -> list[str]:
        """Return what qualifies the answer: note, dense network near chance, controls, failed or missing trainings."""
        counts = Counter(state.state for state in self.states if state.state not in ("done", "skipped"))
        failed, count = counts.pop("failed", 0), len(self.states)
        each = ", ".join(f"{n} {word}" for word, n in counts.items())
        lost = f"{failed} of {count} trainings failed." if failed else ""
        missing = f"Unfinished: {counts.total()} of {count} trainings are missing ({each})." if counts else ""
        return [*self.noted, *filter(None, (self.near_chance, words.beaten(self.verdicts), lost, missing))]

    @property
    def noted(self) -> list[str]:
        """Return the experiment's note as one paragraph, or nothing."""
        return list(filter(None, [" ".join(self.note.split())]))

    @property
    def circumstances(self) -> list[str]:
        """Return the basis of the answer: dense accuracy, test images, gain of later points, statistical power."""
        dense = [*dense_of(self.rows).values()]
        images = images_tested(self.results)
        said = "No dense run yet."
        if dense:
            said = f"Dense network: {mean(dense):.2%} over {len(dense)} seed{'' if len(dense) == 1 else 's'}."
        if dense and images:
            said += f" One of the {images:,} test images is {100 / images:.2g} percentage points."
        return [*filter(None, (said, words.later(self.rows, images, self.steps), self.power))]

    @property
    def power(self) -> str:
        """Return which differences the seeds and the test images can detect; "" without tickets."""
        return power(self.rows, self.margin, images_tested(self.results))

    @property
    def near_chance(self) -> str:
        """Return a warning if the dense network has hardly learned anything, or ""."""
        dense = [*dense_of(self.rows).values()]
        known = dense and self.classes
        images = images_tested(self.results)
        return words.near_chance(mean(dense), images, self.classes, self.largest) if known else ""

    @property
    def steps(self) -> Steps:
        """Return the number of steps before a point, as a function; None if nothing is trained."""
        return _steps(self.results, self.recipe)

    @property
    def rule(self) -> str:
        """Return the rule behind the verdicts; "" if there are none."""
        return rule(self.margin) if self.verdicts else ""


def findings(home: Home, margin: float = MARGIN) -> Findings:
    """Return the findings of a sweep, finished or not. Nothing is written."""
    rows, results, recipe = collect(home), results_of(home), home.experiment.source.recipe
    found = verdicts(rows, margin, _steps(results, recipe))
    return Findings(str(home.root), home.experiment.note, margin, rows, found, states(home), results, classes_of(home),
                    _largest_class(home), unsealed_results(home), recipe)  # fmt: skip


def _steps(results: Results, recipe: Recipe) -> Steps:
    # with a transfer, points are those of the source's dense runs
    sources = [result for training, result in results.items() if training.kind == "source"]
    per_epoch = max((result["steps_per_epoch"] for result in sources or results.values()), default=0)
    return (lambda at: at.step(recipe, per_epoch)) if per_epoch else None


def _largest_class(home: Home) -> float:
    """Return the share of the largest class among the test images; 0 if nothing was evaluated on them."""
    found = evaluations(home)
    mine = [found[one.slug] for one in home.graph if one.kind != "source" and one.slug in found]
    counts = [sum(row) for row in mine[0]["confusion"]] if mine else []
    return max(counts) / sum(counts) if any(counts) else 0.0


def in_markdown(found: Findings) -> str:
    """Return the sentences and the table of verdicts in Markdown."""
    head = ("method", "weights remaining", "rewind", "seeds", "test accuracy", "verdict", "p (test)", "against dense")
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in found.verdicts:
        cells = (one.method, f"{one.density:.2%}", one.rewind, one.accuracy.seeds, one.accuracy, one.outcome,
                 words.with_test(one), one.reason)  # fmt: skip
        table.append(f"| {' | '.join(' '.join(str(cell).split()).replace('|', chr(92) + '|') for cell in cells)} |")
    said = [found.answer, *found.doubts, *found.circumstances]
    return "\n\n".join([*said, *(["\n".join(table), DECIDED, found.rule] if found.verdicts else [])])
