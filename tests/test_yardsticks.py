"""Published figures and ours: the table in docs/studies.md is what the recorded results give."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.graph.results import collect
from sweep.report.published import FILE, beside
from tests.test_house import ROOT

REFERENCE = ROOT / "results" / "reference"
SCRIPT = ROOT / "benchmarks" / "yardsticks.py"


def said(script: Path = SCRIPT) -> str:
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout


def test_the_table_in_the_studies_is_what_the_recorded_results_give():
    table = said().partition("\n\nSources")[0]
    assert table in (ROOT / "docs" / "studies.md").read_text(), "make yardsticks"
    assert "| dense | 91.67 % |" in table


METHODS = {"ticket": "weight-rewind", "lr_rewind": "lr-rewind", "fresh": "random-reinit"}


def rows() -> list[dict[str, str]]:
    """Of yardsticks.csv, those of Renda et al."""
    with open(REFERENCE / "yardsticks.csv", newline="") as f:
        return [row for row in csv.DictReader(f) if row["source"].startswith("Renda")]


def test_published_figures_are_those_of_the_published_curves():
    with open(FILE, newline="") as f:
        curves = {
            (row["schedule"], row["method"], row["density"], row["rewind_epoch"]): row
            for row in csv.DictReader(f) if row["network"] == "resnet20"
        }  # fmt: skip
    assert len(rows()) == 31
    for row in rows():
        schedule = row["figure"].partition(",")[0]
        curve = curves[schedule, METHODS[row["kind"]], row["density"], row["rewind"].removesuffix("ep")]
        for name, theirs, digits in (("published", "median", 2), ("least", "min", 3), ("greatest", "max", 3)):
            assert row[name] == f"{100 * float(curve[f'accuracy_{theirs}']):.{digits}f}"


RUNS = Path(__file__).parents[2] / "shared/data/published/renda2020_resnet20_runs.csv"
WAYS = {"lottery": ("ticket", 182), "lr_finetune": ("lr_rewind", 130), "reinit": ("fresh", None)}


@pytest.mark.skipif(not RUNS.exists(), reason="the runs of Renda et al. one by one are not here")
def test_figures_of_the_published_set_up_are_those_of_all_their_runs():
    theirs: dict[tuple[str, str, str], list[float]] = {}
    with open(RUNS, newline="") as f:
        for run in csv.DictReader(f):
            kind, at = ("dense", None) if run["kind"] == "dense" else WAYS.get(run["retrain_method"], ("", 0))
            if run["kind"] == "iterative" or (at and float(run["retrain_time"]) not in (at, 170)):
                continue
            rewind = "0" if at is None or run["retrain_time"] == "182.0" else f"{182 - float(run['retrain_time']):g}ep"
            theirs.setdefault((kind, rewind, run["density"].removesuffix(".0")), []).append(
                float(run["accuracy_10000"])
            )
    with open(REFERENCE / "yardsticks.csv", newline="") as f:
        found = [row for row in csv.DictReader(f) if row["figure"].startswith("the published set-up")]
    assert len(found) == 9
    for row in found:
        runs = theirs[row["kind"], row["rewind"], row["density"]]
        assert len(runs) == {"dense": 119, "fresh": 30}.get(row["kind"], 3)
        expected = [100 * one for one in (mean(runs), min(runs), max(runs))]
        assert [row["published"], row["least"], row["greatest"]] == [f"{one:.2f}" for one in expected]


@pytest.mark.parametrize(("place", "name"), [("study", "study_resnet20"), ("iterative", "cifar10_resnet20_iterative")])
def test_no_published_figure_that_the_record_allows_is_left_out(place, name):
    home = Home(REFERENCE / place / name, experiment_file.load(REFERENCE / place / name / "experiment.yaml"))
    there = {(row["figure"].partition(",")[0], row["kind"], row["rewind"], row["density"]) for row in rows()}
    found = beside(home.experiment, collect(home))
    schedule = "iterative" if home.experiment.prune.rounds > 1 else "one-shot"
    assert found
    for one in found:
        assert (schedule, one.kind, one.rewind, f"{one.published.density:g}") in there


def test_a_figure_is_inside_outside_or_missing(tmp_path):
    """On a copy: other recorded results give another table."""
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(SCRIPT, tmp_path / "benchmarks")
    shutil.copytree(REFERENCE, tmp_path / "results" / "reference")
    rows = [("ticket", "12ep", 0.2097, 0.91), ("ticket", "12ep", 0.2097, 0.912), ("fresh", "0", 0.1074, 0.9)]
    lines = [f"{i},{','.join(map(str, row))},done,1" for i, row in enumerate(rows)]
    shutil.rmtree(tmp_path / "results" / "reference" / "study" / "study_resnet20")
    for place in ("two", "again"):  # a training on record twice is one
        results = tmp_path / "results" / "reference" / place / "study_resnet20" / "report" / "results.csv"
        results.parent.mkdir(parents=True)
        results.write_text("\n".join(["training,kind,rewind,density,test_top1,state,round", *lines, ""]))
    found = said(tmp_path / "benchmarks" / "yardsticks.py")
    assert (
        "| one-shot, weights from 12ep, 21 % remaining | 91.21 % | 90.850 to 91.225 % | 91.10 (2) | inside |" in found
    )
    assert (
        "| one-shot, fresh weights, 10.7 % remaining | 86.88 % | 86.800 to 87.038 % | 90.00 (1) | "
        "outside, 2.962 above |" in found
    )
    assert "| one-shot, weights from 0, 21 % remaining | 89.18 % | 89.025 to 89.200 % | – | missing |" in found
    assert "of the 44 rows are not trained yet." in found
