"""The commands `lottery wandb …`."""

from __future__ import annotations

import subprocess
import sys

from cyclopts import App

from lottery.cli.find import RESULTS, ExperimentName, Override, Results, read_home
from sweep.errors import Refused
from sweep.progress import console
from sweep.report.findings import findings, in_markdown
from sweep.tracking.dashboard import publish_report, publish_workspace

app = App(name="wandb", help="Upload a sweep to wandb.", group_commands="Commands")


@app.command
def sync(experiment: ExperimentName, *, results: Results = RESULTS) -> None:
    """Upload what was tracked offline, in order; runs uploaded before are left out.

    Example: lottery wandb sync cifar10_resnet20
    """
    home = read_home(experiment, (), results)
    folder = home.root / "wandb"
    waiting = [run for run in sorted(folder.glob("offline-run-*")) if not list(run.glob("*.wandb.synced"))]
    if not waiting:
        return console.print(f"nothing to upload: no offline runs in {folder}")
    console.print(f"{len(waiting)} offline runs")
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", "--yes", str(folder)], check=False)
    if done.returncode:
        raise Refused(f"wandb sync: exit status {done.returncode}; what was not uploaded stays in {folder}")


@app.command
def dashboard(experiment: ExperimentName, *overrides: Override, results: Results = RESULTS) -> None:
    """Create or update the sweep's workspace on the wandb server; without a server, write it to a file.

    Example: lottery wandb dashboard cifar10_resnet20 track.mode=online
    """
    path, url = publish_workspace(read_home(experiment, overrides, results))
    console.print(f"the dashboard is at {url}" if url else f"no server was asked; the dashboard is described in {path}")


@app.command
def report(experiment: ExperimentName, *overrides: Override, results: Results = RESULTS) -> None:
    """Create or update a Report of the sweep on the wandb server; without a server, write it to a file.

    It starts as report.html: the answer, the verdict on every ticket, the rule.
    Example: lottery wandb report cifar10_resnet20 track.mode=online
    """
    home = read_home(experiment, overrides, results)
    path, url = publish_report(home, in_markdown(findings(home)))
    console.print(f"the report is at {url}" if url else f"no server was asked; the report is described in {path}")
