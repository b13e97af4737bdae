"""What wandb costs a training."""

from __future__ import annotations

import dataclasses
import time

import pytest

from sweep import files as store
from sweep.experiment import Track
from sweep.graph.home import Home
from sweep.tracking import runs as tracking
from tests import synthetic
from tests.tracking.test_tracking import KEY, anew, refusing, server  # noqa: F401 - fixtures

pytestmark = pytest.mark.perf
EPOCH = 1.13  # seconds: the shortest one known, ResNet-20 on CIFAR-10 with an H200


def online(tmp_path, epochs: int) -> Home:
    made = synthetic.experiment()
    recipe = dataclasses.replace(made.recipe, epochs=epochs)
    return Home(tmp_path / "home", dataclasses.replace(made, recipe=recipe, track=Track("online")))


def test_logging_an_epoch(server, tmp_path, figure):  # noqa: F811
    home, took = online(tmp_path, 30), 0.0
    folder = synthetic.dense(home)
    with tracking.tracked(home, home.training("dense-seed0"), folder, "CPU") as tracker:
        for epoch in range(1, 31):
            store.append_metrics(folder, {"epoch": epoch, "seconds": 2.0, "evaluation_seconds": 0.5})
            began = time.perf_counter()
            tracker.epoch()
            took += time.perf_counter() - began
    figure("logging an epoch to wandb, of the shortest epoch", 100 * took / 30 / EPOCH, "%", at_most=0.5)


@pytest.mark.parametrize("case", ["no key", "no network", "wrong key"])
def test_going_on_offline(case, refusing, tmp_path, monkeypatch, figure):  # noqa: F811
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", refusing if case == "wrong key" else "http://127.0.0.1:9")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    if case != "no key":
        monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(tracking, "_gave_up", [])
    home = online(tmp_path, 4)
    import wandb  # noqa: F401 - loading it is not part of the delay

    began = time.monotonic()
    with tracking.tracked(home, home.training("dense-seed0"), synthetic.dense(home), "CPU"):
        figure(f"training waits for wandb: {case}", time.monotonic() - began, "s", at_most=5)
