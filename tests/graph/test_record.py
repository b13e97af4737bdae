"""What of a sweep travels: everything but weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep import files as store
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home, open_home
from sweep.graph.mask_file import make_mask
from sweep.graph.record import record
from sweep.graph.results import collect
from tests import made_up
from tests.made_up import files_under, refusal


@pytest.fixture
def ended(tmp_path) -> Home:
    """A sweep of which all is done but one training that failed and one that is under way; its data lie somewhere."""
    plan = made_up.experiment(quantiles=(0.5,))
    home = open_home(replace(plan, data=replace(plan.data, path="/somewhere")), tmp_path / "results" / "small")
    made_up.epochs(made_up.finish(home, "dense-seed0", 0.9), 4)
    made_up.write_snapshot(home, made_up.network().initial(0), None)
    made_up.fail(home, "ticket-q0.5-k0-seed0", "diverged")
    under_way = home.folder_of("ticket-q0.5-k2ep-seed0")
    made_up.epochs(under_way, 1)
    make_mask(home, home.training("ticket-q0.5-k0-seed0").mask)
    (home.pool / "autotuned" / "gpu").mkdir(parents=True)
    (home.pool / "autotuned" / "gpu" / "choice.textproto").write_text("fast")
    return home


def test_it_has_what_ended_and_no_weights(ended, tmp_path):
    found = record(ended, tmp_path / "record")
    assert (found.trainings, found.masks) == (2, 1)
    there = tmp_path / "record" / "trainings"
    dense, ticket = (there / ended.training(task).name for task in ("dense-seed0", "ticket-q0.5-k0-seed0"))
    assert sorted(path for path in there.rglob("*") if path.is_file()) == [
        dense / "metrics.jsonl",
        dense / "result.json",
        ticket / "failure.json",
    ]
    names = files_under(tmp_path / "record")
    assert not [name for name in names if "snapshot" in name]
    assert {"autotuned/gpu/choice.textproto", "small/experiment.yaml"} <= set(names)
    sizes = [path.stat().st_size for path in (tmp_path / "record").rglob("*") if path.is_file()]
    assert found.bytes == sum(sizes)


def test_from_it_the_same_rows_come_and_nothing_of_the_machine(ended, tmp_path):
    store.write_json(
        ended.folder_of("ticket-q0.5-k0-seed0") / "failure.json",
        {"task": "", "reason": "diverged", "traceback": 'File "/somewhere"'},
    )
    record(ended, tmp_path / "record")
    root = tmp_path / "record" / "small"
    assert not [path for path in (tmp_path / "record").rglob("*.[jy]*") if "somewhere" in path.read_text()]
    again = Home(root, experiment_file.load(root / "experiment.yaml"))
    mine, there = ([row for row in collect(one) if row.state in ("done", "failed")] for one in (ended, again))
    assert mine == there and len(there) == 2


def test_it_grows_with_the_sweep_and_forgets_what_no_longer_failed(ended, tmp_path):
    record(ended, tmp_path / "record")
    (ended.folder_of("ticket-q0.5-k0-seed0") / "failure.json").unlink()
    made_up.finish(ended, "ticket-q0.5-k0-seed0", 0.8, epochs=0)
    made_up.finish(ended, "ticket-q0.5-k2ep-seed0", 0.8, epochs=1)
    assert record(ended, tmp_path / "record").trainings == 3
    assert not list((tmp_path / "record").rglob("failure.json"))
    other = open_home(made_up.experiment("other", quantiles=(0.5,)), ended.pool / "other")
    assert record(other, tmp_path / "record").trainings == 3  # beside the first, whose trainings it shares
    assert {path.parent.name for path in (tmp_path / "record").glob("*/experiment.yaml")} == {"small", "other"}


def test_a_failure_does_not_take_the_place_of_a_result(ended, tmp_path):
    """Two machines tried it; the one that failed is recorded last."""
    record(ended, tmp_path / "record")
    there = tmp_path / "record" / "trainings" / ended.training("ticket-q0.5-k0-seed0").name
    (there / "failure.json").unlink()
    (there / "result.json").write_text("{}")
    assert record(ended, tmp_path / "record").trainings == 1
    assert [path.name for path in there.iterdir()] == ["result.json"]


def _another_result(home: Home) -> None:
    made_up.finish(home, "dense-seed0", 0.91)


def _another_choice(home: Home) -> None:
    (home.pool / "autotuned" / "gpu" / "choice.textproto").write_text("faster")


def _damage(home: Home) -> None:
    (home.folder_of("dense-seed0") / "metrics.jsonl").write_text("{\n")


def _lose_an_epoch(home: Home) -> None:
    path = home.folder_of("dense-seed0") / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def _damage_what_was_asked(home: Home) -> None:
    (home.folder_of("dense-seed0") / "training.json").write_text("{")


def _cut_a_mask(home: Home) -> None:
    path = home.mask(home.training("ticket-q0.5-k0-seed0").mask)
    path.write_bytes(path.read_bytes()[:500])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_another_result, "result.json: of another run than"),
        (_another_choice, "choice.textproto: of another run than"),
        (_damage, "metrics.jsonl: a line is not readable as JSON; bring it back from a copy, or delete the folder"),
        (_lose_an_epoch, "metrics.jsonl: 3 of 4 epochs; bring it back from a copy"),
        (_damage_what_was_asked, "training.json: not readable as JSON"),
        (_cut_a_mask, "truncated or not HDF5"),
    ],
)
def test_what_is_of_another_run_or_damaged_is_refused_and_the_record_stays(ended, tmp_path, change, why):
    record(ended, tmp_path / "record")
    before = {path: path.read_bytes() for path in (tmp_path / "record").rglob("*") if path.is_file()}
    made_up.finish(ended, "ticket-q0.5-k2ep-seed0", 0.8, epochs=1)  # news, which come with nothing that is wrong
    change(ended)
    assert why in refusal(lambda: record(ended, tmp_path / "record"))
    assert {path: path.read_bytes() for path in (tmp_path / "record").rglob("*") if path.is_file()} == before


def test_trained_again_to_the_same_numbers_it_is_the_same_run(ended, tmp_path):
    record(ended, tmp_path / "record")
    made_up.finish(ended, "dense-seed0", 0.9, seconds=99.0)
    record(ended, tmp_path / "record")
    there = tmp_path / "record" / "trainings" / ended.training("dense-seed0").name
    assert store.read_json(there / "result.json")["seconds"] == 99.0


def test_an_experiment_on_record_does_not_shrink(ended, tmp_path):
    record(ended, tmp_path / "record")
    wider = Home(ended.root, made_up.experiment(quantiles=(0.5, 0.9), seeds=(0, 1)))
    record(wider, tmp_path / "record")
    assert "asks for 7 trainings that" in refusal(lambda: record(ended, tmp_path / "record"))


def test_there_must_be_something_to_record_and_a_place_for_it(ended, tmp_path):
    for place in (ended.pool / "record", ended.pool, tmp_path):
        assert "the results themselves lie there" in refusal(lambda place=place: record(ended, place))
    empty = Home(tmp_path / "results" / "empty", made_up.experiment("empty", seeds=(7,)))
    assert "no training of it has ended" in refusal(lambda: record(empty, tmp_path / "record"))
    assert not (tmp_path / "record").exists()
    (tmp_path / "pool" / "trainings" / "some" / "snapshots").mkdir(parents=True)
    assert "it has weights, so it is a folder of results" in refusal(lambda: record(ended, tmp_path / "pool"))
