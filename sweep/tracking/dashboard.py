"""The wandb workspace and Report of a sweep, made by code; they show what the report page shows.

Online, each is made once and updated later; a file in the report's folder has its address. Without a server that file
holds its definition, as wandb's client would send it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.graph.home import Home
from sweep.tracking.runs import hindrance

FIGURES = ["accuracy", "multiply_adds", "heatmap", "differences", "rewinds", "gains", "instability"]  # of the report
LEARNING = ("validation_top1", "train_top1", "validation_top5", "validation_loss", "train_loss", "learning_rate")
SPEED = {"images_per_second": "images per second", "data_wait_share": "share of the time spent waiting for data",
         "gpu_busy_share": "share of the time the GPU was busy", "gpu_memory_gib": "memory in use on the GPU (GiB)",
         "gpu_power_watts": "power of the GPU (W)", "step_ms_p95": "step time, 95 % of calls below (ms)"}  # fmt: skip
RUNS = 200  # most runs in a panel


def publish_workspace(home: Home) -> tuple[Path, str]:
    """Write or update the workspace; return the file that describes it and its address ("" if not online)."""
    return _publish(home, "dashboard", lambda entity: workspace(home.experiment, entity))


def publish_report(home: Home, words: str) -> tuple[Path, str]:
    """Write or update the Report; return its file and its address; `words`: Markdown above the panels."""
    return _publish(home, "wandb-report", lambda entity: report(home.experiment, entity, words))


def workspace(experiment: Experiment, entity: str) -> Any:
    import wandb_workspaces.workspaces as workspaces

    made = workspaces.Workspace(
        entity=entity,
        project=experiment.track.project,
        name=experiment.name,
        sections=[workspaces.Section(name=name, panels=made, is_open=True) for name, made in views().items()],
        settings=workspaces.WorkspaceSettings(x_axis="epoch"),
        runset_settings=workspaces.RunsetSettings(filters=f"Group = '{experiment.name}'"),
    )
    # wandb-workspaces 0.4.13 drops every "nw-" from a name when it makes the address: its own names of letters may end
    # in "nw", and such a workspace is never found again. Hexadecimal digits cannot.
    made._internal_name = f"nw-{secrets.token_hex(6)}-v"
    return made


def report(experiment: Experiment, entity: str, words: str) -> Any:
    import wandb_workspaces.reports.v2 as reports

    runs = reports.Runset(name=experiment.name, filters=f"Group = '{experiment.name}'")  # of the Report's own project
    blocks: list[Any] = [reports.MarkdownBlock(words)]
    for title, made in views().items():
        blocks += [reports.H2(title), reports.PanelGrid(runsets=[runs], panels=made)]
    return reports.Report(
        project=experiment.track.project, entity=entity, title=experiment.name, blocks=blocks, width="fluid"
    )


def views() -> dict[str, list[Any]]:
    """Return the panels by their heading."""
    import wandb_workspaces.reports.v2 as panels

    density, rewind = panels.Config("density"), panels.Config("rewind")
    accuracy = panels.SummaryMetric("test_top1")

    def curve(name: str, title: str) -> Any:
        return panels.LinePlot(title=title, x="epoch", y=[name], max_runs_to_show=RUNS)

    def scatter(x: Any, colour: Any, title: str) -> Any:
        return panels.ScatterPlot(title=f"test accuracy and {title}", x=x, y=accuracy, z=colour)

    return {
        "Which tickets match the dense network?": [
            scatter(density, rewind, "remaining weights; colour: rewind point"),
            scatter(rewind, density, "rewind point; colour: remaining weights"),
            scatter(density, panels.Config("kind"), "remaining weights; colour: ticket, control or other retraining"),
            panels.ParallelCoordinatesPlot(
                title="rewind point, remaining weights, test accuracy",
                columns=[panels.ParallelCoordinatesPlotColumn(metric) for metric in (rewind, density, accuracy)],
            ),
            panels.MediaBrowser(title="the figures of the report", media_keys=FIGURES),
        ],
        "Learning curves": [curve(name, name) for name in LEARNING],
        "Cost": [
            panels.BarPlot(title="seconds of training", metrics=["seconds"], max_runs_to_show=RUNS),
            *(curve(name, title) for name, title in SPEED.items()),
        ],
    }


def _publish(home: Home, name: str, make: Callable[[str], Any]) -> tuple[Path, str]:
    track, path = home.experiment.track, home.report / f"{name}.json"
    before = (files.read_json_if_there(path, {"url?": str}) or {}).get("url")
    if track.mode != "online" or hindrance():
        # what `save` would send; the library has no public way to get it without a server
        spec = make(track.entity or "entity")._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        known = {"url": before} if before else {}  # so that the next online run updates it
        files.write_json(path, {"name": home.experiment.name, "project": track.project, **known, "spec": spec})
        return path, ""
    import wandb
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError  # no wandb.Error

    try:
        made = make(track.entity or str(wandb.Api().default_entity))
        if before:  # update the existing one, which may have been renamed or moved
            try:
                there = type(made).from_url(before)
            except TypeError:  # the library indexes into None if a Report was deleted
                raise ValueError(f"{before}: not found") from None
            for part in ("sections", "runset_settings", "settings", "blocks"):
                if hasattr(made, part):
                    setattr(there, part, getattr(made, part))
            made = there
        made.save()
    except (ValueError, wandb.Error, WandbApiFailedError) as error:
        raise Refused(f"wandb: {' '.join(str(error).split())[:300]}; to make it anew delete {path}") from error
    files.write_json(path, {"name": home.experiment.name, "project": track.project, "url": made.url})
    return path, str(made.url)
