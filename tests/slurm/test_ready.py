"""What is handed out, and what is not to come any more."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, replace
from types import SimpleNamespace

from slurm import backend
from slurm.backend import Course, Ready
from sweep import files, progress
from sweep.graph import claim
from sweep.graph.home import Home
from sweep.graph.state import predicted_seconds, states
from sweep.progress import Work
from sweep.work.worker import Failure
from tests import synthetic


def handed_out(ready: Ready) -> list[str]:
    out = []
    while task := ready.next():
        out.append(task)
    return out


def test_tasks_that_need_a_failed_one_are_dropped(tmp_path):
    ready = Ready(Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,))))
    assert handed_out(ready) == ["dense-seed0"]
    ready.end("dense-seed0", Failure("dense-seed0", "diverged"))
    assert handed_out(ready) == [] and not ready.waiting


def test_if_a_point_is_unavailable_trainings_from_other_points_continue(tmp_path):
    """The dense run is done, without the weights of 2ep, and trained again it would be another one."""
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,)))
    synthetic.finish(home, "dense-seed0", 0.9)
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    ready = Ready(home)
    assert handed_out(ready) == ["dense-seed0", "ticket-q0.5-k0-seed0"]  # which reads nothing that is lost
    ready.end("dense-seed0", Failure("dense-seed0", "its weights at 2ep are not there"))
    assert [one.slug for one in ready.waiting.values()] == ["ticket-q0.5-k0-seed0"]


def test_the_time_left_follows_the_epochs_of_what_is_under_way(tmp_path, monkeypatch, capsys):
    """Of 3 trainings with 4 epochs each the dense run compiles for 1000 s. Then two at a time do an epoch in 10 s."""
    now = [0.0]
    for module in (backend, progress):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5, 0.9), rewind=synthetic.points(0)))
    ready = Ready(home)
    tasks = [one.slug for one in home.graph]
    assert (len(tasks), ready.epochs, ready.trained) == (3, 15.0, 0.0)

    def has_trained(task: str, epochs: int) -> None:
        folder = home.folder(home.training(task))
        synthetic.epochs(folder, epochs)
        (folder / "checkpoint.h5").touch()

    with Work("sweep", ready.epochs) as work:
        course = Course(ready, work)
        assert ready.next() == "dense-seed0"
        course.look(1)
        now[0] += 1000.0
        ready.end("dense-seed0", None)
        assert [ready.next(), ready.next()] == tasks[1:]
        course.look(2)
        assert ready.trained == 5.0
        for epoch in (1, 2, 3):
            now[0] += 20.0
            for task in tasks[1:]:
                has_trained(task, epoch)
            course.look(2)
    assert ready.trained == 11.0  # of the first two epochs nothing is said: from them on it is reckoned
    assert capsys.readouterr().out.splitlines() == ["sweep: 60%, 1 min 00 s left  ", "sweep: 73%, 40.0 s left  "]


def test_epochs_that_end_in_a_burst_are_not_taken_for_speed(tmp_path, monkeypatch, capsys):
    """Four trainings in step, 600 s an epoch, whose ends lie some seconds apart."""
    now = [0.0]
    for module in (backend, progress):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(), rewind=synthetic.points(0), seeds=(0, 1, 2, 3)))
    ready, begun = Ready(home), []
    while task := ready.next():
        begun.append(home.folder_of(task))
    with Work("sweep", ready.epochs) as work:
        course = Course(ready, work)
        while now[0] < 1300.0:
            course.look(4)
            for place, folder in enumerate(begun):
                for epoch in (1, 2):
                    if now[0] == 600.0 * epoch + 4.0 * place:
                        files.append_metrics(folder, {"epoch": epoch, "seconds": 600.0, "evaluation_seconds": 0.0})
                        (folder / "checkpoint.h5").touch()
            now[0] += 1.0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and re.search(
        "sweep: 40%, (29|30) min", lines[0]
    )  # 2 epochs and the end: 30 min, by its count


def test_a_failed_dense_run_takes_what_needs_it_out_of_the_count(tmp_path):
    ready = Ready(Home(tmp_path / "small", synthetic.experiment(seeds=(0, 1), rewind=synthetic.points(0))))
    assert (ready.epochs, ready.trained) == (30.0, 0.0)
    assert handed_out(ready) == ["dense-seed0", "dense-seed1"]
    synthetic.epochs(ready.home.folder_of("dense-seed0"), 1)
    (ready.home.folder_of("dense-seed0") / "checkpoint.h5").touch()
    ready.end("dense-seed0", Failure("dense-seed0", "diverged"))
    assert (ready.epochs, ready.trained) == (17.0, 2.0)  # one epoch of four, and its start


def test_a_skipped_training_does_not_count_as_trained(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5, 0.9), rewind=synthetic.points(0)))
    synthetic.finish(home, "dense-seed0", 0.9)
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    ready = Ready(home)
    task, *_ = handed_out(ready)
    before = ready.epochs
    files.write_json(home.folder_of(task) / "skipped.json", {"reason": "its mask cuts the network through"})
    assert ready.trained == 0.0
    ready.end(task, None)
    assert (ready.epochs, ready.trained) == (before - 4.0, 1.0)


def test_a_disk_that_does_not_answer_is_not_the_end_of_a_sweep(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment())
    ready = Ready(home)
    assert ready.next() == "dense-seed0"
    synthetic.dense(home).mkdir(parents=True, exist_ok=True)
    (synthetic.dense(home) / "checkpoint.h5").touch()
    (synthetic.dense(home) / "metrics.jsonl").mkdir()  # which cannot be read
    assert ready.trained == 0.0


def test_a_damaged_file_of_one_training_is_not_the_end_of_the_others(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,)))
    synthetic.finish(home, "dense-seed0", 0.9)
    folder = home.folder(home.training("ticket-q0.5-k0-seed0"))
    synthetic.epochs(folder, 1)
    (folder / "checkpoint.h5").touch()
    (folder / "metrics.jsonl").write_text("{\n")
    assert Ready(home).trained == 0.0


def test_a_training_that_another_process_has_is_reported_once(tmp_path, capsys):
    ready = Ready(Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,))))
    for _ in range(3):
        ready.again("dense-seed0", "dense-seed0-1a: process 7 on node03 trains it since 2026-01-01 12:00:00")
    said = " ".join(capsys.readouterr().out.split())
    assert said == "dense-seed0-1a: process 7 on node03 trains it since 2026-01-01 12:00:00; waiting for it"


def test_jobs_of_their_own_are_predicted_with_the_time_a_start_takes(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,)))
    synthetic.epochs(synthetic.finish(home, "dense-seed0", 0.75, start_seconds=30.0), 4)
    here, elsewhere = predicted_seconds(home), predicted_seconds(home, devices=1)
    assert here and elsewhere and {task: elsewhere[task] - here[task] for task in here} == dict.fromkeys(here, 30.0)


def test_a_training_of_another_machine_whose_claim_was_touched_just_now_is_running(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(0.5,)))
    folder = home.folder_of("dense-seed0")
    mine = claim.take(folder)
    files.write_json(folder / "claim.json", asdict(replace(mine, host="node03", kernel="another")))
    assert next(one.state for one in states(home) if one.task == "dense-seed0") == "running"
    os.utime(folder / "claim.json", (1, 1))
    assert next(one.state for one in states(home) if one.task == "dense-seed0") == "begun"
