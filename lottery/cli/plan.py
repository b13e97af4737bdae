"""The command `lottery plan`: trainings of a sweep, what is done, their predicted time, their job scripts."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, On, Override, Results, read_home
from slurm import arrays, sbatch
from slurm.plan import Plan, make_plan
from slurm.sbatch import Job
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.progress import console, duration, rendered


def plan(
    experiment: ExperimentName,
    *overrides: Override,
    on: On = "local",
    jobs: Annotated[int, Parameter(help="Trainings at a time here, as sweep --jobs; on SLURM, the cluster's")] = 1,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """The trainings of a sweep in the order they are handed out, what is done of them, their predicted time.

    With --on slurm, the job scripts too.
    Example: lottery plan experiments/imagenet_mobilenet_v2.yaml --on slurm
    """
    home = read_home(experiment, overrides, results)
    if jobs < 1:
        raise Refused(f"--jobs {jobs}: expected 1 or more")
    found = make_plan(home, on, jobs)
    if json_:
        print(json.dumps(asdict(found), indent=1))
        return 0
    print(render(found), end="")
    if on == "slurm":
        scripts(home, arrays.preview(home))
    return 0


def render(found: Plan) -> str:
    """Return a plan as the terminal shows it."""
    table = Table("training", "generation", "epochs", "", "predicted")
    for row in found.trainings:
        length = duration(row.seconds) if row.seconds else "–"
        state = f"{row.left:g} left" if 0 < row.left < row.epochs else row.state
        table.add_row(row.task, str(row.generation), f"{row.epochs:g}", state, length)
    count, to_come = len(found.trainings), found.missing
    epochs = sum(row.left for row in to_come)
    said = f"{count} trainings, {count - len(to_come)} of them done; {epochs:g} epochs to train"
    if found.at_least_seconds is not None:
        seconds = sum(row.seconds_left or 0.0 for row in to_come)
        speed = "the finished tickets'" if found.forecast else "the dense run's"
        said += f": {duration(seconds)} one after the other at {speed} speed"
        if found.at_a_time > 1:
            where = "on the cluster" if found.on == "slurm" else "here"
            said += f"; at least {duration(found.at_least_seconds)} with {found.at_a_time} at a time {where}"
    elif to_come:
        said += "; times are predicted once the dense run has been measured"
    lines = [said, str(found.forecast or ""), str(found.cost), found.power]
    lines += [
        f"{row.task}: its weights at {', '.join(row.again)} are not there; it will be trained again up to there, "
        "and refused if it comes out different"
        for row in reversed(found.trainings)
        if row.again
    ]
    return rendered(table, *filter(None, lines))


def scripts(home: Home, chain: list[Job]) -> None:
    """Show the job scripts as they are submitted, and the commands that would do it by hand."""
    for job in chain:
        console.print(f"--- {home.root / 'slurm' / job.name}.sh\n{job.text}")
    console.print(f"submitted by:\n{sbatch.commands(home.root, chain)}" if chain else "nothing is missing")
