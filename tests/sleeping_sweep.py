"""Sweeps whose cells sleep (tests/sleeping_job.py): where only the cluster's side matters."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from sweep.experiment import Cluster, check
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from tests import synthetic
from tests.commands import lottery

SLEEPING_JOB = f"{sys.executable} {Path(__file__).parent / 'sleeping_job.py'}"
SMALL = Cluster(cpus_per_gpu=1, memory_per_gpu="100M")


def sleeping_sweep(
    tmp_path: Path, seconds: float, cluster: Cluster = SMALL, epochs: int = 4, **prune
) -> tuple[Path, Home]:
    """An experiment whose cells sleep `seconds` per epoch; its file and its folder. The dense run is done."""
    cluster = dataclasses.replace(cluster, container=SLEEPING_JOB)
    made = synthetic.experiment()
    experiment = dataclasses.replace(
        made, cluster=cluster, recipe=dataclasses.replace(made.recipe, epochs=epochs, norm_images=1),
        prune=dataclasses.replace(made.prune, **prune),
    )  # fmt: skip
    check(experiment)
    file = tmp_path / "small.yaml"
    file.write_text(experiment_file.dump(experiment))
    home = Home(tmp_path / "results" / experiment.name, experiment)
    dense = synthetic.finish(home, "dense-seed0", 0.5)
    synthetic.epochs(dense, 4, seconds - 0.5)
    for training in home.graph:
        for at in home.graph.points_of(training):
            synthetic.files.write_text(home.snapshot(training, at), "")
    tickets = [training for training in home.graph if training.mask]
    asked = {
        "seconds": {training.name: seconds * training.epochs for training in tickets},
        "masks": [str(home.mask(training.mask.as_made)) for training in tickets],
    }
    synthetic.files.write_json(home.root / "sleep.json", asked)
    return file, home


def sleep_for(home: Home, seconds: float, *tasks: str) -> None:
    """So long these tasks sleep from their next start on."""
    asked = json.loads((home.root / "sleep.json").read_text())
    asked["seconds"] |= {home.training(task).name: seconds for task in tasks}
    synthetic.files.write_json(home.root / "sleep.json", asked)


def submit(file: Path, home: Home, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    return lottery("sweep", file, "--on", "slurm", "--results", home.pool, *words, check=status)


def ran(home: Home) -> list[dict]:
    path = home.root / "slept.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def evenly(count: int) -> tuple[float, ...]:
    return tuple(i / count for i in range(count))


def most_together(lines: list[dict]) -> int:
    """The largest number of cells that slept at the same time."""
    moments = sorted([(line["began"], 1) for line in lines] + [(line["ended"], -1) for line in lines])
    together, most = 0, 0
    for _, change in moments:
        together += change
        most = max(most, together)
    return most
