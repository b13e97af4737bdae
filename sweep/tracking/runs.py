"""wandb runs that mirror the files: one run per training, its history the lines of metrics.jsonl.

Online, every epoch is logged as it ends; after a resume the server says how far it got, and later lines follow.
Offline, a killed run loses what wandb had not written yet, and rows written twice are both uploaded later; so all rows
are logged at the end of each session, and `wandb.json` beside the metrics says how far. Training never waits for a
server: if none can be reached, or the key is wrong, it continues offline.
"""

from __future__ import annotations

import hashlib
import netrc
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweep import files
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.mask_file import Found
from sweep.graph.results import Row
from sweep.graph.snapshot_file import read_weights
from sweep.graph.training import Training
from sweep.progress import console

REACH_SECONDS = 1.0  # timeout for connecting to the server
INIT_SECONDS = 3.0  # timeout for the server to accept the run
_gave_up: list[str] = []  # why this process tracks offline although online was asked for


class Run:
    """The wandb run of one training; without tracking, `run` is None and nothing is logged."""

    def __init__(self, run: Any, folder: Path, live: bool, last: int) -> None:
        self.run, self.folder, self.live, self.last = run, folder, live, last
        noted = _noted(folder) if run and not live else {}
        self.mirrored = int((run.summary if live else noted).get("epoch") or 0)
        self.extra: dict[str, Any] = {}  # logged with the last epoch

    def epoch(self) -> None:
        if self.live:
            with tolerated("an epoch was not logged"):
                self._catch_up(self.last - 1)

    def _catch_up(self, until: int) -> None:
        """Log the lines up to epoch `until` that are not logged yet."""
        for line in files.read_metrics(self.folder):
            if self.mirrored < line["epoch"] <= until:
                self.run.log(line | (self.extra if line["epoch"] == self.last else {}))
                self.mirrored = line["epoch"]

    def close(self, failed: bool) -> None:
        self._catch_up(self.last)
        if self.extra and self.mirrored < self.last:  # recipe.stop_at has ended it before
            self.run.log({"epoch": self.mirrored} | self.extra)
        result = self.folder / "result.json"
        if result.exists():
            self.run.summary.update(_flat({k: v for k, v in files.read_json(result).items() if k != "runs"}))
        self.run.finish(exit_code=1 if failed else 0)
        if not self.live:  # only now are the rows surely in wandb's file
            files.write_json(self.folder / "wandb.json", _noted(self.folder) | {"epoch": self.mirrored})


