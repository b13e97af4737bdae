"""The sweep end to end, as a user runs it: one command, killed and started again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from slurm.local import DIED
from sweep import experiment_file, store
from tests.conftest import tiny
from tests.slurm_cluster import until
from tests.sweeping import csv_of, lottery, started, status_of

pytestmark = pytest.mark.tensorflow


def test_one_command_trains_prunes_retrains_and_reports(undisturbed):
    (home,) = undisturbed.iterdir()
    rows = csv_of(undisturbed).splitlines()
    assert len(rows) == 1 + 1 + 4 and all(row.endswith(",done") for row in rows[1:])
    assert {path.name for path in (home / "report").iterdir()} == {
        "report.html", "results.csv", "results.tex", "accuracy.png", "accuracy.svg", "heatmap.png", "heatmap.svg",
    }  # fmt: skip
    snapshots = {path.name for path in (home / "dense/seed-0/snapshots").iterdir()}
    assert snapshots == {"epoch-0000.h5", "epoch-0001.h5", "final.h5"}


def test_a_second_run_does_nothing_and_loads_no_tensorflow(undisturbed, tiny_file, tmp_path):
    done = shutil.copytree(undisturbed, tmp_path / "done")
    without = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "without_tensorflow")}
    lottery("sweep", tiny_file, "--results", done, env=without)
    assert csv_of(done) == csv_of(undisturbed)


def test_one_cell_by_its_number_gives_what_the_sweep_gave(undisturbed, tiny_file, trained):
    lottery("ticket", tiny_file, "--index", 3, "--results", trained)
    (done,) = trained.glob("*/cells/*/result.json")
    (same,) = undisturbed.glob(f"*/cells/{done.parent.name}/result.json")
    assert json.loads(done.read_text())["test"] == json.loads(same.read_text())["test"]


def epochs_in(path: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in path.read_text().splitlines()]


def test_killed_in_the_dense_run_and_among_the_cells_it_ends_with_the_same_results(undisturbed, tiny_file, tmp_path):
    words = ("sweep", tiny_file, "--results", tmp_path)
    for jobs, sign in ((1, "dense/*/metrics.jsonl"), (2, "cells/*/claim.json")):
        with started(*words, "--jobs", jobs) as process:
            until(lambda sign=sign: list(tmp_path.glob(f"*/{sign}")), 300)
            process.kill()  # its workers, if any, end with it
            process.wait()
    until(lambda: not any(row["state"] == "running" for row in status_of(next(tmp_path.iterdir())).values()), 60)
    lottery(*words)
    assert csv_of(tmp_path) == csv_of(undisturbed)
    for path in tmp_path.glob("*/cells/*/metrics.jsonl"):
        assert epochs_in(path) == sorted(set(epochs_in(path))), "an epoch is recorded twice"


def test_asked_to_stop_it_saves_itself_and_the_next_run_goes_on(tmp_path):
    """Of an endless training: that it goes on to the same bits is shown in test_training."""
    file = tmp_path / "endless.yaml"
    file.write_text(experiment_file.dump(tiny(epochs=10**6)))
    reached = 0
    for number in (signal.SIGINT, signal.SIGHUP):
        with started("train", file, "--results", tmp_path / "results", preexec_fn=listening) as process:
            until(lambda least=reached + 1: len(dense_epochs(tmp_path)) > least, 300)
            process.send_signal(number)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and "run again to continue" in said
        epochs = dense_epochs(tmp_path)
        assert epochs == list(range(1, len(epochs) + 1)) and len(epochs) > reached
        reached = len(epochs)


def dense_epochs(root: Path) -> list[int]:
    return [line["epoch"] for folder in root.glob("results/*/dense/*") for line in store.read_metrics(folder)]


def listening() -> None:
    """Under nohup SIGHUP is ignored, and in the background of a shell SIGINT; a child inherits that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.drill
def test_the_dry_run_killed_in_each_of_its_phases_gives_the_same_results_csv(tmp_path):
    one, other = tmp_path / "undisturbed", tmp_path / "killed"
    lottery("dry-run", "--results", one)
    chance = random.Random(1)
    for sign in ("dense/*/checkpoint.h5", "masks/*.h5", "cells/*/checkpoint.h5", "cells/*/result.json"):
        with started("dry-run", "--results", other, start_new_session=True) as process:
            until(lambda sign=sign: list(other.glob(f"*/{sign}")), 300)
            time.sleep(chance.random())
            # the whole group, as a batch system would, or the parent alone
            os.killpg(process.pid, signal.SIGKILL) if chance.random() < 0.5 else process.kill()
            process.wait()
        assert not list(other.glob("*/report/results.csv")), "it had ended before it was killed"
    lottery("dry-run", "--results", other)
    assert csv_of(other) == csv_of(one)


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


def test_a_worker_that_is_killed_costs_one_cell_and_not_the_sweep(tiny_file, undisturbed, trained):
    words = ("sweep", tiny_file, "--jobs", 2, "--results", trained)
    with started(*words) as process:
        until(lambda: len(workers_of(process.pid)) == 2, 60)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 1 and said.count("lottery: FAILED") == said.count(f"FAILED: {DIED}") == 1, said
    lottery(*words)
    assert csv_of(trained) == csv_of(undisturbed)


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
