"""Tracked trainings with made-up metrics, each in a process of its own, all at once: `python -m tests.track_many HOME`.

The processes are forked where everything is imported: what they share is the code, not a connection to wandb.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import wandb  # noqa: F401  (before the processes part)

from sweep import files as store
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.tracking import runs as tracking


def track(home: Home, task: str) -> None:
    folder = home.folder_of(task)
    with tracking.tracked(home, home.training(task), folder, "CPU") as tracker:
        for epoch in range(1, home.experiment.recipe.epochs + 1):
            figures = {"seconds": 2.0, "evaluation_seconds": 0.5, "validation_top1": hash((task, epoch)) % 1000 / 1000}
            store.append_metrics(folder, {"epoch": epoch, **figures})
            tracker.epoch()
        store.write_json(folder / "result.json", {"test": {"top1": 0.5}})


if __name__ == "__main__":
    root = Path(sys.argv[1])
    home = Home(root, experiment_file.load(root / "experiment.yaml"))
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=track, args=(home, training.slug)) for training in home.graph]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))
