"""A search for a better recipe: its file, its trials, and what becomes of them here and on SLURM."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import sys
from pathlib import Path
from statistics import mean

import pytest
import yaml

from lottery.cli.tune import tune
from sweep import files as store
from sweep.errors import Refused
from sweep.experiment import Cluster
from sweep.experiment.file import dump, load
from sweep.graph import claim
from sweep.tuning import search
from sweep.tuning import trials as tuning
from tests import synthetic
from tests.commands import home_of, lottery, started
from tests.conftest import tiny
from tests.slurm_cluster import until

RANDOM = {
    "method": "random",
    "metric": {"name": "validation_top1", "goal": "maximize"},
    "run_cap": 3,
    "parameters": {
        "recipe.learning_rate": {"distribution": "log_uniform_values", "min": 0.001, "max": 0.1},
        "recipe.weight_decay": {"values": [0.0, 0.001]},
    },
}
GRID = RANDOM | {
    "method": "grid",
    "parameters": {"recipe.learning_rate": {"values": [0.01, 0.02]}, "recipe.momentum": {"value": 0.5}},
}


def read(tmp_path: Path, content: object) -> search.Search:
    path = tmp_path / "search.yaml"
    path.write_text(yaml.safe_dump(content))
    return search.read(path)


# ---- the file


def test_a_grid_has_every_combination(tmp_path):
    grid = GRID | {"run_cap": None, "parameters": {"a": {"values": [1, 2]}, "b": {"values": [True, 0.5]}}}
    found = search.trials(read(tmp_path, grid), synthetic.experiment())
    assert found == [("a=1", "b=true"), ("a=1", "b=0.5"), ("a=2", "b=true"), ("a=2", "b=0.5")]
    assert search.trials(read(tmp_path, grid | {"run_cap": 3}), synthetic.experiment()) == found[:3]


def test_random_trials_are_drawn_alike_in_every_process_and_otherwise_for_another_experiment(tmp_path):
    wanted = read(tmp_path, RANDOM | {"run_cap": 200})
    found = search.trials(wanted, synthetic.experiment())
    assert found == search.trials(wanted, synthetic.experiment()) != search.trials(wanted, tiny())
    rates = [float(trial[0].partition("=")[2]) for trial in found]
    assert 0.001 <= min(rates) < 0.002 and 0.05 < max(rates) <= 0.1
    assert sum(math.log10(rate) for rate in rates) / 200 == pytest.approx(-2, abs=0.15)  # evenly on a log scale
    assert {trial[1] for trial in found} == {"recipe.weight_decay=0", "recipe.weight_decay=0.001"}


@pytest.mark.parametrize(("name", "values"), [("int_uniform", {"1", "2", "3"}), ("uniform", None)])
def test_other_distributions_keep_to_their_bounds(name, values, tmp_path):
    wanted = RANDOM | {"run_cap": 60, "parameters": {"x": {"distribution": name, "min": 1, "max": 3}}}
    drawn = {trial[0].partition("=")[2] for trial in search.trials(read(tmp_path, wanted), synthetic.experiment())}
    assert drawn == values or (values is None and all(1 <= float(text) <= 3 for text in drawn))


WRONG = {
    "no method": (RANDOM | {"method": "hyperband"}, r"method: received 'hyperband', expected one of grid, random"),
    "test accuracy": (RANDOM | {"metric": {"name": "test_top1", "goal": "maximize"}}, "test images stay out"),
    "no goal": (RANDOM | {"metric": {"name": "validation_top1"}}, "metric.goal: received None, expected maximize or"),
    "no end": ({k: v for k, v in RANDOM.items() if k != "run_cap"}, "run_cap: received None, expected"),
    "unknown key": (RANDOM | {"early_terminate": {}}, r"received \['early_terminate'\], expected method, metric"),
    "nothing to search": (RANDOM | {"parameters": {}}, "expected fields such as recipe.learning_rate"),
    "a bare number": (RANDOM | {"parameters": {"x": 3}}, "parameters.x: received 3, expected value:, values: or"),
    "distribution": (RANDOM | {"parameters": {"x": {"distribution": "beta"}}}, "distribution: received 'beta'"),
    "bounds": (RANDOM | {"parameters": {"x": {"distribution": "uniform", "min": 2, "max": 1}}}, "min below max"),
    "log of 0": (
        RANDOM | {"parameters": {"x": {"distribution": "log_uniform_values", "min": 0, "max": 1}}}, "more than 0"),
    "endless grid": (RANDOM | {"method": "grid"}, "expected value: or values: in a grid"),
    "a list": ([1], "the file: received"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG)
def test_what_no_trial_can_be_made_of_is_refused_in_one_line(content, message, tmp_path):
    with pytest.raises(Refused, match=message) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value) and str(tmp_path / "search.yaml") in str(caught.value)


UNREADABLE = {
    "a list as a key": ("{[a]: b}", "line 1: received a list or a section as a key, expected a word"),
    "a number of nothing": ("run_cap: !!int ''", "line 1: received the tag 'tag:yaml.org,2002:int'"),
    "nested deeply": ("[" * 3000, "line 1: nested too deeply"),
    "keys of two kinds": ("{1: a, b: c}", r"keys: received \['1', 'b'\], expected method"),
    "a distribution that is a list": (
        "{method: random, metric: {name: validation_top1, goal: maximize}, run_cap: 1, "
        "parameters: {x: {distribution: []}}}", r"parameters.x.distribution: received \[\], expected one of"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_yaml_that_no_person_writes_is_refused_in_one_line(text, message, tmp_path):
    (tmp_path / "search.yaml").write_text(text)
    with pytest.raises(Refused, match=message) as caught:
        search.read(tmp_path / "search.yaml")
    assert "\n" not in str(caught.value) and str(tmp_path / "search.yaml") in str(caught.value)


BAYES = RANDOM | {"method": "bayes", "run_cap": 40}


def test_bayes_looks_where_trials_were_good(tmp_path):
    """The best rate is 0.002. Ten trials are drawn at random; then it chooses."""
    wanted, before = read(tmp_path, BAYES), dict[search.Trial, float | None]()
    for _ in range(25):
        trial = search.chosen(wanted, synthetic.experiment(), before)
        assert trial == search.chosen(wanted, synthetic.experiment(), before)  # the same in every process
        before[trial] = -abs(math.log(rate_of(trial) / 0.002))
    assert len(before) == 25
    first, then = list(before.values())[:10], list(before.values())[10:]
    assert mean(then) > 0.5 * mean(first)
    (tried, *_) = before
    assert search.chosen(wanted, synthetic.experiment(), before | {tried: None}) not in before  # while one is trained


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_bayes_takes_what_diverged_for_the_worst_and_goes_on(tmp_path, goal):
    metric = {"name": "validation_loss", "goal": goal}
    made = tuning.create(tuning.describe(tiny(epochs=2), read(tmp_path, BAYES | {"metric": metric}), tmp_path))
    trials = []
    for number in range(12):  # from the eleventh on, it chooses
        trials.append(made.choose(number))
        folder = synthetic.dense(made.home(trials[-1]))
        if number % 2:
            store.write_json(folder / "failure.json", {"reason": "loss is nan"})
        else:
            store.write_json(folder / "result.json", {"validation": {"loss": rate_of(trials[-1])}})
    assert len(set(trials)) == 12
    assert [one.state for one in made.outcomes()] == ["done"] * 6 + ["failed"] * 6
    values = [one.value for one in made.outcomes()[:6]]
    assert values == sorted(values, reverse=goal == "maximize"), "the best first"
    assert [tuning.reopen(made.root).known(number) for number in range(13)] == [*trials, None]


def test_without_optuna_bayes_is_refused_in_one_line_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    words = written(tmp_path, BAYES)
    with pytest.raises(Refused, match=r"^method bayes: Optuna is not installed; expected pip install 'lottery-sweep"):
        tune(str(words[1]), search=words[3], results=words[5])
    assert not words[5].exists()


def rate_of(trial: search.Trial) -> float:
    return float(trial[0].partition("=")[2])


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "experiments/sweeps").glob("*.yaml")), ids=lambda p: p.stem
)
def test_the_searches_that_are_shipped_make_trials_of_the_experiments_of_their_name(path):
    from sweep.experiment import file as experiment_file

    experiment = experiment_file.load(path.parents[1] / path.name)
    for trial in search.trials(search.read(path), experiment):
        experiment_file.load(path.parents[1] / path.name, trial)


# ---- what becomes of the trials


def written(tmp_path: Path, content: dict, **changes) -> list:
    """Files of the tiny experiment and a search; the words that tune it."""
    (tmp_path / "tiny.yaml").write_text(dump(dataclasses.replace(tiny(epochs=2), **changes)))
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(content))
    return ["tune", tmp_path / "tiny.yaml", "--search", tmp_path / "search.yaml", "--results", tmp_path / "results"]


def dense_of(outcome: dict) -> Path:
    """The folder of the dense run that a trial is."""
    return synthetic.dense(home_of(Path(outcome["folder"])))


def told(words: list) -> list[dict]:
    return json.loads(lottery(*words, "--show", "--json").stdout)


@pytest.mark.tensorflow
def test_a_search_goes_on_where_it_stopped_and_a_trial_that_diverges_does_not_end_it(tmp_path):
    content = GRID | {"parameters": {"recipe.learning_rate": {"values": [1e30, 0.01]}}}
    words = written(tmp_path, content)
    lottery(*words)
    found = told(words)
    assert [one["state"] for one in found] == ["done", "failed"] and "loss is" in found[1]["note"]
    done = dense_of(found[0])
    assert found[0]["value"] == store.read_json(done / "result.json")["validation"]["top1"]
    before = (done / "metrics.jsonl").stat().st_mtime_ns
    lottery(*words)
    assert before == (done / "metrics.jsonl").stat().st_mtime_ns


@pytest.mark.tensorflow
def test_every_trial_is_an_element_of_a_job_array_and_submitted_once(slurm, tmp_path):
    cluster = Cluster(cpus_per_gpu=1, memory_per_gpu="300M", gpus_per_node=1, gpus_per_cell=1)
    words = [*written(tmp_path, GRID, cluster=cluster), "--on", "slurm"]
    made = tuning.create(tuning.describe(load(tmp_path / "tiny.yaml"), search.read(words[3]), words[5]))
    dense = synthetic.dense(made.home(made.choose(0)))
    claim.take(dense)  # begun in vain so often that it was given up
    store.write_json(dense / "claim.json", store.read_json(dense / "claim.json") | {"idle_starts": 99})
    os.utime(dense / "claim.json", (0, 0))  # long ago
    first = lottery(*words).stdout
    number = re.search(r"job (\d+): 2 trials", first)[1]
    assert "all trials are done or in the queue" in lottery(*words).stdout
    slurm.run("scancel", f"{number}_1")
    until(lambda: "1 trials" in lottery(*words).stdout, 60)
    until(lambda: [one.state for one in made.outcomes()] == ["done", "done"], 300)
    assert [one["state"] for one in told(words)] == ["done", "done"]
    assert "all trials are done or in the queue" in lottery(*words).stdout


@pytest.mark.tensorflow
def test_two_processes_share_a_search_and_one_that_was_stopped_is_gone_on_with(tmp_path):
    words = [*written(tmp_path, BAYES | {"run_cap": 2}), "recipe.epochs=30"]
    with started(*words) as process:
        until(lambda: [*(tmp_path / "results").glob("trainings/dense-*/checkpoint.h5")], 300)
        process.send_signal(signal.SIGHUP)  # a terminal is closed
        assert process.wait(300) == 130
    assert [one["state"] for one in told(words)] == ["begun"]
    with started(*words) as one, started(*words) as other:
        assert (one.wait(600), other.wait(600)) == (0, 0)
    found = told(words)
    assert [one["state"] for one in found] == ["done", "done"]
    for one in found:
        assert [line["epoch"] for line in store.read_metrics(dense_of(one))] == list(range(1, 31))


def test_what_an_earlier_version_left_to_a_server_is_shown(tmp_path):
    made = tuning.create(tuning.describe(tiny(epochs=2), read(tmp_path, BAYES), tmp_path))
    known = ["recipe.learning_rate=0.03"]
    begun = {"trial": known, "element": "", "environment": {}}
    store.write_json(made.root / "begun" / f"{made.root.name}-1a2b3c4d.json", begun)
    store.write_json(synthetic.dense(made.home(tuple(known))) / "result.json", {"validation": {"top1": 0.5}})
    assert [one["trial"] for one in told(["tune", made.root])] == [known]
    assert made.choose(1) not in (made.choose(0), tuple(known))


def test_a_search_on_record_takes_no_fields(tmp_path):
    made = tuning.create(tuning.describe(tiny(epochs=2), read(tmp_path, RANDOM), tmp_path))
    (line,) = lottery("tune", made.root, "data.path=/elsewhere", check=2).stderr.splitlines()
    assert "data.path=/elsewhere: expected no fields beside" in line
