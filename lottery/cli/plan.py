"""The command `lottery plan`: trainings of a sweep, what is done, their predicted time, their job scripts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, On, Override, Results, read_home
from slurm import arrays, sbatch
from slurm.sbatch import Job
from sweep import progress
from sweep.errors import Refused
from sweep.experiment.point import in_order
from sweep.graph.home import Home
from sweep.graph.results import collect
from sweep.graph.state import cost_of, epochs_left, folders, forecast, missing, predicted_seconds
from sweep.progress import console, duration
from sweep.report.verdict import power


@dataclass(frozen=True)
class Planned:
    """One row of the plan."""

    task: str
    training: str  # its name in the pool
    kind: str
    generation: int
    rewind: str
    epochs: float
    left: float  # of them, still to be trained
    state: str
    seconds: float | None  # of all its epochs; None before the dense run was measured
    again: list[str]  # points whose weights are wanted and not there, of one that is done: it is trained up to them


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
    cluster = home.experiment.cluster
    if jobs < 1:
        raise Refused(f"--jobs {jobs}: expected 1 or more")
    on_each = cluster.gpus_per_cell if on == "slurm" else 0  # here as many devices as the dense run had
    so_far = forecast(home)
    predicted = {
        slug: seconds * (so_far.ratio if so_far else 1.0)
        for slug, seconds in (predicted_seconds(home, on_each) or {}).items()
    }
    lacking = home.missing_points()
    begun = folders(home)
    left = {
        training.name: epochs_left(home, training, lacking.get(training.name, ()))
        if training.name in begun
        else training.epochs
        for training in missing(home)
    }
    rows = [
        Planned(
            task=training.slug,
            training=training.name,
            kind=training.kind,
            generation=training.generation,
            rewind=str(training.begin),
            epochs=training.epochs,
            left=left.get(training.name, 0.0),
            state="missing" if training.name in left else "done",
            seconds=predicted.get(training.slug),
            again=in_order(map(str, lacking.get(training.name, ()))),
        )
        for training in home.graph
    ]
    to_come = [row for row in rows if row.state == "missing"]
    seconds = [row.seconds * row.left / (row.epochs or 1) for row in to_come if row.seconds is not None]
    together = sbatch.together(cluster) if on == "slurm" else jobs
    bound = max(sum(seconds) / together, *seconds) if seconds else None  # no order of the tickets can end sooner
    if json_:
        found = {
            "folder": str(home.root),
            "at_least_seconds": bound,
            "forecast": asdict(so_far) if so_far else None,
            "cost": asdict(cost_of(home)),
            "trainings": [asdict(row) for row in rows],
        }
        print(json.dumps(found, indent=1))
        return 0
    table = Table("training", "generation", "epochs", "", "predicted")
    for row in rows:
        length = duration(row.seconds) if row.seconds else "–"
        state = f"{row.left:g} left" if 0 < row.left < row.epochs else row.state
        table.add_row(row.task, str(row.generation), f"{row.epochs:g}", state, length)
    progress.show(table)
    epochs = sum(row.left for row in to_come)
    said = f"{len(rows)} trainings, {len(rows) - len(to_come)} of them done; {epochs:g} epochs to train"
    if bound is not None:
        speed = "the finished tickets'" if so_far else "the dense run's"
        where = "on the cluster" if on == "slurm" else "here"
        said += f": {duration(sum(seconds))} one after the other at {speed} speed"
        said += f"; at least {duration(bound)} with {together} at a time {where}" if together > 1 else ""
    elif to_come:
        said += "; times are predicted once the dense run has been measured"
    console.print(said)
    if so_far:
        console.print(str(so_far))
    console.print(str(cost_of(home)))
    if said := power(collect(home)):
        console.print(said)
    _say_replays(home)
    if on == "slurm":
        scripts(home, arrays.preview(home))
    return 0


def _say_replays(home: Home) -> None:
    """Finished trainings whose weights at a point are wanted and not there."""
    for name, points in home.missing_points().items():
        words = ", ".join(in_order(map(str, points)))
        console.print(
            f"{home.training(name).slug}: its weights at {words} are not there; it will be trained again up to there, "
            "and refused if it comes out different"
        )


def scripts(home: Home, chain: list[Job]) -> None:
    """The job scripts as they are submitted, and the commands that would do it by hand."""
    for job in chain:
        console.print(f"--- {home.root / 'slurm' / job.name}.sh\n{job.text}")
    console.print(f"submitted by:\n{sbatch.commands(home.root, chain)}" if chain else "nothing is missing")
