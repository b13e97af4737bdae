"""What of a sweep travels: everything, weights only if asked for."""

from __future__ import annotations

import csv
import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sweep import files as store
from sweep.experiment import file as experiment_file
from sweep.graph import packed
from sweep.graph.home import Home, open_home
from sweep.graph.mask_file import make_mask
from sweep.graph.record import record
from sweep.graph.results import collect
from tests import synthetic
from tests.synthetic import content, files_under, refusal


@pytest.fixture
def ended(tmp_path) -> Home:
    """A sweep of which all is done but one training that failed and one that is under way; its data lie somewhere."""
    plan = synthetic.experiment(quantiles=(0.5,))
    home = open_home(replace(plan, data=replace(plan.data, path="/somewhere")), tmp_path / "results" / "small")
    synthetic.epochs(synthetic.finish(home, "dense-seed0", 0.9), 4)
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    synthetic.fail(home, "ticket-q0.5-k0-seed0", "diverged")
    under_way = home.folder_of("ticket-q0.5-k2ep-seed0")
    synthetic.epochs(under_way, 1)
    make_mask(home, home.training("ticket-q0.5-k0-seed0").mask)
    (home.pool / "autotuned" / "gpu").mkdir(parents=True)
    (home.pool / "autotuned" / "gpu" / "choice.textproto").write_text("fast")
    return home


def unpacked(record: Path) -> Path:
    """The results root that a sweep makes of a copy of a record."""
    copy = Path(shutil.copytree(record, record.with_name("copy"), dirs_exist_ok=True))
    packed.unpack_here(copy)
    return copy


def test_a_record_is_a_few_files_with_ended_trainings_and_no_weights(ended, tmp_path):
    found = record(ended, tmp_path / "record")
    assert (found.trainings, found.masks) == (2, 1)
    assert files_under(tmp_path / "record") == [
        "autotuned.zip", "masks.h5", "metrics.csv.gz", "small", "small/experiment.yaml", "trainings.json"
    ]  # fmt: skip
    assert found.bytes == sum(path.stat().st_size for path in (tmp_path / "record").rglob("*") if path.is_file())
    facts = store.read_json(tmp_path / "record" / "trainings.json")["trainings"]
    dense, ticket = (ended.training(task).name for task in ("dense-seed0", "ticket-q0.5-k0-seed0"))
    assert {name: list(kinds) for name, kinds in facts.items()} == {dense: ["result"], ticket: ["failure"]}
    with gzip.open(tmp_path / "record" / "metrics.csv.gz", "rt") as f:
        rows = list(csv.DictReader(f))
    assert [(row["training"], row["epoch"], row["seconds"]) for row in rows] == [
        (dense, str(epoch), "2.0") for epoch in range(1, 5)
    ]


def test_with_weights_it_has_those_of_every_finished_training_where_they_were(ended, tmp_path):
    (final,) = ended.pool.glob("trainings/*/snapshots/final.h5")
    assert record(ended, tmp_path / "record").weights == 0
    assert record(ended, tmp_path / "record", weights=True).weights == 1
    assert record(ended, tmp_path / "record").weights == 1, "what is there stays"
    place = final.relative_to(ended.pool)
    read = packed.readable(tmp_path / "record") / place
    assert read.read_bytes() == final.read_bytes()
    copy = unpacked(tmp_path / "record")
    assert (copy / place).read_bytes() == final.read_bytes() and not (copy / place).is_symlink()


def test_an_unpacked_record_has_the_files_it_was_made_of(ended, tmp_path):
    record(ended, tmp_path / "record")
    copy = unpacked(tmp_path / "record")
    assert not [name for name in packed.PACKED if (copy / name).exists()]
    there = [path.relative_to(copy) for path in copy.rglob("*") if path.is_file() and path.name != "experiment.yaml"]
    assert len(there) == 5  # result and epochs of the dense run, the failure, the mask, the choice
    for path in there:
        if path.suffix == ".h5":
            (mine, of_mine), (arrays, attributes) = (store.read_arrays(root / path) for root in (ended.pool, copy))
            assert of_mine == attributes and store.checksum(mine) == store.checksum(arrays)
        else:
            assert (copy / path).read_bytes() == (ended.pool / path).read_bytes()


