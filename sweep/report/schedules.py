"""One-shot and iterative pruning side by side: what the pool has of the other one, on the same dense runs."""

from __future__ import annotations

from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home, descriptions
from sweep.graph.results import Row, collect
from sweep.progress import console


def schedule(experiment: Experiment) -> str:
    return "in rounds" if experiment.prune.rounds > 1 else "one-shot"


def other_schedule(home: Home) -> list[Row]:
    """Return ended tickets of the pool with the other schedule, but the same methods, points and dense runs."""
    ours = {training.name for training in home.graph.dense}
    methods, points = ({str(one) for one in of} for of in (home.experiment.prune.methods, home.experiment.prune.rewind))
    out: dict[str, Row] = {}
    for described in descriptions(home.pool):
        try:
            other = Home(described.parent, experiment_file.load(described))
            same = {training.seed for training in other.graph.dense if training.name in ours}
            if same and schedule(other.experiment) != schedule(home.experiment):
                out |= {
                    row.training: row for row in collect(other)
                    if row.kind == "ticket" and (row.measured or row.lost) and row.seed in same
                    and row.method in methods and row.rewind in points
                }  # fmt: skip
        except Refused as error:
            console.print(f"{error}; {described.parent.name} is not drawn beside {home.experiment.name}")
    return list(out.values())
