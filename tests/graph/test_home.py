"""The folder of an experiment, and what is refused in it."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from sweep import files
from sweep.experiment import END, Data, Point
from sweep.experiment.file import dump, load
from sweep.graph.home import Home, open_home
from sweep.graph.runs import Runs
from sweep.graph.state import state_of
from sweep.work.worker import Worker
from tests import synthetic
from tests.synthetic import files_under, refusal


def test_a_new_folder_holds_the_resolved_experiment_and_nothing_else(tmp_path):
    experiment = synthetic.experiment()
    home = open_home(experiment, tmp_path / "results" / experiment.name)
    assert (home.root, home.experiment) == (tmp_path / "results" / experiment.name, experiment)
    assert files_under(home.root) == ["experiment.yaml"]
    assert load(home.root / "experiment.yaml") == experiment


def test_a_grown_experiment_is_put_on_record(tmp_path):
    open_home(synthetic.experiment(), tmp_path)
    grown = synthetic.experiment(quantiles=(0.5, 0.7, 0.9))
    open_home(grown, tmp_path)
    assert load(tmp_path / "experiment.yaml") == grown


def test_what_another_experiment_trained_is_not_skipped(tmp_path):
    home = open_home(synthetic.experiment(collapse="skip"), tmp_path / "small")
    ticket = home.training("ticket-q0.9-k0-seed0")
    said = {"task": ticket.slug, "reason": "a layer is empty", "runs": {}}
    files.write_json(home.folder(ticket) / "skipped.json", said)
    assert home.skipped(ticket) == "a layer is empty" and home.done(ticket)
    synthetic.finish(home, ticket.slug, 0.5)
    assert home.skipped(ticket) == "" and home.done(ticket)


@pytest.mark.parametrize("folder", ["dense", "cells"])
def test_results_of_the_first_version_are_refused_with_what_to_do(tmp_path, folder):
    (tmp_path / "small-3bd71836e2" / folder).mkdir(parents=True)
    said = refusal(lambda: open_home(synthetic.experiment(), tmp_path / "small-3bd71836e2"))
    assert "results of version 0.1, which this version cannot read" in said and "run the experiment again" in said
    assert files_under(tmp_path) == ["small-3bd71836e2", f"small-3bd71836e2/{folder}"]


def test_other_images_under_the_same_name_are_refused(tmp_path):
    """But not before anything was trained with the first: a picture that cannot be read may be taken out."""
    first, made = (synthetic.experiment(data=Data("folder", listing=listing)) for listing in ("0000", "aaaa"))
    open_home(first, tmp_path / "small")
    home = open_home(made, tmp_path / "small")
    synthetic.finish(home, "dense-seed0", 0.75)
    other = dataclasses.replace(made, data=Data("folder", listing="bbbb"))
    said = refusal(lambda: open_home(other, home.root))
    assert "other images than those" in said and "(listing bbbb, before aaaa)" in said
    assert load(home.root / "experiment.yaml") == made


def test_a_damaged_experiment_file_is_refused_and_left_alone(tmp_path):
    (tmp_path / "experiment.yaml").write_text(dump(synthetic.experiment())[:-40] + "[")
    before = (tmp_path / "experiment.yaml").read_text()
    assert str(tmp_path / "experiment.yaml") in refusal(lambda: open_home(synthetic.experiment(), tmp_path))
    assert (tmp_path / "experiment.yaml").read_text() == before


def test_a_record_that_was_edited_is_refused_and_taken_back_it_is_whole_again(tmp_path):
    """A rate changed by hand would stand on the page over results of another one."""
    home = open_home(synthetic.experiment(), tmp_path / "small")
    record = home.root / "experiment.yaml"
    whole = record.read_text()
    record.write_text(whole.replace("learning_rate: 0.1", "learning_rate: 0.4"))
    assert record.read_text() != whole
    for look in (lambda: load(record), lambda: open_home(synthetic.experiment(), home.root)):
        said = refusal(look)
        assert said.startswith(f"{record}: edited since it was written") and "take that back" in said
    copy = tmp_path / "own.yaml"
    copy.write_text("".join(record.read_text().splitlines(keepends=True)[:-1]))
    assert load(copy).recipe.learning_rate == 0.4, "in a file of one's own anything may be changed"
    record.write_text(whole)
    assert open_home(synthetic.experiment(), home.root).experiment == synthetic.experiment()


def test_a_result_in_the_folder_of_another_training_is_refused(tmp_path):
    from sweep.graph.results import collect

    home = Home(tmp_path / "small", synthetic.experiment())
    one, other = (home.training(f"ticket-q0.5-k{k}-seed0") for k in ("0", "2ep"))
    synthetic.finish(home, one.slug, 0.5, training=one.name)
    assert len(collect(home)) == 5
    shutil.copytree(home.folder(one), home.folder(other))
    said = refusal(lambda: collect(home))
    assert said.startswith(f"{home.folder(other) / 'result.json'}: the result of {one.name}; put it back")


@pytest.mark.parametrize("below", ["", "results/small"])
def test_a_place_that_cannot_be_written_is_refused_in_one_line(tmp_path, below):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    said = refusal(lambda: open_home(synthetic.experiment(), in_the_way / below))
    assert said.startswith(str(in_the_way))
    assert said.endswith("; expected a folder that can be written")
    assert files_under(tmp_path) == ["file"]


def test_the_same_work_with_its_data_elsewhere_is_put_on_record(tmp_path):
    experiment = synthetic.experiment()
    open_home(experiment, tmp_path)
    moved = dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, path="elsewhere"))
    assert open_home(moved, tmp_path).experiment.data.path == "elsewhere"
    assert load(tmp_path / "experiment.yaml") == moved


def test_opening_an_unchanged_folder_writes_nothing(tmp_path):
    open_home(synthetic.experiment(), tmp_path)
    before = (tmp_path / "experiment.yaml").stat()
    open_home(synthetic.experiment(), tmp_path)
    after = (tmp_path / "experiment.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_accuracy_outside_0_to_1_is_refused(tmp_path):
    from sweep.graph.results import collect

    home = Home(tmp_path / "small", synthetic.experiment())
    for wrong in (1.5, -0.1, float("nan")):
        synthetic.finish(home, "dense-seed0", wrong)
        said = refusal(lambda: collect(home))
        assert "result.json: test" in said and ("expected 0 to 1" in said or "is not a number" in said)


def test_a_result_that_kept_another_number_than_its_level_leaves_is_refused(tmp_path):
    from sweep.graph.results import collect

    home = Home(tmp_path / "small", synthetic.experiment())
    synthetic.finish(home, "dense-seed0", 0.9)
    synthetic.finish(home, "ticket-q0.9-k0-seed0", 0.9, kept=11, prunable=100, density=0.11)
    assert "11 of 100 weights kept, expected 10 at q0.9; delete the folder" in refusal(lambda: collect(home))


def test_a_thousand_rounds_each_from_the_one_before_can_be_followed(tmp_path):
    many = synthetic.experiment(rounds=1000, share=0.005, quantiles=(), rewind=synthetic.points(2))
    home = Home(tmp_path / "many", many)
    assert Runs(home.pool).replaced(home.graph.trainings[-1]) == ""


def test_finished_trainings_that_an_experiment_asks_for_no_more_are_named(tmp_path, capsys):
    home = open_home(synthetic.experiment(seeds=(0, 1)), tmp_path / "small")
    synthetic.finish(home, "dense-seed0", 0.75)
    synthetic.finish(home, "dense-seed1", 0.75)
    open_home(synthetic.experiment(seeds=(0, 1, 2)), home.root)
    assert capsys.readouterr() == ("", "")
    open_home(synthetic.experiment(seeds=(0,)), home.root)
    said = " ".join(capsys.readouterr().out.split())
    assert "it no longer asks for 1 of its finished trainings; they stay where they are" in said


def test_a_point_after_an_early_end_is_refused_and_not_waited_for(tmp_path):
    """recipe.stop_at ended the dense run after epoch 1."""
    made = synthetic.experiment(data=Data("digits", validation=100))
    home = Home(tmp_path / "small", dataclasses.replace(made, recipe=dataclasses.replace(made.recipe, stop_at=0.5)))
    synthetic.epochs(synthetic.finish(home, "dense-seed0", 0.75, epochs=1), 1)
    ticket, dense = home.training("ticket-q0.5-k2ep-seed0"), home.training("dense-seed0")
    assert [one.slug for one in home.waits_for(ticket)] == ["dense-seed0"], "for the weights at its end"
    synthetic.write_snapshot(home, synthetic.network().initial(1), None)
    assert home.missing_points() == {} and home.waits_for(ticket) == []
    assert state_of(home, dense).epoch == 1
    at_its_end = home.snapshot(dense, Point(1, "ep"))
    shutil.copy(home.snapshot(dense, END), at_its_end)
    assert at_its_end.exists() and home.weights(dense, Point(1, "ep")) == "never", "a ticket would train beyond it"
    said = refusal(lambda: Worker(home, quiet=True).perform(ticket.slug))
    assert said == "dense-seed0: recipe.stop_at ended it before or at 2ep; expected an earlier point"


@pytest.mark.tensorflow
def test_a_training_without_enough_memory_fails_with_what_would_help(tmp_path, monkeypatch):
    import tensorflow as tf

    home = open_home(synthetic.experiment(), tmp_path / "small")
    monkeypatch.setattr(Worker, "perform", lambda worker, task: tf.zeros(2**43))
    failed = Worker(home, quiet=True).attempt("dense-seed0")
    assert failed.reason.startswith("out of memory; expected a smaller recipe.batch") and "\n" not in failed.reason
    assert "OOM when allocating" in failed.reason
