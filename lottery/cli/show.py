"""The commands status and report. Neither loads TensorFlow."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Annotated

from cyclopts import Parameter
from rich import box
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, Override, Results, checked_home, print_json, read_home
from lottery.cli.masks import summary
from lottery.cli.say import BY_ITSELF
from slurm.status import Status, make_status, standing_of
from sweep.errors import Refused, command
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.results import collect
from sweep.progress import console, duration, rendered
from sweep.report import write_findings
from sweep.report.best import not_worse
from sweep.report.findings import Findings, findings
from sweep.report.intervals import grouped, top1
from sweep.report.stability import whose
from sweep.report.verdict import MARGIN
from sweep.report.words import beaten
from sweep.tracking.runs import track_report

Verbose = Annotated[bool, Parameter(help="Also show the statistics behind the answer, and every file written")]
WATCH_SECONDS = 5.0
STATES = ("done", "skipped", "running", "begun", "waiting", "lost", "failed")


def status(
    experiment: ExperimentName,
    *overrides: Override,
    watch: Annotated[bool, Parameter(help="Repeat until nothing waits or runs")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Show the state of every training, from its files and, if it was submitted, from SLURM.

    Example: lottery status dry_run
    """
    home = read_home(experiment, overrides, results)
    if json_:
        return print_json(standing_of(home).tasks)
    while True:
        found = make_status(home)
        if watch and console.is_terminal:  # the table stays in place; in a log, a line now and then
            console.clear()
        print(_in_a_line(found) if watch and not console.is_terminal else render_status(found), flush=True)
        under_way = any(state.state in ("waiting", "running") for state in found.standing.tasks)
        if not watch or not (found.standing.silence or under_way):
            return
        time.sleep(WATCH_SECONDS)


def render_status(found: Status) -> str:
    """Return a status as shown on the terminal; notes are below their training, so that names fit in 80 columns."""
    table = Table("training", "state", "epoch", "test", box=box.SIMPLE, pad_edge=False)
    trained = [(state, f"{state.epoch}/{found.epochs}") for state in found.standing.tasks]
    for state, epoch in [*trained, *((state, "") for state in found.standing.jobs)]:
        accuracy = f"{state.top1:.2%}" if state.top1 is not None else ""
        notes = [state.note] if state.note else []
        if state.state == "running" and state.seconds_left is not None:
            notes.append(f"{duration(state.seconds_left)} left")
        notes += [f"begun {state.starts} times"] if state.starts > 1 else []
        table.add_row("\n  ".join([state.task, *(["; ".join(notes)] if notes else [])]), state.state, epoch, accuracy)
    return rendered(table, _in_a_line(found)).removesuffix("\n")


def _in_a_line(found: Status) -> str:
    """Return a status without its table: number of trainings per state, predicted end, cost."""
    standing = found.standing
    counts = Counter(state.state for state in standing.tasks)
    parts = [f"{counts[word]} {word}" for word in STATES if counts[word]]
    parts += [f"{found.replaced} of a run since replaced (lottery tidy --replaced)"] if found.replaced else []
    again = sum(state.starts - 1 for state in standing.tasks if state.starts > 1)
    parts += [f"begun again {again} time{'s' * (again > 1)}"] if again else []
    parts += [f"{standing.nodes} nodes in use"] if standing.nodes else []
    queued = any(state.note for state in standing.tasks if state.state == "waiting")
    if found.seconds_left and (counts["running"] or queued):
        end = datetime.now() + timedelta(seconds=found.seconds_left)
        parts.append(f"end not before {end:%Y-%m-%d %H:%M} ({duration(found.seconds_left)})")
    parts.append(str(found.cost))
    return ", ".join(parts) + f"  ({found.folder})" + (f"\n{standing.silence}" if standing.silence else "")


