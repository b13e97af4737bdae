"""The sweep end to end, as a user runs it: one command, killed and started again."""

from __future__ import annotations

import html
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest

from slurm.local import DIED
from sweep import files as store
from sweep.experiment import file as experiment_file
from tests.commands import csv_of, lottery, started, status_of, trainings
from tests.conftest import DRY_RUN, tiny
from tests.slurm_cluster import until
from tests.test_house import ROOT

pytestmark = pytest.mark.tensorflow


def test_one_command_trains_prunes_retrains_and_reports(undisturbed):
    rows = csv_of(undisturbed).splitlines()
    assert len(rows) == 1 + 1 + 4 and all(",done,magnitude/uniform,1," in row or ",done,,," in row for row in rows[1:])
    assert {path.name for path in (undisturbed / "tiny" / "report").iterdir()} == {
        "report.html", "results.csv", "results.tex", "kept.json",
        *(f"{name}.{suffix}" for name in ("accuracy", "multiply_adds", "heatmap", "differences", "rewinds", "gains")
          for suffix in ("png", "svg")),
    }  # fmt: skip
    snapshots = {path.name for path in trainings(undisturbed, "dense-*/snapshots/*")}
    assert snapshots == {f"step-{step:08d}.h5" for step in (0, 4, 8)} | {"final.h5"}  # asked for: 4; the rest a ladder
    assert {path.name for path in undisturbed.iterdir()} == {"tiny", "trainings", "masks"}


def test_a_result_tells_its_circumstances(undisturbed):
    for path in trainings(undisturbed, "*/result.json"):
        found = json.loads(path.read_text())
        assert found["training"] == path.parent.name and found["tensorflow"].startswith("2.21")
        assert (found["devices"], found["norm_images"], found["driver"]) == (1, 16, "")
        assert found["hardware"] and len(found["fingerprint"]) == 12
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"]) and bool(found["commit"]) == (ROOT / ".git").exists()
        assert found["test_images"] == 74


def test_a_second_run_does_nothing_and_loads_no_tensorflow(undisturbed, tiny_file, tmp_path):
    done = shutil.copytree(undisturbed, tmp_path / "done")
    without = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "without_tensorflow")}
    lottery("sweep", tiny_file, "--results", done, env=without)
    assert csv_of(done) == csv_of(undisturbed)
    page = (done / "tiny" / "report" / "report.html").read_text()
    commands = html.unescape(re.search(r"<pre>(lottery sweep .*?)</pre>", page, re.DOTALL)[1]).splitlines()
    shutil.rmtree(done / "tiny" / "report")
    for line in commands:  # as pasted from the page
        lottery(*shlex.split(line)[1:])
        assert csv_of(done) == csv_of(undisturbed)


def test_one_training_by_its_name_gives_what_the_sweep_gave(undisturbed, tiny_file, trained):
    lottery("train", tiny_file, "ticket-magnitude-uniform-q0.8-k1ep-seed0", "--results", trained)
    (done,) = trainings(trained, "ticket-*/result.json")
    (same,) = trainings(undisturbed, f"{done.parent.name}/result.json")
    assert json.loads(done.read_text())["test"] == json.loads(same.read_text())["test"]


def epochs_in(path: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in path.read_text().splitlines()]


def test_killed_in_the_dense_run_and_among_the_cells_it_ends_with_the_same_results(undisturbed, tiny_file, tmp_path):
    words = ("sweep", tiny_file, "--results", tmp_path)
    for jobs, sign in ((1, "dense-*/metrics.jsonl"), (2, "ticket-*/claim.json")):
        with started(*words, "--jobs", jobs) as process:
            until(lambda sign=sign: trainings(tmp_path, sign), 300)
            process.kill()  # its workers, if any, end with it
            process.wait()
    until(lambda: not any(row["state"] == "running" for row in status_of(tmp_path / "tiny").values()), 60)
    lottery(*words)
    assert csv_of(tmp_path) == csv_of(undisturbed)
    for path in trainings(tmp_path, "ticket-*/metrics.jsonl"):
        assert epochs_in(path) == sorted(set(epochs_in(path))), "an epoch is recorded twice"


def test_asked_to_stop_it_saves_itself_and_the_next_run_goes_on(tmp_path):
    """Of an endless training: that it goes on to the same bits is shown in test_training."""
    file = tmp_path / "endless.yaml"
    file.write_text(experiment_file.dump(tiny(epochs=10**6)))
    reached = 0
    for number in (signal.SIGINT, signal.SIGHUP):
        with started("train", file, "--results", tmp_path / "results") as process:
            until(lambda least=reached + 1: len(dense_epochs(tmp_path)) > least, 300)
            process.send_signal(number)
            said, _ = process.communicate(timeout=600)
        assert process.returncode == 130 and "run again to continue" in said
        epochs = dense_epochs(tmp_path)
        assert epochs == list(range(1, len(epochs) + 1)) and len(epochs) > reached
        reached = len(epochs)


