"""The store: a file exists only complete, and nothing half-written is ever read."""

from __future__ import annotations

import dataclasses
import os
import shutil

import h5py
import numpy as np
import pytest

from models import Weights, build
from sweep import files as store
from sweep.errors import Refused
from sweep.experiment import Data, point
from sweep.experiment.file import dump, load
from sweep.graph.home import Home, open_home
from sweep.graph.runs import Runs
from sweep.graph.state import states
from tests import made_up
from tests.made_up import files_under, refusal

ARRAYS = {
    "flat": np.array([1.5, -0.0, np.inf, 1e-40], np.float32),
    "group/counts": np.array([[1, 2], [3, 2**40]], np.int64),
    "group/bits": np.array([7, 255], np.uint8),
    "single": np.array(0.1, np.float64),
    "empty": np.zeros((0, 3), np.float32),
}
ATTRIBUTES = {"epoch": 3, "share": 0.25, "hash": "0123abcdef", "stopped": True}


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "arrays.h5"
    store.write_arrays(path, ARRAYS, ATTRIBUTES)
    return path


# ---- one step from the old file to the new


def test_of_several_that_are_to_be_first_one_stays(tmp_path):
    path = tmp_path / "arrays.h5"
    for value in (1.0, 2.0):
        store.write_arrays(path, {"a": np.full(3, value)}, {}, first=True)
    assert store.read_arrays(path)[0]["a"][0] == 1.0
    assert [one.name for one in tmp_path.iterdir()] == ["arrays.h5"]


def test_a_new_file_replaces_the_old_one(tmp_path):
    path = tmp_path / "below" / "text.txt"
    store.write_text(path, "old")
    store.write_text(path, "new")
    assert (path.read_text(), files_under(tmp_path)) == ("new", ["below", "below/text.txt"])


def test_until_the_end_of_the_writing_the_old_file_is_there_whole(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("old")
    with store.replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
        assert beside.parent == path.parent  # a rename within one file system
    assert path.read_text() == "new"


def test_a_fault_while_writing_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), store.replacing(path) as beside:
        beside.write_text("half of the n")
        raise ZeroDivisionError
    assert (path.read_text(), files_under(tmp_path)) == ("old", ["text.txt"])


def test_a_fault_while_writing_a_first_file_leaves_none(tmp_path):
    with pytest.raises(TypeError):
        store.write_arrays(tmp_path / "arrays.h5", {"good": np.zeros(3), "bad": np.array([object()])}, {})
    assert files_under(tmp_path) == []


def test_a_fault_while_renaming_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    path = tmp_path / "text.txt"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        store.write_text(path, "new")
    assert (path.read_text(), files_under(tmp_path)) == ("old", ["text.txt"])


def test_what_an_interrupted_writer_left_beside_a_file_is_never_read(tmp_path):
    home = Home(tmp_path / "small", made_up.experiment())
    whole = made_up.write_snapshot(home, made_up.network().initial(0), None)
    first, mask = home.snapshot(home.graph.dense[0], point(0)), home.mask(home.graph.trainings[1].mask)
    for path in (
        first,
        mask,
        made_up.dense(home) / "result.json",
        home.folder_of("ticket-q0.5-k0-seed0") / "result.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.123.tmp").write_bytes(whole.read_bytes())
    assert {state.state for state in states(home)} == {"waiting"}
    assert "no such file" in refusal(lambda: store.read_snapshot(first, made_up.network()))
    assert "no such file" in refusal(lambda: store.read_arrays(mask))


# ---- arrays


def test_arrays_and_attributes_come_back_as_they_were(written):
    arrays, attributes = store.read_arrays(written)
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()
    assert attributes == ATTRIBUTES


def test_attributes_come_back_as_plain_numbers_and_text(written):
    _, attributes = store.read_arrays(written)
    assert {key: type(value) for key, value in attributes.items()} == {k: type(v) for k, v in ATTRIBUTES.items()}


