"""The ImageNet experiment as it is shipped, on a few photographs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import lottery
from tests.photographs import take


@pytest.mark.tensorflow
@pytest.mark.drill
def test_the_imagenet_experiment_trains_on_four_devices_at_its_real_size(tmp_path):
    """Two steps of the whole network at 224 pixels; all else as the file says."""
    lottery("data", "prepare", take(tmp_path, 60), tmp_path / "shards")
    fields = {
        "data.path": tmp_path / "shards", "data.validation": 32, "recipe.batch": 8,
        "recipe.norm_images": 2,
        "recipe.epochs": 1, "recipe.warmup_epochs": 0, "recipe.precision": "float32", "prune.rewind": "[0]",
        "seeds": "[0]", "prune.control_rewind": "[0]",
    }  # fmt: skip
    file = Path(__file__).parents[3] / "experiments/imagenet_mobilenet_v2.yaml"
    overrides = [f"{name}={value}" for name, value in fields.items()]
    lottery("train", file, *overrides, "--devices", 4, "--results", tmp_path / "results")
    (metrics,) = tmp_path.glob("results/trainings/dense-*/metrics.jsonl")
    (line,) = map(json.loads, metrics.read_text().splitlines())
    assert 0 < line["train_loss"] < 20 and "data_wait_share" in line
