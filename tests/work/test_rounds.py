"""Iterative pruning, other methods, collapsed masks and instability, end to end as a user runs them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sweep import files
from sweep.experiment import Prune, method, point
from sweep.experiment import file as experiment_file
from sweep.graph.mask_file import make_mask
from tests.commands import csv_of, home_of, kill_tree, lottery, started, status_of, trainings
from tests.conftest import tiny
from tests.slurm_cluster import until

pytestmark = pytest.mark.tensorflow


def rows_of(results: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_of(results))))


def written(folder: Path, name: str, prune: Prune, **recipe) -> Path:
    """An experiment file with the data and network of the tiny sweep."""
    path = folder / f"{name}.yaml"
    path.write_text(experiment_file.dump(dataclasses.replace(tiny(**recipe), name=name, prune=prune)))
    return path


ROUNDS = Prune(
    methods=(method("magnitude/uniform"),), rounds=3, share=0.4, rewind=(point("1ep"),), lr_rewind=(point("2ep"),)
)


@pytest.fixture(scope="module")
def rounds_file(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("experiments"), "rounds", ROUNDS)


@pytest.fixture(scope="module")
def whole(rounds_file, tmp_path_factory) -> Path:
    """Three rounds each of weight and of learning-rate rewinding, run without disturbance. Only to be read."""
    results = tmp_path_factory.mktemp("whole")
    lottery("sweep", rounds_file, "--results", results)
    return results


def test_every_round_is_a_row_and_prunes_inside_the_one_before(whole):
    home = home_of(whole / "rounds")
    for kind, k in (("ticket", "1ep"), ("lr_rewind", "2ep")):
        words = (f"q0.4-k{k}", f"q0.64-r2-k{k}", f"q0.784-r3-k{k}")
        chain = [home.training(f"{kind}-magnitude-uniform-{word}-seed0") for word in words]
        masks = [make_mask(home, one.mask).mask for one in chain]
        assert all(np.all(outer[inner]) and inner.sum() < outer.sum() for outer, inner in pairwise(masks))
        ends = [files.read_arrays(home.snapshot(one, point("end")))[0] for one in chain]
        for mask, end in zip(masks, ends, strict=True):
            kernels = np.concatenate([end[v.name].ravel() for v in make_mask(home, chain[0].mask).network.of("kernel")])
            assert not kernels[~mask].any() and (kernels[mask] != 0).mean() > 0.99
    rows = [row for row in rows_of(whole) if row["kind"] == "ticket"]
    assert [(row["round"], row["quantile"]) for row in rows] == [("1", "0.4"), ("2", "0.64"), ("3", "0.784")]
    assert all(row["state"] == "done" and float(row["test_top1"]) > 0 for row in rows)


@pytest.mark.parametrize("place", ["local", pytest.param("slurm", marks=pytest.mark.drill)])
def test_killed_among_the_rounds_it_ends_with_the_same_results(place, rounds_file, whole, tmp_path, request):
    cluster = request.getfixturevalue("slurm") if place == "slurm" else None
    options = ("--on", "slurm", "--wait") if cluster else ()
    begun = "ticket-*-r2-*/claim.json"
    results = Path(
        shutil.copytree(whole, tmp_path / "results", ignore=shutil.ignore_patterns("*-r2-*", "*-r3-*", "report"))
    )
    for mask in results.glob("masks/*-of-ticket-*"):
        mask.unlink()
    with started("sweep", rounds_file, *(options or ("--jobs", "2")), "--results", results) as process:
        until(lambda: trainings(results, begun) or process.poll() is not None, 300)
        kill_tree(process)
        if cluster:
            cluster.clear()
    assert process.returncode != 0, "it ended before it could be killed"
    until(lambda: not any(row["state"] == "running" for row in status_of(results / "rounds").values()), 60)
    lottery("sweep", rounds_file, *options, "--results", results)
    assert csv_of(results) == csv_of(whole)


# ---- collapse

EMPTYING = ("prune.quantiles=[0.5,0.995]", "prune.methods=[magnitude]", "prune.rewind=[0]")


def test_a_mask_that_empties_a_kernel_is_skipped_with_its_reason_and_costs_nothing(trained, tiny_file):
    ended = lottery("sweep", tiny_file, *EMPTYING, "--results", trained, check=1)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("lottery: SKIPPED ticket-q0.995-k0-seed0: ") and "fully pruned (" in last
    assert "ticket-q0.995-k0-seed0 skipped: " in ended.stdout and "(1 skipped)" in ended.stdout
    states = status_of(trained / "tiny")
    assert [row["state"] for row in states.values()] == ["done", "done", "skipped"]
    assert "fully pruned" in states["ticket-q0.995-k0-seed0"]["note"]
    (row,) = [row for row in rows_of(trained) if row["quantile"] == "0.995"]
    assert row["state"] == "skipped" and "fully pruned" in row["reason"] and row["test_top1"] == ""
    assert not trainings(trained, "ticket-q0.995-*/metrics.jsonl")
    assert "3 trainings, 2 of them done, 1 skipped" in lottery("plan", trained / "tiny").stdout
    assert "Skipped: a layer is fully pruned" in (trained / "tiny" / "report" / "report.html").read_text()
    again = lottery("sweep", tiny_file, *EMPTYING, "prune.collapse=train", "--results", trained)
    assert [row["state"] for row in status_of(trained / "tiny").values()] == ["done"] * 3, again.stdout


def test_a_mask_that_empties_a_kernel_is_refused_with_collapse_refuse(trained, tiny_file):
    done = lottery("sweep", tiny_file, *EMPTYING, "prune.collapse=refuse", "--results", trained, check=2)
    (line,) = [line for line in done.stderr.splitlines() if "FAILED" in line]
    assert "fully pruned" in line and "expected prune.collapse skip or train" in line


def test_what_would_come_from_a_skipped_round_is_skipped_too(trained, tmp_path):
    prune = Prune(rounds=3, quantiles=(0.5, 0.995, 0.999), rewind=(point(0),))
    file = written(tmp_path, "tiny", prune)
    lottery("sweep", file, "--results", trained, check=1)
    assert [row["state"] for row in status_of(trained / "tiny").values()] == ["done", "done", "skipped", "skipped"]
    assert "was skipped: " in rows_of(trained)[-1]["reason"]


# ---- instability


def test_instability_is_the_error_on_the_line_between_two_children(trained, tmp_path, program):
    prune = Prune(quantiles=(0.5,), methods=(method("magnitude/uniform"),), rewind=(),
                  instability=(point(0), point("1ep")), instability_quantiles=(0.5,))  # fmt: skip
    file = written(tmp_path, "tiny", prune)
    lottery("sweep", file, "--results", trained)
    home = home_of(trained / "tiny")
    lines = [one for one in home.graph if one.kind == "instability"]
    assert len(lines) == 4 and (trained / "tiny" / "report" / "instability.png").exists()
    for line in lines:
        found = json.loads((home.folder(line) / "result.json").read_text())
        ends = [json.loads((home.folder(end) / "result.json").read_text())["test"]["top1"] for end in line.between]
        assert len(found["errors"]) == 30
        assert [found["errors"][0], found["errors"][-1]] == pytest.approx([1 - top1 for top1 in ends])
        assert found["instability"] == pytest.approx(max(found["errors"]) - (2 - sum(ends)) / 2)
    rows = {(row["rewind"], row["quantile"]): row["instability"] for row in rows_of(trained) if row["instability"]}
    assert set(rows) == {("0", ""), ("1ep", ""), ("0", "0.5"), ("1ep", "0.5")}
