"""A search that wandb's server leads: it hands out the trials, agents run them, here or as a job array."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sweep import files
from sweep.errors import Interrupted, Refused
from sweep.graph.claim import alive
from sweep.interrupt import stoppable
from sweep.tracking.runs import hindrance
from sweep.tuning.trials import Tuning


def led_by_server(tuning: Tuning) -> bool:
    return tuning.experiment.track.mode == "online" and not hindrance()


def sweep_id(tuning: Tuning) -> str:
    """Of the wandb sweep; made at the first call and then on record."""
    if tuning.led_by.exists():
        return str(files.read_json(tuning.led_by, {"id": str})["id"])
    import wandb

    track = tuning.experiment.track
    command = [sys.executable, "-m", "lottery", "tune", str(tuning.root.resolve()), "${args_no_hyphens}"]
    config: dict[str, Any] = tuning.search.content | {"name": tuning.root.name, "command": command}
    try:
        made = wandb.sweep(config, project=track.project, entity=track.entity or None)
    except (wandb.Error, ValueError) as error:
        raise Refused(f"wandb: {' '.join(str(error).split())[:300]}") from error
    files.write_json(tuning.led_by, {"id": made, "project": track.project, "entity": track.entity})
    return str(made)


def run_agent(tuning: Tuning, count: int) -> int:
    """Fetch and train so many trials; its exit status. Asked to stop, it lets the trial under way save itself."""
    track = tuning.experiment.track
    where = ["--project", track.project]
    if track.entity:
        where += ["--entity", track.entity]
    words = [sys.executable, "-m", "wandb", "agent", *where, "--count", str(count), sweep_id(tuning)]
    with stoppable() as stop:
        # a session of its own: Ctrl-C reaches this process alone, which knows how to stop the others
        agent = subprocess.Popen(words, env=os.environ | {"WANDB_SILENT": "true"}, start_new_session=True)
        while agent.poll() is None:
            if stop.requested:
                _stop(agent)
                raise Interrupted(f"{tuning.root.name}: stopped; run again to continue")
            time.sleep(0.1)
    return agent.returncode


def _stop(agent: subprocess.Popen[bytes]) -> None:
    """End the agent once its trial has saved itself."""
    os.kill(agent.pid, signal.SIGSTOP)  # or it would begin the next trial
    threads = Path(f"/proc/{agent.pid}/task").glob("*/children")
    children = [int(pid) for listed in threads for pid in listed.read_text().split()]
    trials = [pid for pid in children if os.getsid(pid) == agent.pid]  # wandb's own helper has a session of its own
    for pid in trials:
        os.kill(pid, signal.SIGUSR1)
    try:
        while any(alive(pid) for pid in trials):
            time.sleep(0.1)
    finally:  # also where a person asks twice
        for pid in trials:
            os.kill(pid, signal.SIGKILL)  # of a zombie nothing; it stays one while its parent sleeps
        agent.kill()
        agent.wait()
