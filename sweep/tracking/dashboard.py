"""The wandb workspace of a sweep, as code: what it shows is a function of the experiment.

Online it is made once and brought up to date from then on; `report/dashboard.json` says where it is. Without a server
the same file holds its definition, as wandb's own client would have sent it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.graph.home import Home
from sweep.tracking.runs import hindrance

FIGURES = ["heatmap", "accuracy"]  # of the sweep's summary run


def workspace(experiment: Experiment, entity: str) -> Any:
    """Accuracy against density, heat map, learning curves and cost of all runs of the experiment."""
    import wandb_workspaces.reports.v2 as panels
    import wandb_workspaces.workspaces as workspaces

    density, rewind = panels.Config("density"), panels.Config("rewind")
    accuracy = panels.SummaryMetric("test_top1")
    sections = {
        "Which tickets match the dense network?": [
            panels.ScatterPlot(
                title="test accuracy and remaining weights; colour: rewind point", x=density, y=accuracy, z=rewind
            ),
            panels.ParallelCoordinatesPlot(
                title="rewind point, remaining weights, test accuracy",
                columns=[panels.ParallelCoordinatesPlotColumn(metric) for metric in (rewind, density, accuracy)],
            ),
            panels.MediaBrowser(title="heat map and curves", media_keys=FIGURES),
        ],
        "Learning curves": [
            panels.LinePlot(title=name, x="epoch", y=[name], max_runs_to_show=200)
            for name in ("validation_top1", "train_loss", "learning_rate")
        ],
        "Cost": [
            panels.BarPlot(title="seconds of training", metrics=["seconds"], max_runs_to_show=200),
            *(
                panels.LinePlot(title=title, x="epoch", y=[name], max_runs_to_show=200)
                for name, title in (
                    ("images_per_second", "images per second"),
                    ("data_wait_share", "share of the time spent waiting for data"),
                )
            ),
        ],
    }
    return workspaces.Workspace(
        entity=entity,
        project=experiment.track.project,
        name=experiment.name,
        sections=[workspaces.Section(name=name, panels=list(made), is_open=True) for name, made in sections.items()],
        settings=workspaces.WorkspaceSettings(x_axis="epoch"),
        runset_settings=workspaces.RunsetSettings(filters=f"Group = '{experiment.name}'"),
    )


def publish(home: Home) -> tuple[Path, str]:
    """The file that describes the dashboard, and its address; empty where no server was asked."""
    track, path = home.experiment.track, home.report / "dashboard.json"
    if track.mode != "online" or hindrance():
        made = workspace(home.experiment, track.entity or "entity")
        # what `save` sends; the library has no public way to have it without a server
        spec = made._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        files.write_json(path, {"name": made.name, "project": made.project, "spec": spec})
        return path, ""
    import wandb
    import wandb_workspaces.workspaces as workspaces

    before = json.loads(path.read_text()).get("url") if path.exists() else None
    try:
        made = workspace(home.experiment, track.entity or str(wandb.Api().default_entity))
        if before:
            there = workspaces.Workspace.from_url(before)
            there.sections, there.runset_settings, there.settings = made.sections, made.runset_settings, made.settings
            made = there
        made.save()
    except (ValueError, wandb.Error) as error:
        raise Refused(f"wandb: {' '.join(str(error).split())[:300]}; to make a new dashboard delete {path}") from error
    files.write_json(path, {"name": made.name, "project": made.project, "url": made.url})
    return path, made.url
