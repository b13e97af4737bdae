"""A finished dense run: its weights at two points and at the end, each of other numbers."""

from __future__ import annotations

import shutil
from functools import cache

import numpy as np
import pytest

from models import Weights
from sweep.graph.home import Home
from tests import synthetic

QUANTILES = (0.0, 0.5, 0.9, 0.99)
CONTROLS = ("fresh", "shuffled", "random")
RETRAINED = synthetic.points(0, 2)
FINAL_SEED = 9  # stands for the end of the training; epoch k has the values of seed k


@cache
def weights_of(seed: int) -> Weights:
    """Weights in which every number, statistics too, is another one for every seed."""
    kernels, others, statistics = synthetic.network().initial(seed)
    return Weights(kernels, others + np.float32(seed), statistics + np.float32(seed / 8))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A finished dense run, to be read only."""
    asked = synthetic.experiment(quantiles=QUANTILES, thresholds=(0.1,), controls=CONTROLS, lr_rewind=RETRAINED)
    home = Home(tmp_path_factory.mktemp("results") / "small", asked)
    synthetic.finish(home, "dense-seed0", 0.9)
    for epoch in (0, 2):
        synthetic.write_snapshot(home, weights_of(epoch), epoch)
    synthetic.write_snapshot(home, weights_of(FINAL_SEED), None)
    return home


@pytest.fixture
def own(home, tmp_path):
    """A finished dense run of one's own, to be changed."""
    shutil.copytree(home.pool, tmp_path / "own")
    return Home(tmp_path / "own" / "small", home.experiment)
