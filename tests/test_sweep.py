"""The sweep end to end, as a user runs it: one command, killed and started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sweep import experiment_file
from tests.conftest import tiny
from tests.sweeping import LOTTERY, csv_of, lottery


def test_one_command_trains_prunes_retrains_and_reports(undisturbed):
    (home,) = undisturbed.iterdir()
    rows = csv_of(undisturbed).splitlines()
    assert len(rows) == 1 + 1 + 4 and all(row.endswith(",done") for row in rows[1:])
    assert {path.name for path in (home / "report").iterdir()} == {
        "report.html", "results.csv", "results.tex", "accuracy.png", "accuracy.svg", "heatmap.png", "heatmap.svg",
    }  # fmt: skip
    snapshots = {path.name for path in (home / "dense/seed-0/snapshots").iterdir()}
    assert snapshots == {"epoch-0000.h5", "epoch-0001.h5", "final.h5"}


def test_a_second_run_does_nothing_and_loads_no_tensorflow(undisturbed, tiny_file):
    before = csv_of(undisturbed)
    began = time.monotonic()
    lottery("sweep", tiny_file, "--results", undisturbed)
    assert time.monotonic() - began < 15
    assert csv_of(undisturbed) == before


def test_one_cell_by_its_number_gives_what_the_sweep_gave(undisturbed, tiny_file, tmp_path):
    lottery("train", tiny_file, "--results", tmp_path)
    lottery("ticket", tiny_file, "--index", 3, "--results", tmp_path)
    (done,) = tmp_path.glob("*/cells/*/result.json")
    (same,) = undisturbed.glob(f"*/cells/{done.parent.name}/result.json")
    assert json.loads(done.read_text())["test"] == json.loads(same.read_text())["test"]


def killed_sweep(command: list[str], lives: int, shortest: float, longest: float, seed: int) -> int:
    """Start the command again and again, SIGKILL it at random moments; how often that hit it at work."""
    chance, kills = random.Random(seed), 0
    for _ in range(lives):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(chance.uniform(shortest, longest))
        except subprocess.TimeoutExpired:
            kills += 1
            # the whole group on odd kills, as a batch system would; on even ones the parent alone
            os.killpg(process.pid, signal.SIGKILL) if kills % 2 else process.kill()
            process.wait()
    return kills


def test_killed_at_random_moments_and_started_again_it_ends_with_the_same_results(undisturbed, tiny_file, tmp_path):
    command = [*LOTTERY, "sweep", str(tiny_file), "--results", str(tmp_path)]
    assert killed_sweep(command, lives=4, shortest=6, longest=14, seed=1) >= 2
    lottery(*command[3:])
    assert csv_of(tmp_path) == csv_of(undisturbed)
    for path in tmp_path.glob("*/cells/*/metrics.jsonl"):
        epochs = [json.loads(line)["epoch"] for line in path.read_text().splitlines()]
        assert epochs == sorted(set(epochs)), "an epoch is recorded twice"


@pytest.mark.drill
def test_the_dry_run_killed_ten_times_gives_the_same_results_csv(tmp_path):
    one, other = tmp_path / "undisturbed", tmp_path / "killed"
    began = time.monotonic()
    lottery("dry-run", "--results", one)
    took = time.monotonic() - began  # lives are parts of it, so that ten of them do not reach the end
    command = [*LOTTERY, "dry-run", "--results", str(other)]
    kills = 0
    while kills < 10:
        kills += killed_sweep(command, lives=1, shortest=0.02 * took, longest=0.2 * took, seed=kills)
        if kills < 10 and list(other.glob("*/report/results.csv")):
            pytest.fail(f"the dry run ended after {kills} kills")
    lottery(*command[3:])
    assert csv_of(other) == csv_of(one)


def test_ctrl_c_saves_and_a_second_run_continues(undisturbed, tiny_file, tmp_path):
    command = [*LOTTERY, "sweep", str(tiny_file), "--results", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/cells/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "run again to continue" in errors
    lottery(*command[3:])
    assert csv_of(tmp_path) == csv_of(undisturbed)


def test_a_diverging_cell_fails_with_its_reason_and_exit_status_1(tmp_path):
    path = tmp_path / "wild.yaml"
    path.write_text(experiment_file.dump(tiny(learning_rate=1e30)))
    done = lottery("sweep", path, "--results", tmp_path / "results", check=1)
    assert "FAILED dense-seed0: loss is" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def workers_of(parent: int) -> list[int]:
    """Worker processes of a sweep, from /proc."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_worker_that_is_killed_costs_one_cell_and_not_the_sweep(tiny_file, undisturbed, tmp_path):
    lottery("train", tiny_file, "--results", tmp_path)
    command = [*LOTTERY, "sweep", str(tiny_file), "--jobs", "2", "--results", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(workers := workers_of(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(workers[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1 and errors.count("its process died") == 1, errors
    lottery(*command[3:])
    assert csv_of(tmp_path) == csv_of(undisturbed)


@pytest.mark.alone
def test_the_mask_costs_less_than_two_percent_of_a_step():
    """Interleaved in one run; the median of several, because clocks on shared machines are noisy."""
    costs = []
    for _ in range(3):
        words = ("bench", "step", "--mask", "--size", 16, "--rounds", 15, "--steps", 4, "--json")
        masked, unmasked = json.loads(lottery(*words).stdout)
        costs.append(masked["step_ms"] / unmasked["step_ms"] - 1)
    assert sorted(costs)[1] < 0.02, costs


def test_a_seed_whose_dense_run_fails_does_not_stop_the_other_seeds(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(experiment_file.dump(tiny()))
    words = (path, "seeds=[0,1]", "--results", tmp_path / "results")
    lottery("train", *words, "--seed", 1)
    (home,) = (tmp_path / "results").iterdir()
    (home / "dense/seed-0").mkdir()
    (home / "dense/seed-0/checkpoint.h5").write_text("damaged")
    assert "FAILED dense-seed0: " in lottery("sweep", *words, check=2).stderr
    done = {path.parent.name for path in home.glob("cells/*/result.json")}
    assert len(done) == 4 and all(name.endswith("seed1") for name in done)
