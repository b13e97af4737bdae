"""How the command refuses: exit status 2, one line, nothing written."""

from __future__ import annotations

import json

import pytest

from tests import synthetic
from tests.cli.conftest import SMALL, command
from tests.synthetic import content, files_under

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


REFUSED = {
    "unknown key": ("sweep small.yaml recipe.epoch=3", "recipe.epoch: no such key; did you mean epochs?"),
    "unknown key in the file": ("sweep typo.yaml", "typo.yaml: recipe.epocs: no such key; did you mean epochs?"),
    "wrong type": ("sweep small.yaml recipe.epochs=many", "recipe.epochs: received 'many', expected a whole number"),
    "quantile above 1": ("sweep small.yaml prune.quantiles=[1.5]", "prune.quantiles[0]: received 1.5, expected a"),
    "rewind past the end": ("sweep small.yaml prune.rewind=[4ep]", "prune.rewind: received ['4ep'], expected"),
    "steps past the end": ("sweep small.yaml prune.rewind=[9999it]", "prune.rewind: received 9999it, expected a point"),
    "one step, two names": ("sweep small.yaml prune.rewind=[0,179it,1ep]", "179it and 1ep are the same step, 179"),
    "malformed override": ("sweep small.yaml epochs", "'epochs': expected key.sub=value"),
    "data not given": ("sweep small.yaml data.name=cifar10", "data.path: not given; cifar10 needs its archive"),
    "data not there": ("train small.yaml data.name=cifar10 data.path=none.tar", "data.path: nothing at none.tar;"),
    "images not there": ("train small.yaml data.name=folder data.path=none", "data.path: nothing at none; folder"),
    "no such file": ("sweep none.yaml", "none.yaml: No such file or directory; expected an experiment file"),
    "no such name": ("status none", "none: neither an experiment file nor under results/"),
    "a folder of something else": ("plan .", ": no experiment.yaml in it; expected the folder of an experiment"),
    "unknown command": ("swep small.yaml", 'Unknown command "swep"'),
    "unknown option": ("sweep small.yaml --job 2", "--job"),
    "text for an option": ("sweep small.yaml --jobs many", "--jobs"),
    "no experiment": ("plan", "plan: EXPERIMENT is missing (lottery plan --help says what it is)"),
    "nothing to report": ("report small.yaml", "nothing there yet; lottery sweep small.yaml makes it"),
    "a seed and a name": ("train small.yaml dense-seed0 --seed 0", "--seed 0: expected it or names of trainings"),
    "no weights yet": ("weights small.yaml", "final.h5: no such file; lottery sweep writes it"),
    "unknown training": ("train small.yaml ticket-q0.5-k1ep-seed0", "no training 'ticket-q0.5-k1ep-seed0' in this exp"),
    "unknown seed": ("train small.yaml --seed 7", "--seed 7: expected one of the experiment's seeds [0]"),
    "no job": ("sweep small.yaml --jobs 0", "--jobs 0: expected 1 or more"),
    "devices below none": ("train small.yaml --devices -1", "--devices -1: expected 0 (all there are) or more"),
    "restarts below none": ("train small.yaml --restarts -1", "--restarts -1: expected 0 or more"),
    "a measurement of nothing": ("bench scaling --rounds 0", "--rounds: received 0, expected 1 or more"),
    "a training and a wrong override": ("train small.yaml dense-seed0 recipe.epoch=3", "recipe.epoch: no such key"),
    "more devices than a batch is for": ("train small.yaml --devices 3", "batch norm sees 8 images together"),
    "a folder that is not there": ("status /none/small", "/none/small: neither an experiment file nor under results/"),
    "field that no step has": ("bench step --vary recipe.norm=32", "recipe.norm: no such key; did you mean"),
    "network without a benchmark": ("bench step --model resnet21", "model.name: received 'resnet21', expected one of"),
}


def assert_refused(ended: tuple[int, str, str], message: str) -> None:
    status, said, error = ended
    assert (status, said) == (2, "")
    assert len(error.splitlines()) == 1
    assert error.startswith("lottery: ")
    assert message in error


def test_a_process_that_refuses_says_one_line_and_exits_with_2(here):
    ended = command("swep")
    assert_refused((ended.returncode, ended.stdout, ended.stderr), 'Unknown command "swep"')


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line_before_anything_is_written(here, lottery, words, message):
    (here / "typo.yaml").write_text(SMALL.replace("epochs: 4", "epocs: 4"))
    assert_refused(lottery(*words.split()), message)
    assert files_under(here) == ["small.yaml", "typo.yaml"]


