"""Sweeps whose cells sleep (tests/pretend.py): where only the cluster's side matters."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from sweep import experiment_file
from sweep.experiment import Cluster, check
from sweep.plan import cells, epochs_of
from sweep.store import Store
from tests import made_up
from tests.sweeping import lottery

PRETEND = f"{sys.executable} {Path(__file__).parent / 'pretend.py'}"
SMALL = Cluster(cpus_per_gpu=1, memory_per_gpu="100M")


def sleeping(tmp_path: Path, seconds: float, cluster: Cluster = SMALL, epochs: int = 4, **prune) -> tuple[Path, Store]:
    """An experiment whose cells sleep `seconds` per epoch; its file and its folder. The dense run is done."""
    cluster = dataclasses.replace(cluster, container=PRETEND)
    made = made_up.experiment()
    experiment = dataclasses.replace(
        made, cluster=cluster, recipe=dataclasses.replace(made.recipe, epochs=epochs),
        prune=dataclasses.replace(made.prune, **prune),
    )  # fmt: skip
    check(experiment)
    file = tmp_path / "small.yaml"
    file.write_text(experiment_file.dump(experiment))
    home = Store(tmp_path / "results" / experiment.folder, experiment)
    made_up.epochs(made_up.finish(home, "dense-seed0", 0.5), 4, seconds - 0.5)
    told = [{"slug": cell.slug, "seconds": seconds * epochs_of(cell, experiment)} for cell in cells(experiment)]
    (home.root / "pretend.json").write_text(json.dumps(told))
    return file, home


def submit(file: Path, home: Store, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    return lottery("sweep", file, "--on", "slurm", "--results", home.root.parent, *words, check=status)


def ran(home: Store) -> list[dict]:
    path = home.root / "pretended.jsonl"
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
