"""The command `lottery compare`: sweeps or trainings side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from lottery.cli import completion
from lottery.cli.find import RESULTS, Json, Results, print_json, read_home
from sweep.errors import Refused
from sweep.progress import console, show
from sweep.report.comparison import Side, compare, side_of, side_of_training, table, write_comparison


def compare_(
    *sides: Annotated[
        str,
        Parameter(
            help="Two or more experiments, or trainings as EXPERIMENT:TRAINING", completer=completion.experiments
        ),
    ],
    out: Annotated[Path, Parameter(help="Folder for comparison.html")] = Path("comparison"),
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Compare sweeps, or single trainings: settings that differ, accuracies at equal density, paired by seed.

    Example: lottery compare dry_run dry_run_lamp
    """
    if len(sides) < 2:
        raise Refused("compare: expected two or more experiments, or trainings as EXPERIMENT:TRAINING")
    asked = list(dict(_side(word, results) for word in sides).values())
    if len(asked) < len(sides):
        raise Refused(f"compare: received {', '.join(sides)}; expected each of them once")
    if len({side.name for side in asked}) < len(asked):  # a training of two sweeps, or a sweep and its record
        asked = [replace(side, name=word) for side, word in zip(asked, sides, strict=True)]
    found = compare(asked)
    if json_:
        return print_json(found)
    settings = Table("settings that differ", *found.names)
    for field, values in found.settings.items():
        settings.add_row(field, *values)
    if found.settings:
        show(settings)
    if rows := table(found):
        lines = Table(*rows[0])
        for row in rows:
            lines.add_row(*row.values())
        show(lines)
        console.print(found.method)
    else:
        console.print("They have no density and rewind point in common.")
    console.print(f"page: {write_comparison(found, out)}")


def _side(word: str, results: Path) -> tuple[Path, Side]:
    """Return a side and its place, by which the same one is known under two words."""
    experiment, colon, training = word.partition(":")
    home = read_home(experiment, (), results)
    if not (home.root / "experiment.yaml").exists():
        raise Refused(f"{home.root}: nothing there yet; expected the results of an experiment")
    if not colon:
        return home.root.resolve(), side_of(home)
    task = home.training(training)
    return home.root.resolve() / task.slug, side_of_training(home, task)
