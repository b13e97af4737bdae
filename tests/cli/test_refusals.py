"""How the command refuses: exit status 2, one line, nothing written."""

from __future__ import annotations

import json

import pytest

from sweep.experiment_file import dump
from sweep.store import open_store
from tests import made_up
from tests.cli.conftest import SMALL, command
from tests.made_up import content, files_under

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


REFUSED = {
    "unknown key": ("sweep small.yaml recipe.epoch=3", "recipe.epoch: no such key; did you mean epochs?"),
    "unknown key in the file": ("sweep typo.yaml", "typo.yaml: recipe.epocs: no such key; did you mean epochs?"),
    "wrong type": ("sweep small.yaml recipe.epochs=many", "recipe.epochs: received 'many', expected a whole number"),
    "quantile above 1": ("sweep small.yaml prune.quantiles=[1.5]", "prune.quantiles: received 1.5, expected 0 up to"),
    "rewind past the end": ("sweep small.yaml prune.rewind_epochs=[4]", "prune.rewind_epochs: received 4, expected"),
    "malformed override": ("sweep small.yaml epochs", "'epochs': expected key.sub=value"),
    "data not given": ("sweep small.yaml data.name=cifar10", "data.path: not given; cifar10 needs its archive"),
    "data not there": ("train small.yaml data.name=cifar10 data.path=none.tar", "data.path: nothing at none.tar;"),
    "images not there": ("ticket small.yaml x data.name=folder data.path=none", "data.path: nothing at none; folder"),
    "no such file": ("sweep none.yaml", "none.yaml: No such file or directory; expected an experiment file"),
    "no such name": ("status none", "none: neither an experiment file nor under results/"),
    "a folder of something else": ("plan .", ".: no experiment.yaml in it; expected a results folder"),
    "unknown command": ("swep small.yaml", 'Unknown command "swep"'),
    "unknown option": ("sweep small.yaml --job 2", "--job"),
    "text for an option": ("sweep small.yaml --jobs many", "--jobs"),
    "no experiment": ("plan", "--experiment requires an argument"),
    "nothing to report": ("report small.yaml", "nothing there yet; lottery sweep small.yaml makes it"),
    "no weights yet": ("weights small.yaml", "final.h5: no such file; the step that writes it has not run"),
    "unknown cell": ("ticket small.yaml ticket-q0.5-k1-seed0", "no cell 'ticket-q0.5-k1-seed0' in small; did you mean"),
    "index past the end": ("ticket small.yaml --index 4", "--index 4: expected 0 to 3"),
    "unknown seed": ("train small.yaml --seed 7", "--seed 7: expected one of the experiment's seeds [0]"),
    "no job": ("sweep small.yaml --jobs 0", "--jobs 0: expected 1 or more"),
    "index and a wrong override": ("ticket small.yaml --index 0 recipe.epoch=3", "recipe.epoch: no such key"),
    "a folder that is not there": ("status /none/small", "/none/small: neither an experiment file nor under results/"),
    "network without a benchmark": ("bench step --model resnet21", "model.name: received 'resnet21', expected one of"),
}


def assert_refused(words: str, message: str) -> None:
    ended = command(*words.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("lottery: ")
    assert message in ended.stderr


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line_before_anything_is_written(here, words, message):
    (here / "typo.yaml").write_text(SMALL.replace("epochs: 4", "epocs: 4"))
    assert_refused(words, message)
    assert files_under(here) == ["small.yaml", "typo.yaml"]


REFUSED_CELLS = {
    "unknown cell": ("ticket small ticket-q0.5-k1-seed0", "no cell 'ticket-q0.5-k1-seed0' in small; did you mean"),
    "index past the end": ("ticket small --index 4", "--index 4: expected 0 to 3"),
    "index below 0": ("ticket small --index=-1", "--index -1: expected 0 to 3"),
    "neither cell nor index": ("ticket small", "give either the name of a cell or --index"),
    "cell and index": ("ticket small ticket-q0.5-k0-seed0 --index 0", "give either the name of a cell or --index"),
    "unknown seed": ("train small --seed 7", "--seed 7: expected one of the experiment's seeds [0]"),
    "no job": ("sweep small --jobs 0", "--jobs 0: expected 1 or more"),
    "another experiment": ("sweep small recipe.epochs=9", "recipe.epochs=9: makes another experiment than results/"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED_CELLS.values(), ids=REFUSED_CELLS)
def test_a_refusal_leaves_results_that_are_there_as_they_are(home, words, message):
    before = content(home.root)
    assert_refused(words, message)
    assert content(home.root) == before


@pytest.mark.parametrize("words", ["sweep small.yaml", "train small.yaml", "dry-run"])
def test_results_that_cannot_be_written_are_refused(here, words):
    (here / "in_the_way").write_text("a file")
    assert_refused(f"{words} --results in_the_way/results", "expected a folder that can be written")
    assert files_under(here) == ["in_the_way", "small.yaml"]


def test_results_of_another_experiment_under_the_same_name_are_refused(home):
    other = made_up.experiment(quantiles=(0.7,))
    (home.root / "experiment.yaml").write_text(dump(other))
    before = content(home.root)
    assert_refused("sweep small.yaml", f"hash {other.hash}, expected {home.experiment.hash}")
    assert content(home.root) == before


def test_an_ambiguous_name_is_refused_with_the_names_to_choose_from(home, lottery):
    other = made_up.experiment(quantiles=(0.7,))
    open_store(other, home.root.parent / other.folder)
    names = sorted([home.root.name, other.folder])
    status, _, said = lottery("status", "small")
    assert (status, said) == (
        2,
        f"lottery: small: several experiments of that name: {names[0]}, {names[1]}; give one of these\n",
    )


def test_a_name_is_not_ambiguous_because_another_begins_with_it(home, lottery):
    longer = made_up.experiment(name="small-er")
    open_store(longer, home.root.parent / longer.folder)
    assert json.loads(lottery("plan", "small", "--json")[1])["folder"] == f"results/{home.root.name}"


@pytest.mark.parametrize("words", [("report", "small"), ("weights", "small")])
def test_a_report_that_cannot_be_written_is_refused_in_one_line(weighed, lottery, words):
    home, _ = weighed
    home.report.write_text("a file in the way")
    status, _, said = lottery(*words)
    assert (status, said.count("\n")) == (2, 1)
    assert said.startswith(f"lottery: results/{home.root.name}/report")


def test_a_damaged_snapshot_is_refused_by_name(home, lottery):
    path = made_up.write_snapshot(home, made_up.network().initial(0), None)
    path.write_bytes(path.read_bytes()[:5000])
    status, _, said = lottery("weights", "small")
    assert (status, said.count("\n")) == (2, 1)
    assert f"{path.relative_to(home.root)}: truncated or not HDF5" in said
