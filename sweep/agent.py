"""A search that wandb's server leads: it hands out the trials, agents run them, here or as a job array."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from sweep import store
from sweep.errors import Refused
from sweep.tracking import hindrance
from sweep.tuning import Tuning


def led_by_server(tuning: Tuning) -> bool:
    return tuning.experiment.track.mode == "online" and not hindrance()


def sweep_id(tuning: Tuning) -> str:
    """Of the wandb sweep; made at the first call and then on record."""
    if tuning.led_by.exists():
        return str(store.read_json(tuning.led_by)["id"])
    import wandb

    track = tuning.experiment.track
    command = [sys.executable, "-m", "sweep.cli", "tune", str(tuning.root.resolve()), "${args_no_hyphens}"]
    config: dict[str, Any] = tuning.search.content | {"name": tuning.root.name, "command": command}
    try:
        made = wandb.sweep(config, project=track.project, entity=track.entity or None)
    except (wandb.Error, ValueError) as error:
        raise Refused(f"wandb: {' '.join(str(error).split())[:300]}") from error
    store.write_json(tuning.led_by, {"id": made, "project": track.project, "entity": track.entity})
    return str(made)


def run_agent(tuning: Tuning, count: int) -> int:
    """Fetch and train so many trials; its exit status."""
    track = tuning.experiment.track
    where = [
        word
        for flag, word in (("--project", track.project), ("--entity", track.entity))
        if word
        for word in (flag, word)
    ]
    words = [sys.executable, "-m", "wandb", "agent", *where, "--count", str(count), sweep_id(tuning)]
    return subprocess.run(words, env=os.environ | {"WANDB_SILENT": "true"}, check=False).returncode
