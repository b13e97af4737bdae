"""What the command answers: the plan, the status, the report, the weights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from lottery import Sweep
from lottery.cli import show
from lottery.cli.plan import render
from slurm.status import make_status
from sweep import files
from sweep.graph import speeds
from sweep.graph.home import open_home
from sweep.graph.plan import graph_of
from sweep.graph.speeds import Packing
from sweep.pruning.statistics import QUANTILES
from sweep.report.verdict import MARGIN, rule
from sweep.work.find import read_home
from tests import synthetic
from tests.synthetic import content, files_under

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


# ---- which experiment is meant


@pytest.mark.parametrize("word", ["small.yaml", "small", "results/small", "results/small/"])
def test_an_experiment_is_a_file_a_name_or_a_results_folder(home, lottery, word):
    status, said, _ = lottery("plan", word, "--json")
    assert status == 0
    assert json.loads(said)["folder"] == "results/small"


def test_results_may_be_anywhere(here, lottery):
    experiment = synthetic.experiment()
    open_home(experiment, here / "elsewhere" / "small")
    for word in ("small.yaml", "small"):
        _, said, _ = lottery("plan", word, "--json", "--results", "elsewhere")
        assert json.loads(said)["folder"] == "elsewhere/small"


def test_another_name_is_another_experiment_that_begins_as_this(home, lottery, here):
    before = (home.root / "experiment.yaml").read_text()
    _, said, _ = lottery("plan", "small", "name=other", "--json")
    assert json.loads(said)["folder"] == "results/other"
    lottery("sbatch", "results/small", "name=other", "recipe.epochs=3")
    assert (home.root / "experiment.yaml").read_text() == before
    assert "epochs: 3" in (here / "results" / "other" / "experiment.yaml").read_text()


def test_a_report_makes_no_masks(unfinished, lottery):
    status, said, _ = lottery("report", "small", "--out", "elsewhere", "--verbose")
    assert status == 0 and "seed 0: test accuracy 75.00%" in said and "prunable weights remain" not in said
    assert not (unfinished.pool / "masks").exists()
    assert "prunable weights remain" in lottery("masks", "small")[1] and (unfinished.pool / "masks").exists()
    assert "prunable weights remain" in lottery("report", "small", "--verbose")[1]


def test_scripts_that_could_not_train_are_not_written(here, lottery):
    status, _, said = lottery("sbatch", "cifar10_resnet20")
    assert status == 2 and said.startswith("lottery: data.path: not given; cifar10 needs its archive")
    assert not (here / "results" / "cifar10_resnet20").exists()


def test_looking_at_masks_changes_no_experiment(unfinished, lottery):
    before = content(unfinished.root)
    lottery("masks", "small", "seeds=[7]")
    assert content(unfinished.root) == before


def test_masks_for_a_script_are_json(weighed, lottery):
    home, _ = weighed
    synthetic.finish(home, "dense-seed0", 0.75)
    lottery("masks", "small")
    found = json.loads(lottery("masks", "small", "--json")[1])
    assert [one["kept"] for one in found] == [round(one["prunable"] * (1 - one["quantile"])) for one in found]
    assert len(found) == 2 and all(sum(one["kernels"].values()) == one["kept"] for one in found)


def test_of_a_sweep_that_is_done_nothing_is_trained_again_for_a_snapshot_that_went(home, lottery):
    """Tickets start from it; they are done."""
    for training in home.graph:
        synthetic.finish(home, training.slug, 0.7, seconds=10.0)
    assert "5 trainings, 5 of them done; 0 epochs to train" in lottery("plan", "small")[1]


def test_an_override_grows_an_experiment_that_is_there(unfinished, lottery):
    _, said, _ = lottery("plan", "small", "prune.quantiles=[0.5,0.7,0.9]", "--json")
    rows = json.loads(said)["trainings"]
    assert len(rows) == 7 and sum(row["state"] == "done" for row in rows) == 2


# ---- plan


def test_the_plan_counts_trainings_by_kind_and_lists_all_in_their_order_on_request(here, lottery):
    assert re.search(r"ticket +│ 4 +│ 0 +│ 0 +│ 12 ", lottery("plan", "small.yaml")[1])
    status, said, _ = lottery("plan", "small.yaml", "--all")
    assert status == 0
    listed = re.findall(r"│ (\S+-seed0) +│ (\d) +│ (\d+) ", said)
    assert listed == [(one.slug, str(one.generation), f"{one.epochs:g}") for one in graph_of(synthetic.experiment())]
    assert "5 trainings, 0 of them done; 16 epochs to train; times are predicted once the dense run" in said
    assert files_under(here) == ["small.yaml"]


def test_before_anything_has_run_the_plan_estimates_from_a_speed_on_record(home, lottery):
    network = "mobilenet_v2_small 0.35 on digits, float32, batch 8"
    speeds.put_on_record(home.pool, [Packing("a machine", network, 1, 100.0, 0.0, 1280)])
    said = lottery("plan", "small")[1]
    assert "3 min 24 s on a machine, one training at a time, without start-up, by the speed of this network in" in said
    synthetic.epochs(synthetic.dense(home), 3, seconds=19.5)
    assert "Estimate" not in lottery("plan", "small")[1], "what was measured here is better"


@pytest.mark.parametrize(
    ("words", "expected"),
    [((), ""), (("data.name=cifar10",), "data.name=cifar10 data.path=PATH"),
     (("data.name=cifar10", "data.path=there"), "data.name=cifar10 data.path=there")],
)  # fmt: skip
def test_the_plan_ends_with_the_command_that_can_run_it(here, lottery, words, expected):
    assert (
        lottery("plan", "small.yaml", *words)[1].splitlines()[-1]
        == f"next: lottery sweep small.yaml {expected}".strip()
    )


def test_the_plan_for_a_script_is_json(here, lottery):
    status, said, _ = lottery("plan", "small.yaml", "--json")
    found = json.loads(said)["trainings"]
    assert status == 0
    assert [row["training"] for row in found] == [one.name for one in graph_of(synthetic.experiment())]
    assert found[4] | {"training": ""} == {
        "task": "ticket-q0.9-k2ep-seed0",
        "training": "",
        "kind": "ticket",
        "generation": 1,
        "rewind": "2ep",
        "epochs": 2,
        "left": 2,
        "state": "missing",
        "seconds": None,
        "again": [],
    }


def test_the_plan_predicts_times_from_the_epochs_of_the_dense_run(home, lottery):
    synthetic.epochs(synthetic.dense(home), 3, seconds=19.5)  # and half a second of evaluation
    _, said, _ = lottery("plan", "small", "--json")
    assert [row["seconds"] for row in json.loads(said)["trainings"]] == [None, 80.0, 80.0, 40.0, 40.0]
    _, said, _ = lottery("plan", "small", "cluster={nodes: 1, gpus_per_node: 2}", "--on", "slurm")
    assert "16 epochs to train: 4 min 00 s one after the other at the dense run's speed" in said
    assert "at least 2 min 00 s with 2 at a time on the cluster" in said
    assert "at least 1 min 20 s with 3 at a time here" in lottery("plan", "small", "--jobs", "3")[1]


def test_the_plan_predicts_epochs_of_larger_images_by_those_of_the_dense_run(home, lottery):
    stages = "recipe.stages=[4px/8, 8px/8@2ep]"
    dense = read_home("small", (stages,), home.pool).folder_of("dense-seed0")
    for epoch, seconds in enumerate((9.5, 9.5, 29.5, 29.5), start=1):
        files.append_metrics(dense, {"epoch": epoch, "seconds": seconds, "evaluation_seconds": 0.5})
    rows = json.loads(lottery("plan", "small", stages, "--json")[1])["trainings"]
    assert [(row["rewind"], row["seconds"]) for row in rows[1:]] == [("0", 80), ("0", 80), ("2ep", 60), ("2ep", 60)]


def test_a_folder_of_data_may_have_the_name_of_its_experiment(home, lottery):
    Path("small").mkdir()
    assert lottery("status", "small")[0] == 0


def test_the_plan_says_how_far_off_it_was_and_goes_on_from_there(home, lottery):
    synthetic.epochs(synthetic.finish(home, "dense-seed0", 0.75), 4, seconds=19.5)
    synthetic.finish(home, "ticket-q0.5-k0-seed0", 0.7, density=0.5, seconds=100.0)  # 80 s predicted
    _, said, _ = lottery("plan", "small", "--json")
    found = json.loads(said)
    assert found["forecast"] == {"trainings": 1, "took": 100.0, "predicted": 80.0}
    assert [row["seconds"] for row in found["trainings"]] == [None, 100.0, 100.0, 50.0, 50.0]
    _, said, _ = lottery("plan", "small")
    assert "3 min 20 s one after the other at the finished tickets' speed" in said
    assert "1 finished tickets and controls took 1 min 40 s of a device each, 25% more than the 1 min 20 s " in said


def test_a_forecast_of_trainings_that_shared_a_gpu_goes_by_their_share(home, lottery):
    """The dense run had it alone for most of its epochs; five tickets at a time take longer and cost no more."""
    synthetic.epochs(synthetic.finish(home, "dense-seed0", 0.75), 4, seconds=19.5, trainings_on_gpu=1)
    shared = {"seconds": 400.0, "trainings_per_gpu": 5, "gpu_seconds": 72.0}
    synthetic.finish(home, "ticket-q0.5-k0-seed0", 0.7, density=0.5, **shared)
    _, said, _ = lottery("plan", "small", "--json")
    assert json.loads(said)["forecast"] == {"trainings": 1, "took": 72.0, "predicted": 80.0}


def test_of_a_training_that_has_begun_the_plan_counts_what_is_left(unfinished, lottery):
    """One epoch of what has a checkpoint; what has none begins anew."""
    for epoch in (0, 2, None):
        synthetic.write_snapshot(unfinished, synthetic.network().initial(1), epoch)
    rows = json.loads(lottery("plan", "small", "--json")[1])["trainings"]
    assert {row["task"]: row["left"] for row in rows} == {
        "dense-seed0": 0, "ticket-q0.5-k0-seed0": 0, "ticket-q0.9-k0-seed0": 4,
        "ticket-q0.5-k2ep-seed0": 1, "ticket-q0.9-k2ep-seed0": 2,
    }  # fmt: skip
    _, said, _ = lottery("plan", "small", "--all")
    assert "7 epochs to train" in said and "│ 1 left " in said
    assert f"{7 * 12.5 / 4 / 3600:.3g} remaining" in said  # the finished ticket took 12.5 s for its four epochs


def test_python_json_and_the_terminal_tell_one_plan_one_status_and_one_finding(unfinished, lottery):
    sweep = Sweep("small", results="results")
    found = sweep.plan(jobs=3)
    assert json.loads(lottery("plan", "small", "--jobs", "3", "--json")[1]) == asdict(found)
    said = lottery("plan", "small", "--jobs", "3")[1]
    assert said.startswith(render(found)) and f"{len(found.missing)} at a time here" in said and found.power in said
    states = [asdict(state) for state in make_status(unfinished).standing.tasks]
    assert json.loads(lottery("status", "small", "--json")[1]) == states
    assert [row["state"] for row in states] == list(sweep.status()["state"])
    said = lottery("report", "small", "--out", "elsewhere", "--verbose")[1]
    assert show.render_statistics(sweep.findings()) in said and sweep.answer() in said


def test_the_plan_shows_the_job_scripts_as_they_are(home, lottery):
    from slurm import sbatch

    _, said, _ = lottery("plan", "small", "--on", "slurm")
    chain = sbatch.chain(home.experiment, home.root.resolve(), home.graph.trainings)
    assert [job.part for job in chain] == ["dense", "masks", "cells", "report"]
    assert all(job.text in said for job in chain)
    assert lottery("sweep", "small", "--on", "slurm", "--dry-run")[1] in said


# ---- status and report, from files alone


def test_the_status_tells_what_is_done_begun_failed_and_waiting(unfinished, lottery):
    status, said, _ = lottery("status", "small", "--json")
    assert status == 0
    assert [(s["task"], s["state"], s["epoch"], s["note"], s["top1"]) for s in json.loads(said)] == [
        ("dense-seed0", "done", 4, "", 0.75),
        ("ticket-q0.5-k0-seed0", "done", 4, "", 0.7),
        ("ticket-q0.9-k0-seed0", "failed", 1, "loss is nan", None),
        ("ticket-q0.5-k2ep-seed0", "begun", 3, "", None),
        ("ticket-q0.9-k2ep-seed0", "waiting", 0, "", None),
    ]


def test_the_status_counts_and_gives_reasons(unfinished, lottery):
    before = content(unfinished.root)
    _, said, _ = lottery("status", "small")
    assert "2 done, 1 begun, 1 waiting, 1 failed" in said
    assert re.search(r"ticket-q0.9-k0-seed0 +failed +1/4 *\n +loss is nan", said)
    assert re.search(r"dense-seed0 +done +4/4 +75.00%", said)
    assert content(unfinished.root) == before


def test_the_status_shows_a_reason_as_it_is_and_whole(unfinished, lottery):
    reason = "no room on [/job:localhost/replica:0] for [[{{node a}}]] :smile: " + "word " * 30
    synthetic.fail(unfinished, "ticket-q0.9-k0-seed0", reason.strip())
    status, said, _ = lottery("status", "small")
    assert status == 0
    assert reason.replace(" ", "") in "".join(said.split())


def test_the_status_fits_80_columns_with_every_name_whole(unfinished, lottery, monkeypatch):
    synthetic.fail(unfinished, "ticket-q0.9-k0-seed0", "a reason of many words, " * 12)
    monkeypatch.setattr(show.console, "width", 80)
    _, said, _ = lottery("status", "small")
    table = said.partition(" done, ")[0].splitlines()[:-1]
    assert all(len(line) <= 80 for line in table)
    assert all(any(line.split()[:1] == [one.slug] for line in table) for one in unfinished.graph)


def test_the_log_of_a_training_here_is_its_epochs_and_why_it_ended(unfinished, lottery):
    _, said, _ = lottery("logs", "small", "ticket-q0.9-k0-seed0")
    assert said == "epoch 1/4: seconds 2\nfailed: loss is nan\n"
    status, _, said = lottery("logs", "small", "ticket-q0.9-k2ep-seed0")
    assert status == 2 and "no log; it was not submitted, or has not begun" in said


def test_the_status_of_an_experiment_that_was_never_run_is_waiting(here, lottery):
    status, said, _ = lottery("status", "small.yaml")
    assert (status, "5 waiting" in said) == (0, True)
    assert files_under(here) == ["small.yaml"]


@pytest.mark.slow
def test_the_report_compares_with_the_dense_network_and_says_what_is_missing(unfinished, lottery):
    status, said, _ = lottery("report", "small")
    assert status == 0
    answer, left, page, after = said.splitlines()
    assert answer == Sweep("small", results="results").answer()
    assert left.startswith("3 of 5 trainings are not done (1 begun, 1 waiting, 1 failed): lottery status ")
    assert page == "report: results/small/report/report.html" and after == "next: lottery sweep results/small"
    said = lottery("report", "small", "--verbose")[1]
    assert (
        re.search(r"50.0% +│ 0 +│ 1 +│ 70.00% +│ -5.00 +│ one seed", said)
        and "results/small/report/results.csv" in said
    )
    drawn = {path.name for path in Path(page.removeprefix("report: ")).parent.iterdir()}
    assert {"report.html", "results.csv", "results.tex", "accuracy.png"} <= drawn


@pytest.mark.slow
def test_a_record_has_the_tables_and_figures_of_what_is_in_it(unfinished, here, lottery):
    status, said, _ = lottery("record", "small", "--to", "record")
    assert status == 0 and "the page: record/small/report/report.html" in said
    drawn = {path.name for path in (here / "record" / "small" / "report").iterdir()}
    assert {"results.csv", "results.tex", "accuracy.png", "report.html"} <= drawn
    lottery("report", "small")
    mine, there = (
        (root / "small" / "report" / "results.csv").read_text() for root in (here / "results", here / "record")
    )
    assert mine.replace("begun", "waiting") == there
    os.chdir(here / "record" / "small")
    before = content(here / "record")
    assert "3 waiting" in lottery("status", ".")[1] and lottery("plan", ".")[0] == 0
    assert content(here / "record") == before
    assert lottery("report", ".")[0] == 0 and not (here / "record" / "trainings").exists()


@pytest.mark.slow
def test_the_report_averages_over_seeds(here, lottery):
    experiment = synthetic.experiment(seeds=(0, 1))
    home = open_home(experiment, here / "results" / experiment.name)
    for seed, top1 in ((0, 0.6), (1, 0.7)):
        synthetic.finish(home, f"dense-seed{seed}", top1 + 0.1)
        synthetic.finish(home, f"ticket-q0.5-k0-seed{seed}", top1, density=0.5)
    said = lottery("report", "small", "--verbose")[1]
    assert re.search(r"50.0% +│ 0 +│ 2 +│ 65.00% +│ -10.00 +│ undecided", said)


@pytest.mark.slow
def test_the_report_of_a_sweep_that_has_only_begun_works(home, lottery):
    status, said, _ = lottery("report", "small")
    assert (status, "5 of 5 trainings are not done" in said) == (0, True)
    assert files_under(home.report) == ["report.html", "results.csv", "results.tex"]


@pytest.mark.slow
def test_on_a_terminal_lines_break_between_words_and_a_report_may_go_elsewhere(unfinished, here):
    before = content(unfinished.root)
    shell = f"stty cols 80; {sys.executable} -m lottery report small --out elsewhere --verbose"
    ended = subprocess.run(["script", "-qec", shell, "/dev/null"], capture_output=True, text=True, check=True)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", ended.stdout).splitlines()]
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    assert rule(MARGIN) in text and "3 of 5 trainings are not done" in text, text
    assert lines[-2] == "report: elsewhere/report.html"
    assert {"report.html", "results.csv", "results.tex"} <= set(files_under(here / "elsewhere"))
    assert content(unfinished.root) == before


def test_the_report_for_a_script_is_json_and_writes_nothing(unfinished, lottery):
    before = content(unfinished.root)
    status, said, _ = lottery("report", "small", "--json")
    assert (status, [row["test_top1"] for row in json.loads(said)]) == (0, [0.75, 0.7, None, None, None])
    assert content(unfinished.root) == before


# ---- weights


def test_weights_of_all_kinds_and_prunable_ones_stand_side_by_side(weighed, lottery):
    status, said, _ = lottery("weights", "small")
    network = synthetic.network()
    assert status == 0
    assert re.search(r"\|prunable\| +┃ prunable +┃ \|all\| +┃ all ", said)
    assert re.search(rf"count +│ {network.prunable:,} +│ {network.prunable:,} +│ {network.parameters:,} ", said)
    assert network.prunable < network.parameters


def test_weights_for_a_script_have_the_quantiles_of_their_magnitude(weighed, lottery):
    home, weights = weighed
    status, said, _ = lottery("weights", "small", "--json")
    found = json.loads(said)
    assert (status, list(found)) == (0, ["|prunable|", "prunable", "|all|", "all"])
    assert len(QUANTILES) == 20 and (QUANTILES[0], QUANTILES[-1]) == (0.6, 0.99)
    for name, values in (("prunable", weights.kernels), ("all", np.concatenate(weights))):
        assert found[name]["count"] == values.size
        for q in QUANTILES:
            assert found[f"|{name}|"][f"q{q:g}"] == pytest.approx(np.quantile(np.abs(values), q), rel=1e-6)
            assert found[name][f"q{q:g}"] == pytest.approx(np.quantile(values, q), rel=1e-6)
    assert not home.report.exists()


def test_weights_come_with_a_figure(weighed, lottery):
    home, _ = weighed
    _, said, _ = lottery("weights", "small")
    name = "weights-dense-seed0-end"
    assert files_under(home.report) == [f"{name}.png", f"{name}.svg"]
    assert f"{name}.png" in said.replace("\n", "")
    assert (home.report / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_weights_of_every_kernel_are_shown_on_request(weighed, lottery, monkeypatch):
    names = [v.name for v in synthetic.network().of("kernel")]
    monkeypatch.setattr(show.console, "width", 200)
    _, said, _ = lottery("weights", "small", "--layers")
    assert re.findall(r"│ (\S+/\S+) +│", said) == names
    found = list(json.loads(lottery("weights", "small", "--layers", "--json")[1]))
    assert found[1::2] == ["prunable", "all", *names] and found[::2] == [f"|{name}|" for name in found[1::2]]


def test_weights_of_any_point_and_any_quantiles(weighed, lottery):
    words = ("weights", "small", "dense-seed0", "--at", "2ep", "--quantiles", "0.25", "0.5", "--json")
    status, _, refused = lottery(*words)
    assert status == 2 and "it is not done" in refused  # the made-up dense run has left its end alone
    found = json.loads(lottery("weights", "small", "--quantiles", "0.25", "0.5", "--json")[1])
    assert list(found["|all|"])[-2:] == ["q0.25", "q0.5"]


# ---- a file that asks for something else than was swept


def test_an_edited_file_is_what_the_next_command_sweeps_and_its_report_replaces_none(unfinished, lottery):
    assert "next: lottery sweep results/small\n" in lottery("plan", "small.yaml")[1]
    assert lottery("report", "small.yaml")[0] == 0
    before = content(unfinished.root)
    assert "next: lottery sweep small.yaml recipe.epochs=3\n" in lottery("plan", "small.yaml", "recipe.epochs=3")[1]
    status, _, said = lottery("report", "small.yaml", "recipe.epochs=3")
    assert status == 2 and "small.yaml: asks for other trainings than results/small on record" in said
    assert content(unfinished.root) == before


def test_best_says_that_nothing_is_trained_where_nothing_is(home, lottery):
    assert "best: no ticket is trained yet beside its dense run" in lottery("best", "small")[2]


@pytest.mark.tensorflow
def test_an_exported_file_that_is_not_there_is_no_name_of_an_experiment(home, lottery):
    assert lottery("evaluate", "nope.keras")[2] == "lottery: nope.keras: no such file\n"