def test_equal_results_give_equal_files(ended, tmp_path):
    for place in ("one", "other"):
        record(ended, tmp_path / place)
    for name in packed.PACKED:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_looking_at_a_record_writes_nothing_to_it(ended, tmp_path):
    record(ended, tmp_path / "record")
    before = content(tmp_path / "record")
    root = tmp_path / "record" / "small"
    home = Home(root, experiment_file.load(root / "experiment.yaml"))
    assert collect(home) and home.pool != root.parent and home.points_asked(home.training("dense-seed0"))
    assert content(tmp_path / "record") == before


def test_unpacking_that_was_killed_is_finished_by_the_next(ended, tmp_path, monkeypatch):
    record(ended, tmp_path / "record")
    whole = files_under(unpacked(tmp_path / "record"))
    rename = Path.rename

    def killed(path: Path, to: Path) -> None:
        if path.name == "metrics.jsonl":
            raise KeyboardInterrupt
        rename(path, to)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        packed.unpack_here(tmp_path / "record")
    monkeypatch.undo()
    assert packed.is_record(tmp_path / "record")
    there = tmp_path / "record" / "autotuned" / "gpu" / "choice.textproto"
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text("of another process, which was faster")
    packed.unpack_here(tmp_path / "record")
    assert files_under(tmp_path / "record") == whole and there.read_text().startswith("of another process")


@pytest.mark.parametrize("name", packed.PACKED)
def test_a_damaged_file_of_a_record_is_refused_by_its_name(ended, tmp_path, name):
    record(ended, tmp_path / "record")
    path = tmp_path / "record" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert refusal(lambda: packed.unpack(tmp_path / "record", tmp_path / "there")).startswith(f"{path}: ")
    if name != "trainings.json":
        path.unlink()
        if name != "autotuned.zip":
            assert f"{path}: no such file" in refusal(lambda: packed.unpack_here(tmp_path / "record"))


def test_a_digit_of_a_record_that_was_changed_is_refused(ended, tmp_path):
    record(ended, tmp_path / "record")
    path = tmp_path / "record" / "trainings.json"
    path.write_text(path.read_text().replace("0.9,", "0.8,"))
    assert "changed since it was written" in refusal(lambda: packed.readable(tmp_path / "record"))


def test_a_name_that_leads_out_of_the_folder_is_refused(ended, tmp_path):
    record(ended, tmp_path / "record")
    store.write_json(tmp_path / "record" / "trainings.json", {"trainings": {"../x": {"result": {}}}, "masks": {}})
    assert "is no name of a training" in refusal(lambda: packed.unpack_here(tmp_path / "record"))
    assert not (tmp_path / "x").exists()


def test_a_record_gives_the_same_rows_and_names_nothing_of_the_machine(ended, tmp_path):
    store.write_json(
        ended.folder_of("ticket-q0.5-k0-seed0") / "failure.json",
        {"task": "", "reason": "diverged", "traceback": 'File "/somewhere"'},
    )
    record(ended, tmp_path / "record")
    root = tmp_path / "record" / "small"
    for name in ("trainings.json", "small/experiment.yaml"):
        assert "somewhere" not in (tmp_path / "record" / name).read_text()
    again = Home(root, experiment_file.load(root / "experiment.yaml"))
    mine, there = ([row for row in collect(one) if row.state in ("done", "failed")] for one in (ended, again))
    assert mine == there and len(there) == 2


