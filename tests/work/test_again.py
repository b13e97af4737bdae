"""Weights that a finished training did not keep, or lost: it is trained once more, and must come out the same."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest

from lottery.cli.find import read_home
from sweep import files
from sweep.errors import Interrupted
from sweep.experiment import END, Data
from sweep.experiment.point import point
from sweep.graph import packed
from sweep.graph.home import Home
from sweep.graph.record import record as write_record
from sweep.graph.state import epochs_left, state_of
from sweep.work.worker import Worker
from tests import synthetic
from tests.commands import csv_of, lottery, trainings

pytestmark = pytest.mark.tensorflow

GROWN = "prune.quantiles=[0.5,0.8,0.9]"


@pytest.fixture
def record(undisturbed, tmp_path):
    """Results of the tiny sweep as they travel, in a folder in which they go on."""
    (described,) = undisturbed.glob("*/experiment.yaml")
    write_record(read_home(str(described.parent), (), undisturbed), tmp_path / "record")
    packed.unpack_here(tmp_path / "record")
    return tmp_path / "record"


def _without_weights(results: Path) -> None:
    for path in trainings(results, "*"):
        shutil.rmtree(path / "snapshots")
        (path / "checkpoint.h5").unlink(missing_ok=True)


def test_a_record_without_its_weights_grows(tiny_file, undisturbed, tmp_path):
    """One more quantile needs the end of the dense run, learning-rate rewinding too, a rewind point that point."""
    (described,) = undisturbed.glob("*/experiment.yaml")
    record = tmp_path / "record"
    write_record(read_home(str(described.parent), (), undisturbed), record)
    grown = (tiny_file, GROWN, "prune.lr_rewind=[1ep]", "--results")
    before = {path.parent.name: path.read_bytes() for path in trainings(undisturbed, "*/result.json")}
    plan = lottery("plan", *grown, record).stdout
    assert "dense-seed0: its weights at 1ep, end are not there; it will be trained again up to there" in plan
    lottery("sweep", *grown, record)
    shutil.copytree(undisturbed, tmp_path / "whole")
    lottery("sweep", *grown, tmp_path / "whole")
    assert csv_of(record) == csv_of(tmp_path / "whole")
    for name, content in before.items():
        assert (record / "trainings" / name / "result.json").read_bytes() == content


def test_a_chain_of_rounds_without_its_weights_goes_on(tiny_file, tmp_path):
    """The last round is trained again, and for that the dense run up to the point where rounds start."""
    words = (tiny_file, "prune.rewind=[1ep]", "prune.quantiles=[]", "prune.share=0.3", "--results")
    lottery("sweep", *words, tmp_path / "whole", "prune.rounds=3")
    last = shutil.ignore_patterns("*-r3-*", "*-of-ticket-*-r2-*")  # the last round and its mask
    shutil.copytree(tmp_path / "whole", tmp_path / "record", ignore=last)
    _without_weights(tmp_path / "record")
    said = lottery("sweep", *words, tmp_path / "record", "prune.rounds=3").stdout
    assert "dense-seed0: its weights at 1ep are not there" in said and "-r2-k1ep-seed0: its weights at end" in said
    assert csv_of(tmp_path / "record") == csv_of(tmp_path / "whole")


def test_a_training_that_needs_no_lost_weights_is_done_even_if_they_cannot_be_restored(tiny_file, record):
    """Its mask is on record, and it starts from a seed."""
    (dense,) = trainings(record, "dense-*")
    lines = [json.loads(line) for line in (dense / "metrics.jsonl").read_text().splitlines()]
    lines[1]["train_loss"] = math.nextafter(lines[1]["train_loss"], 9)
    (dense / "metrics.jsonl").write_text("".join(json.dumps(files.sealed(line)) + "\n" for line in lines))
    grown = (tiny_file, GROWN, "prune.controls=[fresh]", "--results", record)
    done = lottery("sweep", *grown, check=2)
    assert done.stderr.count("trained again it is another training (train loss of epoch 2 ") == 1
    assert {path.parent.name.rpartition("-k0")[0] for path in trainings(record, "fresh-*/result.json")} == {
        "fresh-magnitude-uniform-q0.5", "fresh-magnitude-uniform-q0.8"
    }  # fmt: skip
    said = lottery("status", *grown, check=None).stdout
    assert "dense-seed0" in said.split("failed")[0].splitlines()[-1], said


def test_an_end_that_comes_out_different_is_refused(tiny_file, trained):
    (result,) = trainings(trained, "dense-*/result.json")
    files.write_json(result, json.loads(result.read_text()) | {"run": "0" * 64})
    (result.parent / "snapshots" / "final.h5").unlink()
    done = lottery("sweep", tiny_file, "--results", trained, check=2)
    assert "its weights at end are not there, and trained again it is another training (other weights" in done.stderr
    assert not (result.parent / "snapshots" / "final.h5").exists()


def test_an_epoch_that_the_record_lost_is_named(tiny_file, record):
    (metrics,) = trainings(record, "dense-*/metrics.jsonl")
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:-1]))
    done = lottery("sweep", tiny_file, GROWN, "--results", record, check=None)
    assert done.returncode in (1, 2) and f"metrics.jsonl: {len(lines) - 1} of {len(lines)} epochs" in done.stderr


def test_training_again_that_was_stopped_goes_on_from_its_checkpoint(tiny_file, record, monkeypatch):
    from sweep.work import again

    compare, seen = again._First.compare, []

    def stopping(first: again._First, place: Path) -> None:
        compare(first, place)
        seen.append(len(files.read_metrics(place)))
        if seen == [1, 2]:
            os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(again._First, "compare", stopping)
    home = read_home(str(tiny_file), (GROWN,), record)
    dense, worker = home.training("dense-seed0"), Worker(home, quiet=True, restarts=1)
    before = (home.folder(dense) / "result.json").read_bytes()
    with pytest.raises(Interrupted):
        worker.attempt("dense-seed0")
    assert state_of(home, dense, [END]).state == "begun" and state_of(home, dense).state == "done"
    assert worker.attempt("dense-seed0") is None
    assert seen == [1, 2, 3]
    assert home.weights(dense, END) == "there" and not (home.folder(dense) / "again").exists()
    assert (home.folder(dense) / "result.json").read_bytes() == before


def test_an_earlier_point_that_is_wanted_later_is_not_passed_over(tiny_file, record, monkeypatch):
    """Stopped after two epochs on its way to the end, it is then wanted at the end of the first."""
    from sweep.work import again

    compare = again._First.compare

    def stopping(first: again._First, place: Path) -> None:
        compare(first, place)
        if len(files.read_metrics(place)) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(again._First, "compare", stopping)
    for path in trainings(record, "ticket-*"):
        shutil.rmtree(path)
    home = read_home(str(tiny_file), (GROWN, "prune.rewind=[0]"), record)
    with pytest.raises(Interrupted):
        Worker(home, quiet=True).attempt("dense-seed0")
    monkeypatch.undo()
    home = read_home(str(tiny_file), ("prune.rewind=[1ep]",), record)
    dense = home.training("dense-seed0")
    assert home.missing_points() == {dense.name: [point("1ep")]} and epochs_left(home, dense, [point("1ep")]) == 0
    assert Worker(home, quiet=True).attempt("dense-seed0") is None
    assert home.weights(dense, point("1ep")) == "there"


def test_weights_are_trained_again_by_one_process_at_a_time(tiny_file, record):
    from sweep.errors import Busy
    from sweep.graph import claim

    home = read_home(str(tiny_file), (GROWN,), record)
    folder = home.folder_of("dense-seed0") / "again"
    claim.take(folder)
    found = json.loads((folder / "claim.json").read_text())
    files.write_json(folder / "claim.json", found | {"host": "another", "pid": 1})
    with pytest.raises(Busy, match=r"^dense-seed0-\w+: process 1 on another trains it since "):
        Worker(home, quiet=True).attempt("dense-seed0")


def test_a_ticket_alone_says_what_it_lacks(tiny_file, record):
    done = lottery("train", tiny_file, "ticket-magnitude-uniform-q0.9-k1ep-seed0", GROWN, "--results", record, check=2)
    assert "dense-seed0: its weights at 1ep are not there; lottery sweep trains it again" in done.stderr
    said = lottery("masks", tiny_file, GROWN, "--results", record, check=1)
    assert "FAILED dense-seed0: its weights at end are not there for some of its masks" in said.stderr


def test_on_other_devices_than_it_was_trained_on_it_is_not_begun(tiny_file, record):
    (result,) = trainings(record, "dense-*/result.json")
    files.write_json(result, json.loads(result.read_text()) | {"devices": 4})
    done = lottery("sweep", tiny_file, GROWN, "--results", record, check=2)
    assert "it was trained on 4 devices, not on 1; expected --devices 4" in done.stderr
    assert not (result.parent / "again" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("images", "resident"), [("whole", "on"), ("divided", "on"), ("streamed", "off"), (None, "auto")]
)
def test_shards_are_kept_on_the_devices_or_streamed_as_in_the_first_training(tmp_path, images, resident):
    """With XLA the two round differently."""
    from sweep.work.again import as_recorded

    home = Home(tmp_path / "small", synthetic.experiment(data=Data("shards", path="nowhere", listing="0123456789")))
    dense = home.training("dense-seed0")
    synthetic.finish(home, dense.slug, 0.5, **({"images": images} if images else {}))
    again = as_recorded(home, dense)
    assert again.data.resident == resident and again.name == dense.name
