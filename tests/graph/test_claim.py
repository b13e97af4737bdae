"""Who owns a task, and when it is given up."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from sweep import files
from sweep.errors import Busy, Interrupted, Stuck
from sweep.graph import claim
from tests.slurm_cluster import until


def reach(folder: Path, epoch: int, step: int = 0) -> None:
    files.write_arrays(folder / "checkpoint.h5", {"kernels": np.zeros(1)}, {"epoch": epoch, "step": step})


def owned_by(folder: Path, process: subprocess.Popen[bytes], **other: str) -> None:
    """As if another process of this machine had taken it."""
    mine = claim.take(folder)
    theirs = replace(mine, pid=process.pid, born=claim._born(process.pid), **other)
    files.write_json(folder / "claim.json", asdict(theirs))


@pytest.fixture
def other():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_training_of_another_living_process_is_left_alone(tmp_path, other):
    owned_by(tmp_path, other)
    with pytest.raises(Busy, match=f"process {other.pid} on "):
        claim.take(tmp_path)
    other.kill()
    other.wait()
    assert claim.take(tmp_path).starts == 2


def test_another_process_of_the_same_job_keeps_its_claim_until_the_job_is_requeued(tmp_path, other, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    owned_by(tmp_path, other)
    with pytest.raises(Busy):
        claim.take(tmp_path)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")  # begun again: what is left of the turn before has to end
    assert claim.take(tmp_path).starts == 2


def test_a_released_claim_is_free_even_if_its_process_lives(tmp_path, other):
    owned_by(tmp_path, other)
    os.utime(tmp_path / "claim.json", (0, 0))
    assert claim.take(tmp_path).starts == 2


def test_another_process_with_the_same_pid_is_not_the_owner(tmp_path, other):
    owned_by(tmp_path, other)
    files.write_json(tmp_path / "claim.json", asdict(replace(claim.read(tmp_path), born="1")))
    assert claim.take(tmp_path).starts == 2


def test_in_a_container_a_process_that_cannot_be_seen_may_live(tmp_path, other):
    """The same host name, other processes: only the touch of the file tells."""
    owned_by(tmp_path, other, kernel="the same boot, another namespace")
    other.kill()
    other.wait()
    with pytest.raises(Busy):
        claim.take(tmp_path)
    long_ago = time.time() - claim.STALE_SECONDS - 1
    os.utime(tmp_path / "claim.json", (long_ago, long_ago))
    assert claim.take(tmp_path).starts == 2


def test_on_another_machine_a_claim_lives_while_it_is_touched(tmp_path):
    mine = claim.take(tmp_path)
    files.write_json(tmp_path / "claim.json", asdict(replace(mine, host="another")))
    with pytest.raises(Busy):
        claim.take(tmp_path)
    long_ago = time.time() - claim.STALE_SECONDS - 1
    os.utime(tmp_path / "claim.json", (long_ago, long_ago))
    assert claim.take(tmp_path).starts == 2


def test_a_claim_is_touched_while_the_work_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "BEAT_SECONDS", 0.01)
    mine = claim.take(tmp_path)
    os.utime(tmp_path / "claim.json", (0, 0))
    with claim.beating(tmp_path, mine):
        until(lambda: (tmp_path / "claim.json").stat().st_mtime > 1)
    assert (tmp_path / "claim.json").stat().st_mtime == 0, "free at once"


def test_a_requeued_job_takes_over_its_own_claim_and_another_job_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    mine = claim.take(tmp_path)
    files.write_json(tmp_path / "claim.json", asdict(replace(mine, host="a lost node")))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert claim.take(tmp_path).starts == 2
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    files.write_json(tmp_path / "claim.json", asdict(replace(mine, host="a lost node")))
    with pytest.raises(Busy):
        claim.take(tmp_path)


def test_the_later_start_owns_the_task_and_the_earlier_one_ends(tmp_path):
    first = claim.take(tmp_path)
    claim.check(tmp_path, first)
    second = claim.take(tmp_path)
    with pytest.raises(Interrupted, match="begun again elsewhere"):
        claim.check(tmp_path, first)
    claim.check(tmp_path, second)
    assert (second.starts, second.idle_starts) == (2, 2)


def test_a_task_without_progress_is_given_up_after_so_many_restarts(tmp_path):
    for _ in range(3):
        claim.take(tmp_path, restarts=2)
    with pytest.raises(Stuck, match="begun 3 times without getting past its beginning, last on"):
        claim.take(tmp_path, restarts=2)


def test_progress_resets_the_count_and_so_does_a_person(tmp_path):
    reach(tmp_path, 1)
    claim.take(tmp_path, restarts=0)
    with pytest.raises(Stuck, match="getting past epoch 1 step 0"):
        claim.take(tmp_path, restarts=0)
    reach(tmp_path, 1, step=3)
    assert claim.take(tmp_path, restarts=0).starts == 2
    claim.forgive(tmp_path)
    assert claim.take(tmp_path, restarts=0).starts == 3


def test_resetting_the_count_of_starts_does_not_touch_the_claim(tmp_path):
    """Else whoever gets the task on another machine would wait for nobody."""
    claim.take(tmp_path)
    os.utime(tmp_path / "claim.json", (5, 5))
    claim.forgive(tmp_path)
    assert (tmp_path / "claim.json").stat().st_mtime == 5


def test_without_a_limit_a_person_may_start_as_often_as_they_like(tmp_path):
    starts = [claim.take(tmp_path).starts for _ in range(20)]
    assert starts == list(range(1, 21))


def test_a_claim_knows_whether_its_process_works(tmp_path):
    mine = claim.take(tmp_path)
    assert claim.works(tmp_path, mine) is True
    process = subprocess.Popen(["sleep", "600"])
    theirs = replace(mine, pid=process.pid, born=claim._born(process.pid))
    assert claim.works(tmp_path, theirs) is True
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and nobody has asked: a zombie
    assert claim.works(tmp_path, theirs) is False
    process.wait()
    assert claim.works(tmp_path, theirs) is False
    assert claim.works(tmp_path, replace(mine, host="another")) is None


@pytest.mark.tensorflow
def test_a_training_that_was_taken_over_writes_nothing_more(program, tmp_path):
    from sweep.training.loop import Watch
    from tests.conftest import tiny
    from tests.trainings import start_at, trained

    made = program(tiny())
    mine, written = claim.take(tmp_path), []

    def still_mine() -> None:
        claim.check(tmp_path, mine)

    def taken_over(step: int) -> None:
        written.append(step)
        claim.take(tmp_path)

    watch = Watch(frozenset({made.steps}), taken_over, still_mine)
    with pytest.raises(Interrupted, match="begun again elsewhere"):
        trained(made, start_at(made), tmp_path, watch=watch)
    assert [line["epoch"] for line in files.read_metrics(tmp_path)] == [1]
    assert not (tmp_path / "checkpoint.h5").exists(), "the checkpoint is the new owner's"


def test_of_two_processes_that_start_a_new_task_at_once_only_one_gets_it(tmp_path, monkeypatch):
    first = claim.take(tmp_path)
    later, looks = claim.read, iter([True])  # it looked a moment before the other wrote
    monkeypatch.setattr(claim, "read", lambda folder: None if next(looks, False) else later(folder))
    with pytest.raises(Busy, match="at this moment"):
        claim.take(tmp_path)
    monkeypatch.undo()
    assert claim.read(tmp_path) == first and {path.name for path in tmp_path.iterdir()} == {".claim.lock", "claim.json"}


def test_of_two_processes_that_find_the_same_dead_claim_only_one_gets_it(tmp_path, monkeypatch):
    dead = claim.take(tmp_path)
    first = claim.take(tmp_path)  # as another process that looked at the same moment
    later, looks = claim.read, iter([dead])
    monkeypatch.setattr(claim, "read", lambda folder: next(looks, None) or later(folder))
    with pytest.raises(Busy, match=f"process {first.pid} on .* began it at this moment"):
        claim.take(tmp_path)
    monkeypatch.undo()
    assert claim.read(tmp_path) == first


def test_a_claim_from_the_future_is_judged_by_whether_it_moves(tmp_path, monkeypatch):
    """The clock of another node was off: the age of its claim says nothing."""
    mine = claim.take(tmp_path)
    files.write_json(tmp_path / "claim.json", asdict(replace(mine, host="elsewhere", kernel="")))
    future, clock = time.time() + 3600, [1000.0]
    monkeypatch.setattr(claim.time, "monotonic", lambda: clock[0])
    os.utime(tmp_path / "claim.json", (future, future))
    with pytest.raises(Busy, match=r"on elsewhere trains it since \d{4}-\d\d-\d\d .*, last sign of life "):
        claim.take(tmp_path)
    clock[0] += claim.STALE_SECONDS - 1
    os.utime(tmp_path / "claim.json", (future + 10, future + 10))  # it moves, so it lives
    with pytest.raises(Busy):
        claim.take(tmp_path)
    clock[0] += claim.STALE_SECONDS - 1
    with pytest.raises(Busy):
        claim.take(tmp_path)
    clock[0] += 2
    assert claim.take(tmp_path).starts == 2
