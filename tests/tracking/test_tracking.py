"""wandb mirrors metrics.jsonl: read back with wandb's own reader, from files it wrote itself."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep import files as store
from sweep.experiment import Track
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home, open_home
from sweep.tracking import runs as tracking
from tests import synthetic
from tests.commands import lottery, started
from tests.conftest import tiny
from tests.slurm_cluster import until
from tests.wandb_server import serving

KEY = "0123456789abcdef0123456789abcdef01234567"
pytestmark = pytest.mark.programs


@pytest.fixture(autouse=True)
def anew():
    """wandb remembers for a whole process which server it talks to; here every test has its own."""
    yield
    import wandb

    wandb.teardown()


def read_back(folder: Path) -> dict[str, dict[str, Any]]:
    """Everything under a wandb folder by run id, the fragments of a run joined in the order they were made."""
    from wandb.util import get_core_path

    # What `wandb leet inspect` runs, without the seconds that its Python takes to load.
    inspect = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file"]
    out: dict[str, dict[str, Any]] = {}
    for part in sorted((folder / "wandb").glob("offline-run-*")):
        said = subprocess.run(
            [*inspect, *part.glob("*.wandb"), part.parent], capture_output=True, text=True, check=True
        )
        found: dict[str, Any] = {"history": [], "config": {}, "summary": {}, "system": {}, "fragments": 1}
        for line in said.stdout.splitlines():
            record = json.loads(line)
            if record["type"] == "run":
                found |= {name: record["run"].get(name) for name in ("run_group", "job_type", "tags", "display_name")}
                found["config"] |= record["run"]["config"]["update"]
            elif record["type"] == "history":
                found["history"].append({k: v for k, v in record["history"]["item"].items() if not k.startswith("_")})
            elif record["type"] == "summary":
                found["summary"] |= record["summary"]["update"]
            elif record["type"] == "stats":
                found["system"] |= record["stats"]["item"]
        id_ = part.name.split("-")[3]  # a fourth part counts fragments of one second
        before = out.get(id_)
        if before:
            found["history"] = before["history"] + found["history"]
            found["fragments"] += before["fragments"]
        out[id_] = found
    return out


def assert_mirrors(run: dict[str, Any], folder: Path) -> None:
    """The same rows, none lost, none doubled, and the result in the summary."""
    lines = store.read_metrics(folder)
    assert [row["epoch"] for row in run["history"]] == [line["epoch"] for line in lines]
    for row, line in zip(run["history"], lines, strict=True):
        assert {name: row[name] for name in line} == pytest.approx(line)
    result = store.read_json(folder / "result.json")
    assert run["summary"]["test_top1"] == pytest.approx(result["test"]["top1"])
    if "density" in result:
        assert run["summary"]["density"] == pytest.approx(result["density"])


@pytest.fixture
def offline(tmp_path) -> tuple[Path, Home]:
    """An experiment of 8 cells that is tracked offline; its file and folder, the dense run done."""
    prune = dataclasses.replace(tiny().prune, quantiles=(0.3, 0.5, 0.7, 0.8), rewind=synthetic.points(0, 1))
    experiment = dataclasses.replace(tiny(epochs=8), prune=prune, track=Track("offline"))
    file = tmp_path / "tiny.yaml"
    file.write_text(experiment_file.dump(experiment))
    lottery("train", file, "--results", tmp_path)
    return file, Home(tmp_path / experiment.name, experiment)


@pytest.mark.tensorflow
@pytest.mark.drill
def test_cells_side_by_side_a_requeue_and_the_dense_run_read_back_as_their_metrics(offline, monkeypatch):
    file, home = offline
    plan = synthetic.tickets(home)
    words = ["train", file, "--results", home.pool, "recipe.checkpoint_minutes=0.001"]
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with ExitStack() as stack:
        processes = [stack.enter_context(started(*words, task)) for task in plan]
        victim = home.folder_of(plan[0])
        until(lambda: len(store.read_metrics(victim)) >= 2, 300)
        processes[0].send_signal(signal.SIGKILL if not (victim / "result.json").exists() else 0)
        assert [process.wait(300) for process in processes[1:]] == [0] * 7
        processes[0].wait(300)
    monkeypatch.delenv("WANDB_API_KEY")
    lottery("train", file, plan[0], "--results", home.pool)
    found = read_back(home.root)
    assert len(found) == 9
    for slug in plan:
        run = found[tracking.id_of(home.folder_of(slug))]
        assert_mirrors(run, home.folder_of(slug))
        assert (run["run_group"], run["job_type"], run["display_name"]) == (home.experiment.name, "ticket", slug)
        training = home.training(slug)
        quantile = training.mask.level.value
        assert run["config"]["quantile"] == quantile and run["config"]["rewind"] == str(training.begin)
        assert run["config"]["density"] == pytest.approx(1 - quantile, abs=1e-3)
    dense = found[tracking.id_of(home.folder_of("dense-seed0"))]
    assert_mirrors(dense, synthetic.dense(home))
    assert any(name.startswith("prunable weights") for name in dense["history"][-1])
    assert not [path for path in home.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.drill
def test_80_processes_at_once_do_not_trip_over_each_other(tmp_path):
    made = synthetic.experiment(quantiles=(), seeds=tuple(range(80)))
    home = open_home(dataclasses.replace(made, track=Track("offline")), tmp_path / "small")
    tasks = [training.slug for training in home.graph]
    subprocess.run([sys.executable, "-m", "tests.track_many", str(home.root)], check=True, timeout=600)
    found = read_back(tmp_path / "small")
    assert len(found) == 80
    for task in tasks:
        assert_mirrors(found[tracking.id_of(home.folder_of(task))], home.folder_of(task))


def train(tracker: tracking.Run, folder: Path, *epochs: int) -> None:
    for epoch in epochs:
        store.append_metrics(folder, {"epoch": epoch, "seconds": 2.0, "evaluation_seconds": 0.5})
        tracker.epoch()


def test_a_training_that_stops_and_goes_on_mirrors_each_epoch_once(tmp_path):
    """Two sittings, without training: the metrics are made up."""
    home = Home(tmp_path / "small", dataclasses.replace(synthetic.experiment(), track=Track("offline")))
    folder = synthetic.dense(home)
    synthetic.epochs(folder, 2)
    with pytest.raises(KeyboardInterrupt), tracking.tracked(home, home.training("dense-seed0"), folder, "CPU"):
        raise KeyboardInterrupt
    with tracking.tracked(home, home.training("dense-seed0"), folder, "CPU") as tracker:
        train(tracker, folder, 3, 4)
        synthetic.finish(home, "dense-seed0", 0.5)
    (run,) = read_back(tmp_path / "small").values()
    assert run["fragments"] == 2
    assert_mirrors(run, folder)


@pytest.mark.parametrize("live", [False, True])
def test_what_is_logged_of_the_weights_comes_also_where_stop_at_ends_the_training_early(live, tmp_path):
    rows: list[dict[str, Any]] = []
    run = SimpleNamespace(log=rows.append, summary={}, finish=lambda exit_code: None)
    tracker = tracking.Run(run, tmp_path, live, last=4)
    train(tracker, tmp_path, 1, 2)
    tracker.extra = {"prunable weights": "a histogram"}
    tracker.close(failed=False)
    assert [row["epoch"] for row in rows] == [1, 2, 2] and rows[2] == {"epoch": 2} | tracker.extra


def test_the_load_of_the_machine_is_tracked_with_the_training(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_X_STATS_SAMPLING_INTERVAL", "0.2")
    home = Home(tmp_path / "small", dataclasses.replace(synthetic.experiment(), track=Track("offline")))
    with tracking.tracked(home, home.training("dense-seed0"), synthetic.dense(home), "CPU") as tracker:
        train(tracker, synthetic.dense(home), 1, 2)
        time.sleep(1.5)
    (run,) = read_back(tmp_path / "small").values()
    assert run["system"]["proc.memory.rssMB"] > 1 and "memory_percent" in run["system"]


def test_disabled_it_leaves_nothing_and_loads_nothing(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment())
    with tracking.tracked(home, home.training("dense-seed0"), synthetic.dense(home), "CPU") as tracker:
        tracker.epoch()
    assert not list(tmp_path.iterdir())


class Refusing(BaseHTTPRequestHandler):
    """A server that knows nobody."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b'{"errors": [{"message": "invalid API key"}]}'
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("case", ["no key", "no network", "wrong key"])
def test_online_without_a_usable_server_goes_on_offline_and_says_so_once(case, refusing, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", refusing if case == "wrong key" else "http://127.0.0.1:9")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    if case != "no key":
        monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(tracking, "_gave_up", [])
    home = Home(tmp_path / "home", dataclasses.replace(synthetic.experiment(), track=Track("online")))
    folder = synthetic.dense(home)
    synthetic.epochs(folder, 3)
    for _ in range(2):
        with tracking.tracked(home, home.training("dense-seed0"), folder, "CPU"):
            synthetic.finish(home, "dense-seed0", 0.5)
    said = capsys.readouterr().out
    assert said.count("going on offline") == 1 and KEY not in said
    assert {"no key": "no key", "no network": "cannot be reached", "wrong key": "wandb:"}[case] in said
    runs = read_back(home.root)
    assert [row["epoch"] for row in runs[tracking.id_of(home.folder_of("dense-seed0"))]["history"]] == [1, 2, 3]


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(tracking, "_gave_up", [])
    monkeypatch.setattr(tracking, "INIT_SECONDS", 60.0)  # other tests may keep the machine busy
    with serving() as made:
        monkeypatch.setenv("WANDB_BASE_URL", made.url)
        yield made


def test_online_every_epoch_is_there_as_it_ends_and_a_requeue_continues_the_run(server, tmp_path):
    home = Home(tmp_path / "home", dataclasses.replace(synthetic.experiment(), track=Track("online")))
    folder = synthetic.dense(home)
    with (
        pytest.raises(KeyboardInterrupt),
        tracking.tracked(home, home.training("dense-seed0"), folder, "CPU") as tracker,
    ):
        train(tracker, folder, 1, 2)
        id_ = tracking.id_of(folder)
        until(lambda: [row["epoch"] for row in server.runs[id_]["history"]] == [1, 2], 60)
        raise KeyboardInterrupt
    with tracking.tracked(home, home.training("dense-seed0"), folder, "CPU") as tracker:
        train(tracker, folder, 3, 4)
        synthetic.finish(home, "dense-seed0", 0.5)
    kept = server.runs[id_]
    assert [row["epoch"] for row in kept["history"]] == [1, 2, 3, 4]
    assert kept["summary"]["test_top1"] == 0.5 and kept["config"]["kind"] == "dense"
    assert (kept["groupName"], kept["jobType"]) == (home.experiment.name, "dense")
    shutil.rmtree(folder)  # and trained anew: another run, which does not write over the first
    with tracking.tracked(home, home.training("dense-seed0"), folder, "CPU") as tracker:
        train(tracker, folder, 1)
    assert [row["epoch"] for row in server.runs[tracking.id_of(folder)]["history"]] == [1]
    assert len(server.runs) == 2 and len(server.runs[id_]["history"]) == 4


def test_what_was_tracked_offline_is_brought_up_once_and_in_order(server, tmp_path):
    home = Home(tmp_path / "home", dataclasses.replace(synthetic.experiment(), track=Track("offline")))
    (home.root).mkdir()
    (home.root / "experiment.yaml").write_text(experiment_file.record(home.experiment))
    folder = synthetic.dense(home)
    for epochs in ((1, 2), (3, 4)):
        with tracking.tracked(home, home.training("dense-seed0"), folder, "CPU"):
            for epoch in epochs:
                store.append_metrics(folder, {"epoch": epoch, "seconds": 2.0, "evaluation_seconds": 0.5})
        time.sleep(1.1)  # wandb names its folders by the second
    id_ = tracking.id_of(folder)
    assert "2 offline runs" in lottery("wandb", "sync", home.root).stdout
    assert [row["epoch"] for row in server.runs[id_]["history"]] == [1, 2, 3, 4]
    assert "nothing to upload" in lottery("wandb", "sync", home.root).stdout
    assert len(server.runs[id_]["history"]) == 4


def test_sync_without_offline_runs_says_so(tmp_path):
    (tmp_path / "experiment.yaml").write_text(experiment_file.record(synthetic.experiment()))
    assert "nothing to upload" in lottery("wandb", "sync", tmp_path).stdout


def test_weights_that_cannot_be_logged_do_not_fail_the_dense_run(tmp_path, capsys):
    home = Home(tmp_path / "small", synthetic.experiment())
    tracker = tracking.Run(object(), tmp_path, live=False, last=1)
    tracking.track_weights(home, home.training("dense-seed0"), tracker)  # it has left no snapshot
    assert "wandb: the weights were not logged: Refused: " in capsys.readouterr().out