def damaged(path, how: str) -> None:
    whole = path.read_bytes()
    parts = {
        "cut to half": whole[: len(whole) // 2],
        "cut by one byte": whole[:-1],
        "cut to its first bytes": whole[:64],
        "empty": b"",
        "text": b"epoch,accuracy\n1,0.5\n" * 40,
    }
    path.write_bytes(parts[how])


@pytest.mark.parametrize("how", ["cut to half", "cut by one byte", "cut to its first bytes", "empty", "text"])
def test_a_damaged_file_is_refused_by_name_in_one_line(written, how):
    damaged(written, how)
    said = refusal(lambda: store.read_arrays(written))
    assert said.startswith(f"{written}: truncated or not HDF5 (")
    assert said.endswith("; delete it and run again")


@pytest.mark.parametrize("at", range(0, 2000, 40))
def test_a_file_with_damage_inside_is_read_or_refused_by_name(written, at):
    whole = bytearray(written.read_bytes())
    whole[at : at + 8] = b"\xa5\x5a" * 4
    written.write_bytes(whole)
    try:
        store.read_arrays(written)
    except Refused as error:
        assert str(written) in str(error) and "\n" not in str(error)


def test_a_missing_file_is_refused_by_name_in_one_line(tmp_path):
    path = tmp_path / "none.h5"
    assert refusal(lambda: store.read_arrays(path)) == f"{path}: no such file; the step that writes it has not run"


def test_a_damaged_json_file_is_refused_by_name_in_one_line(tmp_path):
    path = tmp_path / "result.json"
    store.write_json(path, {"test": {"top1": 0.5}})
    assert store.read_json(path) == {"test": {"top1": 0.5}}
    path.write_text(path.read_text()[:-5])
    assert refusal(lambda: store.read_json(path)) == f"{path}: not readable as JSON; delete it and run again"


# ---- snapshots


def hard_weights() -> Weights:
    """Initial weights with the values that careless writing changes."""
    weights = made_up.network().initial(3)
    weights.kernels[:5] = [0.0, -0.0, 1e-45, -3.4e38, np.nan]
    return weights


def test_a_snapshot_comes_back_bit_for_bit(tmp_path):
    weights, path = hard_weights(), tmp_path / "epoch-0002.h5"
    store.write_snapshot(path, made_up.network(), weights, {"epoch": 2})
    again = store.read_snapshot(path, made_up.network())
    assert [part.dtype for part in again] == [np.float32] * 3
    assert [part.tobytes() for part in again] == [part.tobytes() for part in weights]


def test_a_snapshot_names_its_variables_and_its_network(tmp_path):
    path, network = tmp_path / "epoch-0002.h5", made_up.network()
    store.write_snapshot(path, network, network.initial(0), {"epoch": 2})
    arrays, attributes = store.read_arrays(path)
    assert {name: array.shape for name, array in arrays.items()} == {v.name: v.shape for v in network.variables}
    assert attributes == {"network": "mobilenet_v2_small", "epoch": 2}


@pytest.mark.parametrize(
    "other",
    [
        {"name": "resnet20", "classes": 10, "width": 0.35},
        {"name": "mobilenet_v2_small", "classes": 9, "width": 0.35},
        {"name": "mobilenet_v2_small", "classes": 10, "width": 1.0},
    ],
    ids=["another architecture", "another number of classes", "another width"],
)
def test_a_snapshot_of_another_network_is_refused(tmp_path, other):
    path, network = tmp_path / "final.h5", made_up.network()
    store.write_snapshot(path, network, network.initial(0), {})
    said = refusal(lambda: store.read_snapshot(path, build(**other, image_size=8, channels=1)))
    assert said.startswith(f"{path}: {other['name']}: ")
    assert said.endswith("; the file belongs to another network")


def test_every_snapshot_of_every_seed_has_a_place_of_its_own(tmp_path):
    home = Home(tmp_path / "small", made_up.experiment(seeds=(0, 1)))
    words = ("end", "0", "1ep", "10ep", "7it", "100000it")
    for seed in (0, 1):
        made_up.finish(home, f"dense-seed{seed}", 0.5)
    places = [home.snapshot(dense, point(word)) for dense in home.graph.dense for word in words]
    assert len(set(places)) == len(places)
    assert home.snapshot(home.graph.dense[0], point(f"{2 * made_up.STEPS}it")) == home.snapshot(
        home.graph.dense[0], point("2ep")
    )


# ---- metrics


def test_metrics_are_read_in_the_order_they_were_written(tmp_path):
    assert store.read_metrics(tmp_path / "none") == []
    made_up.epochs(tmp_path / "cell", 3)
    assert [line["epoch"] for line in store.read_metrics(tmp_path / "cell")] == [1, 2, 3]


@pytest.mark.parametrize("torn", ['{"epoch": 3, "train_lo', "{", '{"epoch": 3}'])
def test_a_last_line_without_its_end_is_ignored(tmp_path, torn):
    made_up.epochs(tmp_path, 2)
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write(torn)
    assert [line["epoch"] for line in store.read_metrics(tmp_path)] == [1, 2]


def test_a_damaged_line_that_is_not_the_last_is_refused_by_name(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1\n{"epoch": 2}\n')
    assert refusal(lambda: store.read_metrics(tmp_path)).startswith(f"{tmp_path / 'metrics.jsonl'}: ")


def test_trimming_drops_the_lines_that_are_not_kept_and_a_torn_one(tmp_path):
    made_up.epochs(tmp_path, 3)
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write('{"epoch": 4, "tr')
    before = store.read_metrics(tmp_path)
    store.trim_metrics(tmp_path, lambda line: line["epoch"] <= 2)
    assert store.read_metrics(tmp_path) == before[:2]
    made_up.epochs(tmp_path, 1)  # what is written next stands on a line of its own
    assert [line["epoch"] for line in store.read_metrics(tmp_path)] == [1, 2, 1]


def test_trimming_metrics_that_do_not_exist_makes_no_file(tmp_path):
    store.trim_metrics(tmp_path, lambda line: True)
    assert files_under(tmp_path) == []


# ---- the folder of an experiment


def test_a_new_folder_holds_the_resolved_experiment_and_nothing_else(tmp_path):
    experiment = made_up.experiment()
    home = open_home(experiment, tmp_path / "results" / experiment.name)
    assert (home.root, home.experiment) == (tmp_path / "results" / experiment.name, experiment)
    assert files_under(home.root) == ["experiment.yaml"]
    assert load(home.root / "experiment.yaml") == experiment


def test_a_grown_experiment_is_put_on_record(tmp_path):
    open_home(made_up.experiment(), tmp_path)
    grown = made_up.experiment(quantiles=(0.5, 0.7, 0.9))
    open_home(grown, tmp_path)
    assert load(tmp_path / "experiment.yaml") == grown


@pytest.mark.parametrize("folder", ["dense", "cells"])
def test_results_of_the_first_version_are_refused_with_what_to_do(tmp_path, folder):
    (tmp_path / "small-3bd71836e2" / folder).mkdir(parents=True)
    said = refusal(lambda: open_home(made_up.experiment(), tmp_path / "small-3bd71836e2"))
    assert "results of version 0.1, which this version cannot read" in said and "run the experiment again" in said
    assert files_under(tmp_path) == ["small-3bd71836e2", f"small-3bd71836e2/{folder}"]


def test_other_images_under_the_same_name_are_refused(tmp_path):
    """But not before anything was trained with the first: a picture that cannot be read may be taken out."""
    first, made = (made_up.experiment(data=Data("folder", listing=listing)) for listing in ("0000", "aaaa"))
    open_home(first, tmp_path / "small")
    home = open_home(made, tmp_path / "small")
    made_up.finish(home, "dense-seed0", 0.75)
    other = dataclasses.replace(made, data=Data("folder", listing="bbbb"))
    said = refusal(lambda: open_home(other, home.root))
    assert "other images than those" in said and "(listing bbbb, before aaaa)" in said
    assert load(home.root / "experiment.yaml") == made


def test_a_damaged_experiment_file_is_refused_and_left_alone(tmp_path):
    (tmp_path / "experiment.yaml").write_text(dump(made_up.experiment())[:-40] + "[")
    before = (tmp_path / "experiment.yaml").read_text()
    assert str(tmp_path / "experiment.yaml") in refusal(lambda: open_home(made_up.experiment(), tmp_path))
    assert (tmp_path / "experiment.yaml").read_text() == before


def test_a_record_that_was_edited_is_refused_and_taken_back_it_is_whole_again(tmp_path):
    """A rate changed by hand would stand on the page over results of another one."""
    home = open_home(made_up.experiment(), tmp_path / "small")
    record = home.root / "experiment.yaml"
    whole = record.read_text()
    record.write_text(whole.replace("learning_rate: 0.1", "learning_rate: 0.4"))
    assert record.read_text() != whole
    for look in (lambda: load(record), lambda: open_home(made_up.experiment(), home.root)):
        said = refusal(look)
        assert said.startswith(f"{record}: edited since it was written") and "take that back" in said
    copy = tmp_path / "own.yaml"
    copy.write_text("".join(record.read_text().splitlines(keepends=True)[:-1]))
    assert load(copy).recipe.learning_rate == 0.4, "in a file of one's own anything may be changed"
    record.write_text(whole)
    assert open_home(made_up.experiment(), home.root).experiment == made_up.experiment()


def test_a_result_in_the_folder_of_another_training_is_refused(tmp_path):
    from sweep.graph.results import collect

    home = Home(tmp_path / "small", made_up.experiment())
    one, other = (home.training(f"ticket-q0.5-k{k}-seed0") for k in ("0", "2ep"))
    made_up.finish(home, one.slug, 0.5, training=one.name)
    assert len(collect(home)) == 5
    shutil.copytree(home.folder(one), home.folder(other))
    said = refusal(lambda: collect(home))
    assert said.startswith(f"{home.folder(other) / 'result.json'}: the result of {one.name}; put it back")


@pytest.mark.parametrize("below", ["", "results/small"])
def test_a_place_that_cannot_be_written_is_refused_in_one_line(tmp_path, below):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    said = refusal(lambda: open_home(made_up.experiment(), in_the_way / below))
    assert said.startswith(str(in_the_way))
    assert said.endswith("; expected a folder that can be written")
    assert files_under(tmp_path) == ["file"]


def test_the_same_work_with_its_data_elsewhere_is_put_on_record(tmp_path):
    experiment = made_up.experiment()
    open_home(experiment, tmp_path)
    moved = dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, path="elsewhere"))
    assert open_home(moved, tmp_path).experiment.data.path == "elsewhere"
    assert load(tmp_path / "experiment.yaml") == moved