def dense_epochs(root: Path) -> list[int]:
    return [line["epoch"] for folder in trainings(root / "results", "dense-*") for line in store.read_metrics(folder)]


@pytest.mark.drill
def test_the_dry_run_killed_in_each_of_its_phases_gives_the_same_results_csv(dry_run, tmp_path):
    other = tmp_path / "killed"
    chance = random.Random(1)
    for sign in ("dense-*/checkpoint.h5", "dense-*/result.json", "ticket-*/checkpoint.h5", "ticket-*/result.json"):
        with started(*DRY_RUN, "--results", other, leads=True) as process:
            until(lambda sign=sign: trainings(other, sign), 300)
            time.sleep(chance.random())
            # the whole group, as a batch system would, or the parent alone
            os.killpg(process.pid, signal.SIGKILL) if chance.random() < 0.5 else process.kill()
            process.wait()
        assert not list(other.glob("*/report/results.csv")), "it had ended before it was killed"
    lottery(*DRY_RUN, "--results", other)
    assert csv_of(other) == csv_of(dry_run)


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


def test_a_worker_that_is_killed_costs_the_cell_it_has_and_nothing_while_it_waits(tiny_file, undisturbed, tmp_path):
    """The one that waits for the dense run is replaced without a word; the sweep goes on after the other one too."""
    words = ("sweep", tiny_file, "--jobs", 2, "--results", tmp_path)
    with started(*words) as process:
        until(lambda: trainings(tmp_path, "dense-*/claim.json"), 120)
        busy = json.loads(trainings(tmp_path, "dense-*/claim.json")[0].read_text())["pid"]
        os.kill(busy, signal.SIGSTOP)  # else the other could have a ticket by now
        (waiting,) = set(workers_of(process.pid)) - {busy}
        os.kill(waiting, signal.SIGKILL)
        os.kill(busy, signal.SIGCONT)
        until(lambda: trainings(tmp_path, "ticket-*/claim.json"), 60)
        os.kill(json.loads(trainings(tmp_path, "ticket-*/claim.json")[0].read_text())["pid"], signal.SIGKILL)
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 1 and said.count("lottery: FAILED") == said.count(f"FAILED: {DIED}") == 1, said
    failed, *done = sorted(set(csv_of(tmp_path).splitlines()) ^ set(csv_of(undisturbed).splitlines()), key=len)
    assert len(done) == 1 and ",failed," in failed and failed.partition(",")[0] == done[0].partition(",")[0]


TWO_LONG = ("recipe.epochs=60", "seeds=[0,1]", "prune.quantiles=[]", "prune.rewind=[0]", "--jobs", 2)


def test_a_worker_that_is_told_to_stop_costs_one_training_and_not_the_sweep(tiny_file, tmp_path):
    """By a person, or by a watch over the machine's memory."""
    words = ("sweep", tiny_file, *TWO_LONG, "--results", tmp_path)
    with started(*words) as process:
        until(lambda: trainings(tmp_path, "dense-seed0-*/metrics.jsonl"), 120)
        (claim,) = trainings(tmp_path, "dense-seed0-*/claim.json")
        os.kill(json.loads(claim.read_text())["pid"], signal.SIGTERM)
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 1 and said.count("lottery: FAILED") == 1, said
    assert f"dense-seed0 FAILED: {DIED}" in said and trainings(tmp_path, "dense-seed1-*/result.json")
    lottery(*words)
    assert json.loads(claim.read_text())["starts"] == 2 and trainings(tmp_path, "dense-seed0-*/result.json")


def test_a_sweep_whose_training_was_begun_elsewhere_ends_and_calls_nothing_failed(tiny_file, tmp_path):
    with started("sweep", tiny_file, *TWO_LONG, "--results", tmp_path) as process:
        until(lambda: trainings(tmp_path, "dense-seed0-*/metrics.jsonl"), 120)
        (claim,) = trainings(tmp_path, "dense-seed0-*/claim.json")
        store.write_json(claim, json.loads(claim.read_text()) | {"owner": "another"})
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 130 and "dense-seed0: begun again elsewhere; this process leaves it alone" in said, (
        said
    )
    assert not trainings(tmp_path, "*/failure.json")


def test_a_seed_whose_dense_run_fails_does_not_stop_the_other_seeds(trained, tiny_file):
    words = (tiny_file, "seeds=[0,1]", "--results", trained)
    (broken,) = [row["training"] for row in json.loads(lottery("plan", *words, "--json").stdout)["trainings"]
                 if row["task"] == "dense-seed1"]  # fmt: skip
    (trained / "trainings" / broken).mkdir()
    (trained / "trainings" / broken / "checkpoint.h5").write_text("damaged")
    assert "FAILED dense-seed1: " in lottery("sweep", *words, check=2).stderr
    done = {path.parent.name for path in trainings(trained, "ticket-*/result.json")}
    assert len(done) == 4 and all("-seed0-" in name for name in done)