@contextmanager
def tolerated(what: str) -> Iterator[None]:
    """Print errors of wandb instead of failing the training: metrics.jsonl has everything."""
    try:
        yield
    except Exception as error:
        console.print(f"wandb: {what}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def run_id(name: str) -> str:
    """Return the wandb id for a name, the same for every experiment."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def id_of(folder: Path) -> str:
    """Return a training's wandb id: the same for every session, another one if it was deleted and trained again."""
    return run_id(f"{folder.name} {word}" if (word := _noted(folder).get("life")) else folder.name)


@contextmanager
def tracked(home: Home, training: Training, folder: Path, hardware: str, mask: Found | None = None) -> Iterator[Run]:
    """Mirror one training to wandb while it runs in this process."""
    if home.experiment.track.mode == "disabled":
        yield Run(None, folder, live=False, last=0)
        return
    kind = training.kind if training.kind in ("dense", "source", "ticket") else "control"
    if not _noted(folder) and not files.read_metrics(folder):
        files.write_json(folder / "wandb.json", {"epoch": 0, "life": uuid.uuid4().hex[:8]})
    run, live = _begin(home, id_of(folder), training.slug, kind, _config(home, training, hardware, mask))
    tracker, failed = Run(run, folder, live, training.recipe.epochs), True
    try:
        yield tracker
        failed = False
    finally:
        with tolerated("the run was not closed"):
            tracker.close(failed)


def track_report(home: Home, rows: Sequence[Row], paths: list[Path]) -> None:
    """Log the table of results and the figures as a run of the sweep itself."""
    if home.experiment.track.mode == "disabled":
        return
    import wandb

    run, _ = _begin(home, run_id(f"summary of {home.root.name}"), "summary", "summary", {})
    table = wandb.Table(columns=list(asdict(rows[0])), data=[list(asdict(row).values()) for row in rows])
    run.log({"results": table, **{path.stem: wandb.Image(str(path)) for path in paths if path.suffix == ".png"}})
    run.finish()


def track_weights(home: Home, training: Training, tracker: Run) -> None:
    """Log the histogram and quantiles of a dense run's final weights."""
    if tracker.run is None:
        return
    import numpy as np
    import wandb

    from sweep.pruning.statistics import weight_statistics

    with tolerated("the weights were not logged"):
        network, weights, _ = read_weights(home.snapshot(training, END))
        found = weight_statistics(network, weights)
        rows = [[key, *(found[n][key] for n in found)] for key in found["all"]]
        histogram = wandb.Histogram(np_histogram=np.histogram(weights.kernels, 128))
        table = wandb.Table(columns=["", *found], data=rows)
        tracker.extra = {"prunable weights": histogram, "weight statistics": table}


def _begin(home: Home, id_: str, name: str, kind: str, config: dict[str, Any]) -> tuple[Any, bool]:
    """Return a new or resumed wandb run, and whether it is online."""
    import wandb

    track = home.experiment.track
    settings = wandb.Settings(
        init_timeout=INIT_SECONDS, console="off", disable_git=True, x_save_requirements=False, silent=True,
        x_disable_meta=True, finish_timeout=30.0,
    )  # fmt: skip
    wanted: dict[str, Any] = {
        "id": id_, "resume": "allow", "name": name, "group": home.experiment.name, "job_type": kind,
        "project": track.project, "entity": track.entity or None, "config": config, "dir": str(home.root),
        "tags": [home.experiment.name, kind], "settings": settings,
    }  # fmt: skip
    if track.mode == "online" and not _gave_up:
        why = hindrance()
        if not why:
            try:
                return _defined(wandb.init(mode="online", **wanted)), True
            except wandb.Error as error:
                why = " ".join(str(error).split())[:200]
                wandb.teardown(exit_code=1)  # else wandb considers the id in use
        _gave_up.append(why)  # later trainings of this process do not try again
        console.print(f"wandb: {why}; going on offline, `lottery wandb sync` brings it up later")
    return _defined(wandb.init(mode="offline", **wanted)), False


def _defined(run: Any) -> Any:
    run.define_metric("epoch")
    run.define_metric("*", step_metric="epoch")  # wandb's own steps shift when parts of a run are joined
    return run


def hindrance() -> str:
    """Return why the wandb server cannot be used, or ""."""
    url = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai")
    host = url.hostname or ""
    try:
        key = os.environ.get("WANDB_API_KEY") or netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        key = None
    if not key:
        return "no key (WANDB_API_KEY, or wandb login)"
    try:
        socket.create_connection((host, url.port or (443 if url.scheme == "https" else 80)), REACH_SECONDS).close()
    except OSError as error:
        return f"{host} cannot be reached ({error})"
    return ""


def _noted(folder: Path) -> dict[str, Any]:
    return files.read_json_if_there(folder / "wandb.json", {"epoch": int, "life?": str}) or {}


def _config(home: Home, training: Training, hardware: str, found: Found | None) -> dict[str, Any]:
    recipe = training.recipe
    out: dict[str, Any] = {
        "experiment": home.experiment.name, "training": training.name, "model": training.model.name,
        "width": training.model.width, "data": training.data.name, "epochs": recipe.epochs, "batch": recipe.batch,
        "learning_rate": recipe.learning_rate, "hardware": hardware, "seed": training.seed, "kind": training.kind,
    }  # fmt: skip
    if found and training.mask:
        level = training.mask.level
        out |= {
            "rewind": str(training.rewound), "density": found.density, "threshold": found.threshold,
            level.kind: level.value,
        }  # fmt: skip
    return out


def _flat(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with nested keys joined by _.

    >>> _flat({"test": {"top1": 0.5}, "density": 0.2})
    {'test_top1': 0.5, 'density': 0.2}
    """
    out: dict[str, Any] = {}
    for name, value in result.items():
        out |= {f"{name}_{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return out
