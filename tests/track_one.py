"""One tracked training whose metrics are made up: `python -m tests.track_one FOLDER SLUG`. Many of them run at once."""

from __future__ import annotations

import sys
from pathlib import Path

from sweep import experiment_file, store, tracking
from sweep.store import Store

if __name__ == "__main__":
    root, task = Path(sys.argv[1]), sys.argv[2]
    home = Store(root, experiment_file.load(root / "experiment.yaml"))
    folder = home.cell(task)
    with tracking.tracked(home, task, folder, None, "CPU") as tracker:
        for epoch in range(1, home.experiment.recipe.epochs + 1):
            line = {"epoch": epoch, "seconds": 2.0, "validation_top1": hash((task, epoch)) % 1000 / 1000}
            store.append_metrics(folder, line)
            tracker.epoch()
        store.write_json(folder / "result.json", {"test": {"top1": 0.5}})