def test_two_experiments_at_the_same_time_train_what_they_share_once(tiny_file, tmp_path):
    """Each has tickets of its own and needs the dense run; both end with everything."""
    words = ("sweep", tiny_file, "prune.rewind=[0]", "--results", tmp_path)
    with (
        started(*words, "prune.quantiles=[0.5,0.8]") as one,
        started(*words, "name=other", "prune.quantiles=[0.5,0.9]") as two,
    ):
        said = [process.communicate(timeout=600)[0] for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0), said
    starts = {path.parent.name: json.loads(path.read_text())["starts"] for path in trainings(tmp_path, "*/claim.json")}
    assert len(starts) == 4 and set(starts.values()) == {1}


def test_a_point_that_was_not_kept_is_trained_up_to_again_and_that_is_said(tiny_file, undisturbed, trained):
    (early,) = trainings(trained, "dense-*/snapshots/step-00000004.h5")
    kept = early.read_bytes()
    early.unlink()
    plan = lottery("plan", tiny_file, "--results", trained).stdout
    assert (
        "dense-seed0: its weights at 1ep are not there; it will be trained again up to there, and rejected if" in plan
    )
    said = lottery("sweep", tiny_file, "--results", trained).stdout
    assert "dense-seed0: its weights at 1ep are not there; it is trained again up to there" in said
    assert csv_of(trained) == csv_of(undisturbed)
    (again,) = trainings(trained, "dense-*/snapshots/step-00000004.h5")
    one, other = (store.read_arrays(path)[0] for path in (again, _written(kept, early.with_name("kept.h5"))))
    assert all(one[name].tobytes() == other[name].tobytes() for name in other)


def test_a_dense_run_keeps_what_any_experiment_asks_for_and_nothing_of_an_attempt_that_was_given_up(tiny_file, trained):
    """On a GPU the next attempt passes elsewhere, and tickets would start from the first one's weights."""
    (dense,) = trainings(trained, "dense-*")
    first = dense / "snapshots" / "step-00000003.h5"
    shutil.copy(dense / "snapshots" / "step-00000004.h5", first)
    for name in ("result.json", "checkpoint.h5"):
        (dense / name).unlink()
    lottery("sbatch", tiny_file, "name=other", "prune.rewind=[2it]", "--results", trained)  # described, not trained
    lottery("train", tiny_file, "--results", trained)
    assert not first.exists()
    assert all((dense / "snapshots" / f"step-0000000{step}.h5").exists() for step in (2, 4))


def test_a_result_names_its_run_and_those_it_came_from(undisturbed):
    """By the hash that masks keep of the weights they were taken from."""
    (dense,) = trainings(undisturbed, "dense-*/result.json")
    run = json.loads(dense.read_text())["run"]
    assert {store.read_attributes(path)["weights"] for path in undisturbed.glob("masks/*.h5")} == {run}
    for ticket in trainings(undisturbed, "ticket-*/result.json"):
        assert json.loads(ticket.read_text())["runs"] == {dense.parent.name: run}


def test_weights_of_another_training_are_not_taken_for_those_that_were_not_kept(tiny_file, trained):
    """As a GPU would make them; here the record of the first training is another by its last digit."""
    (early,) = trainings(trained, "dense-*/snapshots/step-00000004.h5")
    early.unlink()
    folder = early.parents[1]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[0]["train_loss"] = math.nextafter(lines[0]["train_loss"], 9)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(store.sealed(line)) + "\n" for line in lines))
    for ticket in trainings(trained, "ticket-*-k1ep-*"):
        shutil.rmtree(ticket)
    done = lottery("sweep", tiny_file, "--results", trained, check=2)
    assert "its weights at 1ep are not there, and trained again it is another training" in done.stderr
    assert "expected a point it kept (0it, " in done.stderr
    assert not early.exists()


def _written(content: bytes, path: Path) -> Path:
    path.write_bytes(content)
    return path


def test_other_images_under_the_same_name_are_refused_and_nothing_is_overwritten(trained, tiny_file):
    """CIFAR-10 has one name wherever it lies; here the made-up images stand for a copy with other pixels."""
    (result,) = trainings(trained, "dense-*/result.json")
    found = json.loads(result.read_text())
    store.write_json(result, found | {"fingerprint": "000000000000"})
    before = {path: path.read_bytes() for path in trainings(trained, "dense-*/*") if path.is_file()}
    methods = "prune.methods=[magnitude/uniform,magnitude/uniform@0]"  # masks of the end and of the beginning
    done = lottery("sweep", tiny_file, methods, "--results", trained, check=2)
    lines = [line for line in done.stderr.splitlines() if "FAILED" in line]
    assert len(lines) == 8 and all("was trained on other images (fingerprint 000000000000" in line for line in lines)
    assert before == {path: path.read_bytes() for path in before}
