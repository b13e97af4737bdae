"""Weights that come with the momentum they had: a ticket that prunes nothing goes on as the dense run did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models import NETWORKS
from sweep import files
from sweep.experiment import END, Prune, point
from sweep.graph.home import Home
from sweep.graph.snapshot_file import read_memory
from sweep.work.inputs import open_inputs
from sweep.work.worker import Worker
from tests.conftest import smaller
from tests.networks import one_convolution

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(("optimizer", "ways"), [("sgd", (True, False)), ("adamw", (True,))])
def test_only_with_rewound_momentum_an_unpruned_ticket_ends_as_the_dense_run(optimizer, ways, tmp_path, monkeypatch):
    monkeypatch.setitem(NETWORKS, "one_convolution", one_convolution)
    prune, same = Prune(quantiles=(0.0, 0.5), rewind=(point("1ep"),), lr_rewind=(point("2ep"),)), {}
    for kept in ways:
        home = Home(
            tmp_path / str(kept) / "tiny", replace(smaller(optimizer=optimizer, rewind_momentum=kept), prune=prune)
        )
        worker = Worker(home, quiet=True)
        for slug in ("dense-seed0", "ticket-q0.0-k1ep-seed0", "ticket-q0.5-k1ep-seed0"):
            worker.perform(slug)
        paths = [home.snapshot(one, END) for one in home.graph][:3]
        dense, whole, half = (files.read_snapshot(path, worker.program(home.graph.dense[0]).network) for path in paths)
        same[kept] = whole.kernels.tobytes() == dense.kernels.tobytes()
        assert np.mean(half.kernels == 0) == pytest.approx(0.5, abs=1e-3), "pruned weights are not moved by it"
        found = open_inputs(home, home.training("lr_rewind-q0.0-k2ep-seed0"), worker).memory
        assert {name: one.tobytes() for name, one in found.items()} == (
            {name: one.tobytes() for name, one in read_memory(paths[0]).items()} if kept else {}
        )
    assert same == {kept: kept for kept in ways}
