"""A dense run that was trained again and came out different: what the first one led to is not taken for its own."""

from __future__ import annotations

import json

import pytest

from sweep import files
from sweep.graph.home import Home, open_home
from sweep.graph.mask_file import make_mask
from sweep.graph.runs import Runs, run_of
from tests import synthetic
from tests.synthetic import network


@pytest.fixture
def rounds(here) -> Home:
    """Two rounds from one dense run, all done."""
    experiment = synthetic.experiment(quantiles=(), rounds=2, share=0.2, rewind=synthetic.points(0))
    home = open_home(experiment, here / "results" / experiment.name)
    weights = network().initial(0)
    synthetic.write_snapshot(home, weights, None)
    for training in sorted(home.graph, key=lambda one: one.generation):
        run = run_of(weights) if training.kind == "dense" else training.name
        synthetic.finish(home, training.slug, 0.5, run=run, runs=Runs(home.pool).before(training))
        if training.mask and training.mask.round == 1:
            make_mask(home, training.mask)
    return home


def replace_the_dense_run(home: Home, seed: int) -> None:
    weights = network().initial(seed)
    synthetic.write_snapshot(home, weights, None)
    path = synthetic.dense(home) / "result.json"
    files.write_json(path, files.read_json(path) | {"run": run_of(weights)})


def left(said: str) -> dict[str, str]:
    return {one["name"].rpartition("-")[0]: one["why"] for one in json.loads(said)}


def test_what_the_first_run_led_to_is_refused_until_it_is_gone(rounds, lottery):
    dense = synthetic.dense(rounds).name
    replace_the_dense_run(rounds, 1)
    for command in ("plan", "report"):
        status, _, said = lottery(command, "small")
        assert status == 2 and f"came from another run of {dense} than the one there; put that one back" in said
    assert "3 done, 2 of a run since replaced (lottery tidy --replaced)" in lottery("status", "small")[1]
    why = f"of another run of {dense}"
    mask = "magnitude-global-q0.2-of-dense-seed0"
    assert left(lottery("tidy", "--replaced", "--json")[1]) == {
        "ticket-q0.2-k0-seed0": why, "ticket-q0.36-r2-k0-seed0": why, mask: why,
    }  # fmt: skip
    (rounds.pool / "trainings" / "unasked").mkdir()
    lottery("tidy", "--replaced", "--delete")
    assert lottery("plan", "small")[0] == 0
    assert {path.name for path in (rounds.pool / "trainings").iterdir()} == {dense, "unasked"}


def test_nothing_is_trained_or_submitted_from_a_replaced_dense_run(rounds, lottery, monkeypatch):
    replace_the_dense_run(rounds, 1)
    second = rounds.training("ticket-q0.36-r2-k0-seed0")
    said = synthetic.refusal(lambda: Runs(rounds.pool).refuse_replaced(second))
    assert "came from another run of dense-seed0-" in said
    monkeypatch.setattr("slurm.local.Local.run", lambda self, home: pytest.fail("trained all the same"))
    status, _, said = lottery("sweep", "small")
    assert status == 2 and "came from another run of dense-seed0-" in said


def test_a_mask_without_the_weights_it_is_of_must_be_of_the_run_there(rounds):
    mask = rounds.training("ticket-q0.2-k0-seed0").mask
    replace_the_dense_run(rounds, 1)
    (synthetic.dense(rounds) / "snapshots" / "final.h5").unlink()
    assert "taken from other weights" in synthetic.refusal(lambda: make_mask(rounds, mask))


def test_what_is_half_trained_and_what_has_no_runs_on_record_are_told_too(rounds, lottery):
    first, second = (rounds.training(f"ticket-q0.{word}-k0-seed0") for word in ("2", "36-r2"))
    (rounds.folder(first) / "result.json").unlink()
    files.write_json(rounds.folder(first) / "training.json", {"runs": Runs(rounds.pool).before(first)})
    path = rounds.folder(second) / "result.json"
    files.write_json(path, {name: value for name, value in files.read_json(path).items() if name != "runs"})
    replace_the_dense_run(rounds, 1)
    assert {first.slug, second.slug} <= set(left(lottery("tidy", "--replaced", "--json")[1]))


def test_what_was_skipped_for_the_first_run_is_not_skipped_for_the_second(rounds):
    ticket = rounds.training("ticket-q0.2-k0-seed0")
    folder = rounds.folder(ticket)
    (folder / "result.json").unlink()
    files.write_json(folder / "skipped.json", {"reason": "empty", "runs": Runs(rounds.pool).before(ticket)})
    assert rounds.skipped(ticket) == "empty"
    replace_the_dense_run(rounds, 1)
    assert rounds.skipped(ticket) == "" and not rounds.done(ticket)


def test_a_run_that_was_recorded_before_runs_were_is_known_by_its_weights(rounds):
    path = synthetic.dense(rounds) / "result.json"
    found = files.read_json(path)
    files.write_json(path, {name: value for name, value in found.items() if name != "run"})
    assert Runs(rounds.pool).there(path.parent.name) == found["run"]


def test_trained_again_to_the_same_weights_it_is_the_same_run(rounds, lottery):
    replace_the_dense_run(rounds, 0)
    assert lottery("plan", "small")[0] == 0
    assert left(lottery("tidy", "--json")[1]) == {}


def test_results_of_before_runs_were_recorded_stay_as_they_are(rounds, lottery):
    for path in (rounds.pool / "trainings").glob("ticket-*/result.json"):
        found = files.read_json(path)
        files.write_json(path, {name: value for name, value in found.items() if name not in ("run", "runs")})
    replace_the_dense_run(rounds, 1)
    assert lottery("plan", "small")[0] == 0
