"""How fast a cluster gets its work."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from tests import synthetic
from tests.commands import lottery
from tests.sleeping_sweep import SMALL, evenly, most_together, ran, sleeping_sweep, submit
from tests.slurm_cluster import until

pytestmark = pytest.mark.perf


def test_160_cells_on_20_nodes(slurm, tmp_path, figure):
    cluster = dataclasses.replace(SMALL, gpus_per_cell=2)
    file, home = sleeping_sweep(tmp_path, 1.2, cluster, 10, quantiles=evenly(20), rewind=synthetic.points(*range(8)))
    bound = json.loads(lottery("plan", file, "--on", "slurm", "--json", "--results", home.pool).stdout)[
        "at_least_seconds"
    ]
    submit(file, home)
    until(lambda: len(ran(home)) == 160, 300)
    lines = ran(home)
    took = max(line["ended"] for line in lines) - min(line["began"] for line in lines)
    figure("160 cells on 40 places: makespan against the bound", took / bound, "x", at_most=1.25)
    figure("160 cells on 40 places: most at a time", most_together(lines), "cells", at_least=40)


def test_1000_cells(slurm, tmp_path, figure):
    cluster = dataclasses.replace(SMALL, options=("--hold",))
    file, home = sleeping_sweep(tmp_path, 1.0, cluster, quantiles=evenly(500))
    began = time.monotonic()
    submit(file, home)
    figure("1,000 cells submitted", time.monotonic() - began, "s", at_most=10)
    began = time.monotonic()
    lottery("status", home.root)
    figure("status of 1,000 cells", time.monotonic() - began, "s", at_most=2)
