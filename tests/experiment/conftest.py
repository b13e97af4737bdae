"""A small experiment file, and what it is read as."""

from __future__ import annotations

import pytest

from sweep.experiment import Experiment
from sweep.experiment.file import load

SMALL = """
model: {name: resnet20}
data: {name: digits, validation: 10}
recipe: {epochs: 4, batch: 8}
prune: {quantiles: [0.5, 0.9], rewind: [0, 2ep]}
"""


@pytest.fixture
def written(tmp_path):
    """Writes an experiment file and loads it."""

    def write_and_load(text: str = SMALL, *overrides: str, name: str = "small") -> Experiment:
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        return load(path, overrides)

    return write_and_load
