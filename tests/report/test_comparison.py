"""Sweeps and trainings side by side."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from sweep.experiment import Data, method
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.report import comparison
from sweep.report.comparison import compare, difference, side_of, side_of_training, table
from tests import synthetic
from tests.commands import lottery
from tests.synthetic import refusal


def swept(tmp_path, name: str, seeds: tuple[int, ...], gain: float, **prune) -> Home:
    """A finished sweep whose tickets are better by `gain`; accuracies differ between seeds."""
    home = Home(tmp_path / name, synthetic.experiment(name, seeds=seeds, quantiles=(0.5, 0.9), **prune))
    home.root.mkdir(parents=True)
    (home.root / "experiment.yaml").write_text(experiment_file.record(home.experiment))
    for training in home.graph:
        done = {"density": 1 - training.mask.level.value, "kept": None} if training.mask else {}
        top1 = 0.9 + 0.01 * training.origin + (gain * (1 + training.origin) if training.mask else 0)
        synthetic.finish(home, training.slug, top1, training=training.name, **done)
    return home


def test_what_differs_is_listed_and_tickets_of_equal_density_are_paired_by_seed(tmp_path):
    one = swept(tmp_path, "one", (0, 1, 2), 0.001)
    other = swept(tmp_path, "other", (0, 1, 2, 3), 0.002, methods=(method("lamp"),))
    found = compare([side_of(one), side_of(other)])
    assert set(found.settings) == {"prune.methods", "seeds"}
    assert found.settings["seeds"] == ["[0, 1, 2]", "[0, 1, 2, 3]"]
    assert [str(line.key) for line in found.lines] == [
        "dense", "ticket, 50 %, from 0", "ticket, 50 %, from 2ep", "ticket, 10 %, from 0", "ticket, 10 %, from 2ep",
    ]  # fmt: skip
    for line in found.lines[1:]:  # by seed 0.001, 0.002 and 0.003 better
        right = stats.ttest_1samp([0.001, 0.002, 0.003], 0).confidence_interval(0.95)
        assert line.shared == (3,) and line.differences[0].mean == pytest.approx(0.002)
        assert line.differences[0].low == pytest.approx(right.low)
    assert table(found)[1]["other − one"] == "+0.20 [-0.05, +0.45] (3 pairs)"


def test_a_sweep_of_several_methods_is_compared_with_one_of_a_single_method_by_method(tmp_path):
    both = swept(tmp_path, "both", (0,), 0.001, methods=(method("magnitude"), method("lamp")))
    found = compare([side_of(both), side_of(swept(tmp_path, "one", (0,), 0.002, methods=(method("lamp"),)))])
    assert [str(line.key) for line in found.lines[:2]] == ["dense", "ticket lamp, 50 %, from 0"]
    third = swept(tmp_path, "third", (0,), 0.0, methods=(method("magnitude"), method("lamp")))
    drawn = comparison._figure(compare([side_of(both), side_of(third)])).to_dict()
    assert {point["side"] for point in drawn["data"]["values"]} == {
        "both magnitude", "both lamp", "third magnitude", "third lamp",
    }  # fmt: skip


def test_sides_with_other_images_are_not_paired_by_seed_and_that_is_said(tmp_path):
    one = swept(tmp_path, "one", (0, 1, 2), 0.001)
    other = swept(tmp_path, "other", (0, 1, 2), 0.002, data=Data("mnist"))
    found = compare([side_of(one), side_of(other)])
    assert {line.shared for line in found.lines} == {(0,)} and "the sides have other images" in found.method
    right = difference({0: 0.90, 1: 0.91, 2: 0.92}, {7: 0.90, 8: 0.91, 9: 0.92})
    assert found.lines[0].differences[0] == right and table(found)[0]["other − one"].endswith("(not paired)")
    assert "paired by the seeds" in compare([side_of(one), side_of(one)]).method


def test_without_a_common_seed_the_means_are_compared_as_welch_does(tmp_path):
    ones, others = {0: 0.91, 1: 0.92, 2: 0.915}, {7: 0.90, 8: 0.93, 9: 0.88, 10: 0.9}
    found = difference(ones, others)
    right = stats.ttest_ind([*ones.values()], [*others.values()], equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(right.low), pytest.approx(right.high))
    assert found.mean == pytest.approx(np.mean([*ones.values()]) - np.mean([*others.values()]))
    assert difference({0: 0.9}, {1: 0.8}).half is None and difference({}, others) is None


def test_only_what_two_of_them_have_is_compared(tmp_path):
    sides = [side_of(swept(tmp_path, name, (0,), 0.0, rewind=synthetic.points(*points)))
             for name, points in (("one", (0,)), ("two", (0, 1)), ("three", (1,)))]  # fmt: skip
    lines = {str(line.key): line for line in compare(sides).lines}
    assert "ticket, 50 %, from 0" in lines and "ticket, 50 %, from 1ep" in lines
    assert lines["ticket, 50 %, from 1ep"].differences == (None, None)  # not in the first
    assert lines["ticket, 50 %, from 0"].differences[1] is None


def test_single_trainings_are_compared_by_their_settings_and_accuracy(tmp_path):
    home = swept(tmp_path, "one", (0,), -0.01)
    dense, ticket = (side_of_training(home, home.training(name)) for name in ("dense-seed0", "ticket-q0.9-k0-seed0"))
    found = compare([dense, ticket])
    assert set(found.settings) == {"kind", "mask"}
    assert found.lines[0].differences[0].mean == pytest.approx(-0.01)
    (home.folder_of("dense-seed0") / "result.json").unlink()
    assert "is not done" in refusal(lambda: side_of_training(home, home.training("dense-seed0")))


def test_the_command_writes_one_page_and_refuses_in_one_line(tmp_path):
    swept(tmp_path, "one", (0, 1, 2), 0.001)
    swept(tmp_path, "two", (0, 1, 2), 0.003, methods=(method("lamp"),))
    at = ("--results", tmp_path, "--out", tmp_path / "out")
    said = lottery("compare", "one", "two", *at).stdout
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert "comparison.html" in said and "+0.40 [" in page and "<svg" in page and "http-equiv" not in page
    words = ("one:ticket-q0.5-k0-seed0", "two:ticket-lamp-q0.5-k0-seed0", "--json")
    assert set(json.loads(lottery("compare", *words, *at).stdout)["settings"]) == {"mask"}
    same = ("one:dense-seed0", "two:dense-seed0")
    assert json.loads(lottery("compare", *same, "--json", *at).stdout)["names"] == list(same)
    for words, right in (
        (("one",), "expected two or more"),
        (("one", "one"), "each of them once"),
        (("one", "nowhere"), "nowhere: neither an experiment file nor under"),
        (("one", "two:dense-seed9"), "no training 'dense-seed9'"),
    ):
        done = lottery("compare", *words, *at, check=2)
        assert right in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_density_that_came_out_otherwise_than_asked_for_is_the_one_that_is_compared(tmp_path):
    """prune.budget: macs, or N:M, leaves another share of the weights."""
    one, other = (swept(tmp_path / name, name, (0, 1), 0.001) for name in ("one", "other"))
    for training in other.graph:
        if training.mask:
            density = {0.5: 0.7, 0.9: 0.35}[training.mask.level.value]
            synthetic.finish(other, training.slug, 0.9, density=density, kept=None)
    found = compare([side_of(one), side_of(other)])
    assert [str(line.key) for line in found.lines] == ["dense"]
    assert {key.density for key in side_of(other).found if key.kind == "ticket"} == {0.7, 0.35}
