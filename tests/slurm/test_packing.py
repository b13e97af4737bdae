"""`auto`: trainings per GPU and per array element, from what was measured."""

from __future__ import annotations

import dataclasses

import pytest

from slurm import packing
from sweep.errors import Refused
from sweep.experiment import Cluster
from sweep.graph import speeds
from sweep.graph.speeds import Packing, network_of
from tests import synthetic
from tests.commands import lottery, on_a_terminal
from tests.sleeping_sweep import SMALL, ran, sleeping_sweep, submit
from tests.slurm_cluster import until

AUTO = Cluster(nodes=2, gpus_per_node=4, trainings_per_gpu="auto", trainings_per_task="auto")


def asked(cluster: Cluster = AUTO):
    return dataclasses.replace(synthetic.experiment(), cluster=cluster)  # 4 epochs


def rows(**rates: float) -> list[Packing]:
    """of 1000 images an epoch, 19 s to start."""
    name = network_of(asked())
    return [Packing("a GPU", name, int(count[1:]), rate, 19.0, 1000) for count, rate in rates.items()]


@pytest.mark.parametrize(
    ("rates", "per_gpu"),
    [
        ({"n1": 100.0}, 1),
        ({"n1": 100.0, "n2": 150.0, "n4": 160.0}, 4),
        ({"n1": 100.0, "n2": 158.0, "n4": 160.0}, 2),  # nearly the best, with results sooner
        ({"n1": 100.0, "n2": 90.0}, 1),
    ],
)
def test_auto_takes_the_fewest_trainings_that_nearly_reach_the_best_throughput(tmp_path, rates, per_gpu):
    speeds.put_on_record(tmp_path, rows(**rates))
    assert packing.settled(asked(), tmp_path, 1000).cluster.trainings_per_gpu == per_gpu


def test_trainings_in_a_row_keep_starting_below_a_twentieth_and_every_gpu_busy(tmp_path):
    speeds.put_on_record(tmp_path, rows(n1=100.0, n2=200.0))  # two at a time: a training takes 4 * 1000 / 100 = 40 s
    # 19 s of starting are a twentieth where 361 s are trained: 10 in a row of 2 at a time
    assert packing.settled(asked(), tmp_path, 1000).cluster.trainings_per_task == 2 * 10
    assert packing.settled(asked(), tmp_path, 48).cluster.trainings_per_task == 2 * 3  # 8 GPUs
    assert packing.settled(asked(), tmp_path, 3).cluster.trainings_per_task == 2
    fixed = asked(dataclasses.replace(AUTO, trainings_per_gpu=1))
    assert packing.settled(fixed, tmp_path, 1000).cluster.trainings_per_gpu == 1
    assert packing.settled(fixed, tmp_path, 1000).cluster.trainings_per_task == 10


def test_without_a_measurement_of_this_network_auto_is_refused(tmp_path):
    speeds.put_on_record(tmp_path, [dataclasses.replace(rows(n1=1.0)[0], network="another")])
    with pytest.raises(Refused, match=r"auto needs a measurement of mobilenet_v2_small 0\.35 on digits, float32"):
        packing.settled(asked(), tmp_path, 10)
    assert packing.settled(asked(Cluster()), tmp_path, 10) == asked(Cluster()), "nothing to settle"


def test_a_newer_measurement_replaces_the_older(tmp_path):
    speeds.put_on_record(tmp_path, rows(n1=1.0, n2=2.0))
    speeds.put_on_record(tmp_path, rows(n2=3.0))
    assert [row.images_per_second for row in speeds.measured(tmp_path)] == [1.0, 3.0]


def test_auto_alone_carries_as_many_as_share_a_gpu_and_the_gpu_measured_last_decides(tmp_path):
    speeds.put_on_record(tmp_path, rows(n1=100.0, n2=200.0))
    speeds.put_on_record(tmp_path, [dataclasses.replace(row, hardware="another") for row in rows(n1=100.0, n4=300.0)])
    found = packing.settled(asked(Cluster(trainings_per_gpu="auto")), tmp_path, 100).cluster
    assert (found.trainings_per_gpu, found.trainings_per_task) == (4, 4)


def test_a_sweep_with_auto_is_submitted_with_what_was_measured(slurm, tmp_path):
    cluster = dataclasses.replace(SMALL, array_parallelism=2, trainings_per_gpu="auto", trainings_per_task="auto")
    file, home = sleeping_sweep(tmp_path, 0.1, cluster)
    assert "auto needs a measurement" in submit(file, home, status=2).stderr
    found = [dataclasses.replace(row, network=network_of(home.experiment)) for row in rows(n1=100.0, n2=200.0)]
    speeds.put_on_record(home.pool, found)
    assert "cells, 4 tasks in 2 elements" in submit(file, home).stdout
    until(lambda: len(ran(home)) == 4, 60)


@pytest.mark.tensorflow
def test_what_the_bench_measures_is_what_auto_takes(tiny_file, tmp_path, monkeypatch):
    words = ("seeds=[0]", "cluster.trainings_per_gpu=auto", "cluster.trainings_per_task=auto", "--results", tmp_path)
    assert "run lottery bench packing" in lottery("plan", tiny_file, *words, "--on", "slurm", check=2).stderr
    on_a_terminal(monkeypatch)
    said = lottery("bench", "packing", tiny_file, "--per-gpu", 2, "--seconds", 0.5, "--results", tmp_path).stdout
    assert "auto takes" in said and "2 at a time" in said and "left" in said
    (found,) = speeds.measured(tmp_path)
    assert found.per_gpu == 2 and found.images_per_second > 0 and found.epoch_images == 4 * 16
    assert "lottery train" in lottery("plan", tiny_file, *words, "--on", "slurm").stdout
