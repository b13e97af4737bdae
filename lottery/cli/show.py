"""Commands that look and tell. None of them loads TensorFlow."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, Override, Results, read_home
from lottery.cli.masks import summary
from slurm.status import Standing, seconds_left, standing_of
from sweep import progress
from sweep.errors import Refused, command
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.runs import Runs
from sweep.graph.state import cost_of
from sweep.progress import console, duration
from sweep.report.stability import whose
from sweep.report.verdict import MARGIN, power, rule, verdicts
from sweep.report.words import beaten, lead, noted, steps_of

WATCH_SECONDS = 5.0


def status(
    experiment: ExperimentName,
    *overrides: Override,
    watch: Annotated[bool, Parameter(help="Again and again, until nothing waits or runs")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """Where every training of the sweep stands, from its files and, where it was submitted, from SLURM.

    Example: lottery status dry_run
    """
    home = read_home(experiment, overrides, results)
    standing = standing_of(home)
    if json_:
        print(json.dumps([asdict(state) for state in standing.tasks], indent=1))
        return 0
    if watch:
        return _watch(home)
    _show_standing(home, standing)
    return 0


def _watch(home: Home) -> int:
    """On a terminal the table stays in place; elsewhere, a line now and then."""
    while True:
        standing = standing_of(home)
        if console.is_terminal:
            console.clear()
            _show_standing(home, standing)
        else:
            console.print(_summary(home, standing))
        if not standing.silence and not any(state.state in ("waiting", "running") for state in standing.tasks):
            return 0
        time.sleep(WATCH_SECONDS)


def _show_standing(home: Home, standing: Standing) -> None:
    """Notes stand under the training they belong to, so that a name stays whole in 80 columns."""
    table = Table("training", "state", "epoch", "test", box=box.SIMPLE, pad_edge=False)
    epochs = home.experiment.recipe.epochs
    trained = [(state, f"{state.epoch}/{epochs}") for state in standing.tasks]
    for state, epoch in [*trained, *((state, "") for state in standing.jobs)]:
        accuracy = f"{state.top1:.2%}" if state.top1 is not None else ""
        notes = [state.note] if state.note else []
        notes += [f"{duration(state.seconds_left)} left"] if state.seconds_left is not None else []
        notes += [f"begun {state.starts} times"] if state.starts > 1 else []
        table.add_row("\n  ".join([state.task, *(["; ".join(notes)] if notes else [])]), state.state, epoch, accuracy)
    progress.show(table)
    console.print(_summary(home, standing))


def _summary(home: Home, standing: Standing) -> str:
    counts = Counter(state.state for state in standing.tasks)
    parts = [
        f"{counts[word]} {word}"
        for word in ("done", "skipped", "running", "begun", "waiting", "lost", "failed")
        if counts[word]
    ]
    runs = Runs(home.pool)
    replaced = sum(bool(runs.replaced(home.training(s.task))) for s in standing.tasks if s.state == "done")
    parts += [f"{replaced} of a run since replaced (lottery tidy --replaced)"] if replaced else []
    again = sum(state.starts - 1 for state in standing.tasks if state.starts > 1)
    parts += [f"begun again {again} times"] if again else []
    parts += [f"{standing.nodes} nodes in use"] if standing.nodes else []
    left = seconds_left(home, standing.tasks)
    if left:
        end = datetime.now() + timedelta(seconds=left)
        parts.append(f"end not before {end:%Y-%m-%d %H:%M} ({duration(left)})")
    parts.append(str(cost_of(home)))
    return ", ".join(parts) + f"  ({home.root})" + (f"\n{standing.silence}" if standing.silence else "")


def report(
    experiment: ExperimentName,
    *overrides: Override,
    margin: Annotated[float, Parameter(help="Points of accuracy that a winning ticket may lose")] = 100 * MARGIN,
    out: Annotated[
        Path | None, Parameter(help="Another folder for it, such as where the results are read-only")
    ] = None,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """The page report.html, results.csv, a LaTeX table, figures as PNG and SVG; of an unfinished sweep, what is there.

    Example: lottery report dry_run
    """
    home = read_home(experiment, overrides, results)
    if not (home.root / "experiment.yaml").exists():
        raise Refused(f"{home.root}: nothing there yet; {command('sweep', experiment)} makes it")
    if json_:
        from sweep.graph.results import collect

        print(json.dumps([asdict(row) for row in collect(home)], indent=1))
        return 0
    if not 0 <= margin <= 100:
        raise Refused(f"--margin {margin:g}: expected points of accuracy, 0 to 100")
    write_and_list(home, quiet=False, margin=margin / 100, out=out)
    return 0


# What several commands say -----------------------------------------------------------------------------------------


def write_and_list(home: Home, quiet: bool, margin: float = MARGIN, out: Path | None = None) -> None:
    """Write the report, show its table and say where it is. One that goes elsewhere is not mirrored by wandb."""
    from sweep.graph.results import collect, results_of, unsealed_results
    from sweep.report import write_report
    from sweep.tracking.runs import track_report

    paths = write_report(home, margin, out)
    if out is None:
        track_report(home, paths)
    if quiet:
        return
    for training in home.graph.dense:
        if home.done(training) and home.snapshot(training, END).exists():
            summary(home, training, make=False)
    rows = collect(home)
    found = verdicts(rows, margin)
    several = len({one.method for one in found}) > 1
    head = ("remaining", "rewind", "seeds", "test accuracy", "against dense", "verdict")
    table = Table(*(("method",) if several else ()), *head)
    for one in found:
        difference = f"{100 * one.difference.mean:+.2f} points" if one.difference else "–"
        accuracy = f"{one.accuracy.mean:.2%}" if one.accuracy.seeds else "–"
        accuracy += f" ± {100 * one.accuracy.half:.2f}" if one.accuracy.half is not None else ""
        cells = (f"{one.density:.1%}", one.rewind, str(one.accuracy.seeds), accuracy, difference, one.outcome)
        table.add_row(*((one.method,) if several else ()), *cells)
    if found:
        progress.show(table)
    for (kind, method, _, _, rewind), group in _control_groups(rows):
        scores = mean(row.test_top1 for row in group)
        console.print(
            f"{kind}{f', {method}' if several else ''}, {group[0].density:.1%} left, from {rewind}: {scores:.2%}"
        )
    for row in rows:
        if row.instability is not None:
            points = f"{100 * row.instability:.2f} points"
            console.print(f"instability, {whose(row)}, from {row.rewind}, seed {row.seed}: {points}")
    said = [
        lead(rows, found, margin, steps_of(results_of(home))),
        *noted(home.experiment.note),
        beaten(found),
        power(rows, margin),
        rule(margin) if found else "",
    ]
    console.print("\n".join(line for line in said if line))
    if earlier := unsealed_results(home):
        console.print(f"{earlier} of {len(rows)} results are of a version before 0.3 and have no checksum: a digit "
                      "that was changed in them since cannot be noticed")  # fmt: skip
    open_ = [row for row in rows if row.state not in ("done", "skipped")]
    if open_:
        console.print(f"{len(open_)} of {len(rows)} trainings are not done: {command('status', home.root)}")
    console.print("report:", *map(str, paths), sep="\n  ")


def _control_groups(rows: list[Any]) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """Finished controls by kind, level and rewind epoch, over all seeds."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        if row.kind not in ("dense", "ticket", "child", "instability") and row.test_top1 is not None:
            level = (row.quantile, row.threshold if row.quantile is None else None)
            groups.setdefault((row.kind, row.method, *level, row.rewind), []).append(row)
    return sorted(groups.items(), key=lambda item: (item[0][0], -item[1][0].density))