def test_a_record_grows_with_the_sweep_and_drops_failures_that_were_resolved(ended, tmp_path):
    record(ended, tmp_path / "record")
    (ended.folder_of("ticket-q0.5-k0-seed0") / "failure.json").unlink()
    synthetic.finish(ended, "ticket-q0.5-k0-seed0", 0.8, epochs=0)
    synthetic.finish(ended, "ticket-q0.5-k2ep-seed0", 0.8, epochs=1)
    assert record(ended, tmp_path / "record").trainings == 3
    assert not list(unpacked(tmp_path / "record").rglob("failure.json"))
    other = open_home(synthetic.experiment("other", quantiles=(0.5,)), ended.pool / "other")
    assert record(other, tmp_path / "record").trainings == 3  # beside the first, whose trainings it shares
    assert {path.parent.name for path in (tmp_path / "record").glob("*/experiment.yaml")} == {"small", "other"}


def test_a_failure_does_not_take_the_place_of_a_result(ended, tmp_path):
    """Two machines tried it; the one that failed is recorded last."""
    failure = ended.folder_of("ticket-q0.5-k0-seed0") / "failure.json"
    failure.rename(tmp_path / "failure.json")
    synthetic.finish(ended, "ticket-q0.5-k0-seed0", 0.8, epochs=0)
    record(ended, tmp_path / "record")
    (failure.parent / "result.json").unlink()
    (tmp_path / "failure.json").rename(failure)
    assert record(ended, tmp_path / "record").trainings == 1
    there = unpacked(tmp_path / "record") / "trainings" / failure.parent.name
    assert [path.name for path in there.iterdir()] == ["result.json"]


def _another_result(home: Home) -> None:
    synthetic.finish(home, "dense-seed0", 0.91)


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
        (_another_result, "record: has another run of dense-seed0-"),
        (_another_choice, "record: has another choice of XLA than"),
        (_damage, "metrics.jsonl: a line is not readable as JSON; bring it back from a copy, or delete the folder"),
        (_lose_an_epoch, "metrics.jsonl: 3 of 4 epochs; bring it back from a copy"),
        (_damage_what_was_asked, "training.json: not readable as JSON"),
        (_cut_a_mask, "truncated or not HDF5"),
    ],
)
def test_what_is_of_another_run_or_damaged_is_refused_and_the_record_stays(ended, tmp_path, change, why):
    record(ended, tmp_path / "record")
    before = {path: path.read_bytes() for path in (tmp_path / "record").rglob("*") if path.is_file()}
    synthetic.finish(ended, "ticket-q0.5-k2ep-seed0", 0.8, epochs=1)  # news, which come with nothing that is wrong
    change(ended)
    assert why in refusal(lambda: record(ended, tmp_path / "record"))
    assert {path: path.read_bytes() for path in (tmp_path / "record").rglob("*") if path.is_file()} == before


def test_trained_again_to_the_same_numbers_it_is_the_same_run(ended, tmp_path):
    record(ended, tmp_path / "record")
    synthetic.finish(ended, "dense-seed0", 0.9, seconds=99.0)
    record(ended, tmp_path / "record")
    facts = store.read_json(tmp_path / "record" / "trainings.json")["trainings"]
    assert facts[ended.training("dense-seed0").name]["result"]["seconds"] == 99.0


def test_an_experiment_on_record_does_not_shrink(ended, tmp_path):
    record(ended, tmp_path / "record")
    wider = Home(ended.root, synthetic.experiment(quantiles=(0.5, 0.9), seeds=(0, 1)))
    record(wider, tmp_path / "record")
    assert "asks for 7 trainings that" in refusal(lambda: record(ended, tmp_path / "record"))


def test_there_must_be_something_to_record_and_a_place_for_it(ended, tmp_path):
    for place in (ended.pool / "record", ended.pool, tmp_path):
        assert "the results themselves lie there" in refusal(lambda place=place: record(ended, place))
    empty = Home(tmp_path / "results" / "empty", synthetic.experiment("empty", seeds=(7,)))
    assert "no training of it has ended" in refusal(lambda: record(empty, tmp_path / "record"))
    assert not (tmp_path / "record").exists()
    (tmp_path / "pool" / "trainings").mkdir(parents=True)
    assert "a folder of results, or a record of an earlier version" in refusal(lambda: record(ended, tmp_path / "pool"))
