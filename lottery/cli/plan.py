"""The command `lottery plan`: trainings of a sweep, which are done, predicted times, job scripts."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, On, Override, Results, checked_home, print_json
from slurm import arrays, sbatch
from slurm.plan import Plan, Planned, make_plan
from slurm.reading import ENOUGH
from slurm.sbatch import Job
from sweep.errors import command
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home
from sweep.progress import console, duration, rendered
from sweep.report.intervals import grouped


def plan(
    experiment: ExperimentName,
    *overrides: Override,
    on: On = "local",
    jobs: Annotated[int, Parameter(help="Trainings at a time on this machine, as sweep --jobs")] = 1,
    all_: Annotated[bool, Parameter(name="--all", help="Every training, in the order in which they start")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Show the trainings of a sweep by kind, which are done, and how long the rest will take.

    With --on slurm, show the job scripts too.
    Example: lottery plan experiments/imagenet_mobilenet_v2.yaml --on slurm
    """
    home = checked_home(experiment, overrides, results, {f"--jobs {jobs}: expected 1 or more": jobs < 1})
    found = make_plan(home, on, jobs)
    if json_:
        return print_json(found)
    print(render(found, all_), end="")
    if on == "slurm":
        scripts(home, arrays.preview(home))
    elif found.missing:
        where = home.root if home.on_record else experiment
        datasets = home.experiment.datasets.items()
        paths = [f"{section}.path=PATH" for section, data in datasets if SOURCES[data.name].wants and not data.path]
        console.print(f"next: {command('sweep', where, *overrides, *paths)}")


def render(found: Plan, every: bool = False) -> str:
    """Return a plan as shown on the terminal: a row for each kind of training, or for every training."""
    states, to_come = Counter(row.state for row in found.trainings), found.missing
    skipped = f", {states['skipped']} skipped" if states["skipped"] else ""
    said = f"{states.total()} trainings, {states['done']} of them done{skipped}; {_epochs(to_come)} epochs to train"
    if found.at_least_seconds is not None:
        speed = "the finished tickets'" if found.forecast else "the dense run's"
        said += f": {_predicted(to_come)} one after the other at {speed} speed"
        if found.at_a_time > 1:
            where = "on the cluster" if found.on == "slurm" else "here"
            said += f"; at least {duration(found.at_least_seconds)} with {found.at_a_time} at a time {where}"
        if besides := sum(row.seconds is None for row in to_come):
            said += f"; {besides} dense run{'s' * (besides > 1)} besides"
    elif to_come and not found.estimate:
        said += "; times are predicted once the dense run has been measured"
    cost = str(found.cost) if found.cost.spent else ""
    lines = [said, str(found.estimate or ""), str(found.forecast or ""), cost, found.power]
    if found.reading and found.reading.wait > ENOUGH:
        lines.append(f"Warning: {found.reading}; {found.reading.remedy}")
    lines += [
        f"{row.task}: its weights at {', '.join(row.again)} are not there; it will be trained again up to there, "
        "and rejected if it comes out different"
        for row in reversed(found.trainings)
        if row.again
    ]
    return rendered(_each(found) if every else _by_kind(found), *filter(None, lines))


def _by_kind(found: Plan) -> Table:
    table = Table("kind", "trainings", "done", "skipped", "epochs to train", "predicted")
    for kind, rows in grouped(found.trainings, lambda row: row.kind).items():
        states = Counter(row.state for row in rows)
        left = [row for row in rows if row.state == "missing"]
        table.add_row(
            kind, str(len(rows)), str(states["done"]), str(states["skipped"]), _epochs(left), _predicted(left)
        )
    return table


def _each(found: Plan) -> Table:
    table = Table("training", "stage", "epochs", "", "predicted")
    for row in found.trainings:
        state = f"{row.left:g} left" if 0 < row.left < row.epochs else row.state
        length = duration(row.seconds) if row.seconds else "–"
        table.add_row(row.task, str(row.generation), f"{row.epochs:g}", state, length)
    return table


def _epochs(rows: list[Planned]) -> str:
    return f"{sum(row.left for row in rows):g}"


def _predicted(rows: list[Planned]) -> str:
    seconds = sum(row.seconds_left or 0.0 for row in rows)
    return duration(seconds) if seconds else "–"


def scripts(home: Home, chain: list[Job]) -> None:
    """Print the job scripts as they are submitted, and the commands to submit them by hand."""
    for job in chain:
        console.print(f"--- {home.root / 'slurm' / job.name}.sh\n{job.text}")
    console.print(f"submitted by:\n{sbatch.commands(home.root, chain)}" if chain else "nothing is missing")