def test_opening_an_unchanged_folder_writes_nothing(tmp_path):
    open_home(made_up.experiment(), tmp_path)
    before = (tmp_path / "experiment.yaml").stat()
    open_home(made_up.experiment(), tmp_path)
    after = (tmp_path / "experiment.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_line_that_was_cut_off_is_gone_when_the_next_is_written(tmp_path):
    path = tmp_path / "jobs.jsonl"
    store.append_line(path, {"id": 1})
    with open(path, "a") as f:
        f.write('{"id": 2, "par')  # a kill, or a full disk
    assert store.read_lines(path) == [{"id": 1}]
    store.append_line(path, {"id": 3})
    assert store.read_lines(path) == [{"id": 1}, {"id": 3}]


@pytest.mark.parametrize("name", ["kernel", "threshold"])
def test_a_byte_that_changed_on_the_disk_is_seen(name, tmp_path):
    """Zeroed bytes of a mask, a flipped exponent of a weight: both would train to another number without a word."""
    path = tmp_path / "some.h5"
    arrays = {"kernel": np.ones((3, 4), np.float32), "threshold": np.array(0.25)}
    store.write_arrays(path, arrays, {"network": "resnet20"})
    found, attributes = store.read_arrays(path)
    assert attributes == {"network": "resnet20"} == store.read_attributes(path)
    assert all(found[key].tobytes() == arrays[key].tobytes() for key in arrays)
    with h5py.File(path, "r+") as f:
        f[name][...] = f[name][...] * 2
    assert refusal(lambda: store.read_arrays(path)).startswith(f"{path}: changed since it was written (checksum)")


def test_an_accuracy_that_is_none_is_refused(tmp_path):
    from sweep.graph.results import collect

    home = Home(tmp_path / "small", made_up.experiment())
    for wrong in (1.5, -0.1, float("nan")):
        made_up.finish(home, "dense-seed0", wrong)
        said = refusal(lambda: collect(home))
        assert "result.json: test" in said and ("expected 0 to 1" in said or "is not a number" in said)


def test_a_result_that_kept_another_number_than_its_level_leaves_is_refused(tmp_path):
    from sweep.graph.results import collect

    home = Home(tmp_path / "small", made_up.experiment())
    made_up.finish(home, "dense-seed0", 0.9)
    made_up.finish(home, "ticket-q0.9-k0-seed0", 0.9, kept=11, prunable=100, density=0.11)
    assert "11 of 100 weights kept, expected 10 at q0.9; delete the folder" in refusal(lambda: collect(home))


def test_a_thousand_rounds_each_from_the_one_before_can_be_followed(tmp_path):
    many = made_up.experiment(rounds=1000, share=0.005, quantiles=(), rewind=made_up.points(2))
    home = Home(tmp_path / "many", many)
    assert Runs(home.pool).replaced(home.graph.trainings[-1]) == ""
