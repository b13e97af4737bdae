"""Whether the cores beside a GPU read images as fast as it trains: said before anything is submitted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lottery.cli.plan import render
from slurm import preflight
from slurm.plan import make_plan
from slurm.reading import READ, reading_of
from sweep.data.prepared import Prepared, describe
from sweep.experiment import Cluster, Data
from sweep.graph import speeds
from sweep.graph.home import Home
from sweep.graph.speeds import Packing
from tests import synthetic

RATE = 10_000.0


def fed_from(tmp_path: Path, form: str, cores: int, count: int = 10**6) -> Home:
    """An experiment on a million pictures, and the speed of its network on record."""
    kind = "folder" if form == "class folders" else "shards"
    if kind == "shards":
        (tmp_path / "images").mkdir(parents=True)
        described = Prepared(tmp_path / "images", form.split()[0], 64, ("a", "b"), {"train": 1, "test": 1})
        describe(described, {"images": {"train": count, "test": 2}})
    data = Data(kind, path=str(tmp_path / "images"), image_size=64)
    experiment = dataclasses.replace(synthetic.experiment(), data=data, cluster=Cluster(cpus_per_gpu=cores))
    home = Home(tmp_path / "results" / "small", experiment)
    speeds.put_on_record(
        home.pool,
        [Packing("a GPU", "mobilenet_v2_small 0.35 on synthetic, 64 px, float32, batch 99", 1, RATE, 0.0, 50)],
    )
    return home


@pytest.mark.parametrize("form", READ)
def test_the_wait_is_what_the_cores_cannot_read(form, tmp_path):
    found = reading_of(fed_from(tmp_path, form, 8))
    assert found.form == form and found.wait == pytest.approx(max(0.0, 1 - 8 * READ[form] / RATE))


def test_too_few_cores_are_warned_of_by_check_and_plan_with_the_number_that_would_do(tmp_path):
    home = fed_from(tmp_path, "jpeg shards", 8)
    (one,) = [one for one in preflight.look(home, on_slurm=True, quick=True) if one.what == "reading"]
    assert one.state == "warning" and "it would wait 21% of the time" in one.found
    assert "class folders 61, jpeg shards 10, raw shards 0.85" in one.remedy
    assert one.found.endswith("unless the images (12.3 GB) fit into its memory")
    assert "Warning: 8 cores read about 7,912 images/s from jpeg shards" in render(make_plan(home, "slurm"))
    assert "Warning" not in render(make_plan(home)), "here as many cores as there are"


def test_images_in_the_memory_of_the_gpus_need_no_cores(tmp_path):
    home = fed_from(tmp_path, "jpeg shards", 1)
    data = dataclasses.replace(home.experiment.data, resident="on")
    assert reading_of(Home(home.root, dataclasses.replace(home.experiment, data=data))) is None
    assert reading_of(fed_from(tmp_path / "few", "jpeg shards", 1, count=1000)) is None, "every GPU has room for them"


def test_enough_cores_are_not_warned_of(tmp_path):
    home = fed_from(tmp_path, "jpeg shards", 12)
    assert [one.state for one in preflight.look(home, True, quick=True) if one.what == "reading"] == ["ok"]
    assert "Warning" not in render(make_plan(home, "slurm"))


def test_the_speed_on_record_gives_an_estimate_for_as_many_images_as_were_prepared(tmp_path):
    home = fed_from(tmp_path, "raw shards", 8)
    found = make_plan(home, "slurm").estimate
    assert found.seconds == pytest.approx(sum(one.epochs for one in home.graph) * 10**6 / RATE)
    assert "with 80 at a time" in str(found)