def test_every_mistake_of_a_file_has_its_line(here, lottery):
    (here / "small.yaml").write_text("model: {nme: resnet20}\nrecipe: {epochs: 0, batch: x}\n")
    status, out, said = lottery("plan", "small.yaml")
    assert (status, out) == (2, "")
    assert [line.partition(" small.yaml: ")[0::2] for line in said.splitlines()] == [
        ("lottery:", "model.nme: no such key; did you mean name?"),
        ("lottery:", "recipe.epochs: received 0, expected a whole number, at least 1, at most 10000000"),
        ("lottery:", "recipe.batch: received 'x', expected a whole number, at least 1, at most 1000000"),
    ]


REFUSED_CELLS = {
    "unknown training": ("train small ticket-q0.5-k1ep-seed0", "did you mean ticket-q0.5-k"),
    "unknown seed": ("train small --seed 7", "--seed 7: expected one of the experiment's seeds [0]"),
    "no job": ("sweep small --jobs 0", "--jobs 0: expected 1 or more"),
    "no margin": ("report small --margin nan", "--margin nan: expected percentage points of accuracy, 0 to 100"),
    "other images": ("train small data.name=cifar10 data.path=none", "data.path: nothing at none"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED_CELLS.values(), ids=REFUSED_CELLS)
def test_a_refusal_leaves_results_that_are_there_as_they_are(home, lottery, words, message):
    before = content(home.root)
    assert_refused(lottery(*words.split()), message)
    assert content(home.root) == before


@pytest.mark.parametrize("words", ["sweep small.yaml", "train small.yaml", "dry-run"])
def test_results_that_cannot_be_written_are_refused(here, lottery, words):
    (here / "in_the_way").write_text("a file")
    assert_refused(lottery(*words.split(), "--results", "in_the_way/results"), "expected a folder that can be written")
    assert files_under(here) == ["in_the_way", "small.yaml"]


def test_results_of_the_first_version_are_refused_with_what_to_do(home, lottery):
    (home.pool / "old-3bd71836e2" / "cells").mkdir(parents=True)
    (home.pool / "old-3bd71836e2" / "experiment.yaml").write_text(SMALL)
    before = content(home.pool)
    assert_refused(lottery("status", "old-3bd71836e2"), "results of version 0.1, which this version cannot read")
    assert_refused(lottery("sweep", "results/old-3bd71836e2"), "results of version 0.1, which this version cannot read")
    assert content(home.pool) == before


@pytest.mark.parametrize("words", [("report", "small"), ("weights", "small")])
def test_a_report_that_cannot_be_written_is_refused_in_one_line(weighed, lottery, words):
    home, _ = weighed
    home.report.write_text("a file in the way")
    status, _, said = lottery(*words)
    assert (status, said.count("\n")) == (2, 1)
    assert said.startswith(f"lottery: results/{home.root.name}/report")


def test_a_damaged_snapshot_is_refused_by_name(home, lottery):
    path = synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    path.write_bytes(path.read_bytes()[:5000])
    status, _, said = lottery("weights", "small")
    assert (status, said.count("\n")) == (2, 1)
    assert f"{path.relative_to(home.pool)}: truncated or not HDF5" in said


def test_a_folder_that_slurm_cannot_write_a_log_to_is_refused_before_it_is_made(here, lottery):
    status, _, error = lottery("sbatch", "small.yaml", "--results", "two\nlines")
    assert status == 2 and "no line break" in error and not (here / "two\nlines").exists()


@pytest.mark.parametrize("wrong", ["trainings_on_gpu", "devices"])
def test_an_epoch_of_no_trainings_or_devices_is_refused_in_one_line(unfinished, lottery, wrong):
    line = {"epoch": 1, "seconds": 1.0, "evaluation_seconds": 0.5, wrong: 0}
    (unfinished.folder_of("dense-seed0") / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    status, _, error = lottery("status", "small")
    assert status == 2 and f"{wrong} is not a number above 0" in error and len(error.splitlines()) == 1


def test_a_result_that_does_not_say_its_version_is_reported(unfinished, lottery):
    synthetic.finish(unfinished, "dense-seed0", 0.75, version=None, date="2026-01-01")
    status, said, _ = lottery("report", "small")
    assert status == 0 and "report.html" in said


def test_mistakes_of_options_and_of_fields_are_told_at_once(here, lottery):
    status, _, said = lottery("sweep", "small.yaml", "recipe.epochs=0", "seeds=[]", "--jobs", "0", "--wait")
    starts = ("--jobs 0: ", "--wait and ", "small.yaml: recipe.epochs: ", "small.yaml: seeds: ")
    assert status == 2 and len(said.splitlines()) == 4
    assert all(line.startswith(f"lottery: {start}") for line, start in zip(said.splitlines(), starts, strict=True))
