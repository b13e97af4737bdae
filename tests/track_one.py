"""One tracked training whose metrics are made up: `python -m tests.track_one FOLDER SLUG`. Many of them run at once."""

from __future__ import annotations

import sys
from pathlib import Path

from sweep import files as store
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.tracking import runs as tracking

if __name__ == "__main__":
    root, task = Path(sys.argv[1]), sys.argv[2]
    home = Home(root, experiment_file.load(root / "experiment.yaml"))
    folder = home.folder_of(task)
    with tracking.tracked(home, home.training(task), folder, "CPU") as tracker:
        for epoch in range(1, home.experiment.recipe.epochs + 1):
            times = {"seconds": 2.0, "evaluation_seconds": 0.5}
            store.append_metrics(
                folder, {"epoch": epoch, "validation_top1": hash((task, epoch)) % 1000 / 1000, **times}
            )
            tracker.epoch()
        store.write_json(folder / "result.json", {"test": {"top1": 0.5}})