def report(
    experiment: ExperimentName,
    *overrides: Override,
    margin: Annotated[float, Parameter(help="Percentage points of accuracy that a winning ticket may lose")] = 100
    * MARGIN,
    out: Annotated[
        Path | None, Parameter(help="Another folder for the report, for example if results are read-only")
    ] = None,
    verbose: Verbose = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Write the page report.html, results.csv, a LaTeX table and figures, also for an unfinished sweep.

    Example: lottery report dry_run
    """
    wrong = {f"--margin {margin:g}: expected percentage points of accuracy, 0 to 100": not 0 <= margin <= 100}
    home = checked_home(experiment, overrides, results, wrong)
    if not (home.root / "experiment.yaml").exists():
        raise Refused(f"{home.root}: nothing there yet; {command('sweep', experiment)} makes it")
    if json_:
        return print_json(collect(home))
    if out is None and not home.on_record:  # it would replace the report of what was swept
        raise Refused(f"{experiment}: asks for other trainings than {home.root} on record; expected {home.root}, "
                      f"{command('sweep', experiment, *overrides)} first, or --out FOLDER")  # fmt: skip
    write_and_tell(home, verbose, margin=margin / 100, out=out)


def write_and_tell(
    home: Home, verbose: bool, quiet: bool = False, margin: float = MARGIN, out: Path | None = None
) -> None:
    """Write the report; print the answer, the page and the next command. With `out`, wandb is not updated."""
    found = findings(home, margin)
    paths = write_findings(home, found, out)
    if out is None:
        track_report(home, found.rows, paths)
    if quiet:
        return
    if verbose:
        for training in home.graph.sources:
            if home.done(training) and home.snapshot(training, END).exists():
                summary(home, training, make=False)
        print(render_statistics(found), end="")
        console.print("\n".join(["files:", *(f"  {path}" for path in paths), ""]))
    weights = any(home.snapshot(one, END).exists() for one in home.graph.trainings if one.mask)
    print(render_answer(found, paths[0], weights), end="")


def render_answer(found: Findings, page: Path, weights: bool) -> str:
    """Return the answer of a sweep, what is not done, the page and the next command, as shown on the terminal.

    `weights`: whether tickets have weights, so that they can be exported; a record may have none.
    """
    said = [*filter(None, (found.answer, *found.noted))]
    left = [row.state for row in found.rows if row.state != "done"]
    if left:
        each = ", ".join(f"{left.count(state)} {state}" for state in STATES if state in left)
        said.append(f"{len(left)} of {len(found.rows)} trainings are not done ({each}): "
                    f"{command('status', found.folder)} lists them.")  # fmt: skip
    said.append(f"report: {page}")
    if {"begun", "waiting", "lost"} & {*left}:
        said.append(f"next: {command('sweep', found.folder)}")
    elif weights and not_worse(found.verdicts, found.margin):
        said.append(f"next: {command('export', found.folder, '--to', 'ticket.keras')}")
    return rendered(*said)


def render_statistics(found: Findings) -> str:
    """Return the table of tickets, the controls and the rule of the verdicts, as shown on the terminal."""
    rows, method = found.rows, len({one.method for one in found.verdicts}) > 1
    head = ("remaining", "rewind", "seeds", "test accuracy", "against dense", "verdict")
    table = Table(*(("method",) if method else ()), *head)
    for one in found.verdicts:
        difference = f"{100 * one.difference.mean:+.2f}" if one.difference else "–"
        cells = (f"{one.density:.1%}", one.rewind, str(one.accuracy.seeds), str(one.accuracy), difference, one.outcome)
        table.add_row(*((one.method,) if method else ()), *cells)
    said = ["Differences are in percentage points."] if found.verdicts else []
    controls = [row for row in rows if row.kind not in BY_ITSELF and row.test_top1 is not None]
    groups = grouped(controls, lambda row: (row.kind, row.level, row.rewind))
    for (kind, level, rewind), group in sorted(groups.items(), key=lambda one: (one[0][0], -(one[1][0].density or 0))):
        what = ", ".join([kind, *([level[0]] if method else []), f"{group[0].density or 0.0:.1%} remaining"])
        said.append(f"{what}, from {rewind}: {mean(map(top1, group)):.2%}")
    for row in rows:
        if row.instability is not None:
            points = f"{100 * row.instability:.2f} percentage points"
            said.append(f"instability, {whose(row)}, from {row.rewind}, seed {row.seed}: {points}")
    said += [beaten(found.verdicts), found.power, found.rule]
    if found.unsealed:
        said.append(f"{found.unsealed} of {len(rows)} results are of a version before 0.3 and have no checksum: a "
                    "digit that was changed in them since cannot be noticed")  # fmt: skip
    return rendered(*([table] if found.verdicts else []), *filter(None, said), "")
