"""Who owns a task, and when it is given up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sweep import claim, store
from sweep.errors import Interrupted, Stuck


def reach(folder: Path, epoch: int, step: int = 0) -> None:
    store.write_arrays(folder / "checkpoint.h5", {"kernels": np.zeros(1)}, {"epoch": epoch, "step": step})


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


def test_without_a_limit_a_person_may_start_as_often_as_they_like(tmp_path):
    starts = [claim.take(tmp_path).starts for _ in range(20)]
    assert starts == list(range(1, 21))


def test_a_claim_knows_whether_its_process_works(tmp_path):
    mine = claim.take(tmp_path)
    assert claim.works(mine) is True
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and nobody has asked: a zombie
    assert claim.works(claim.replace(mine, pid=process.pid)) is False
    process.wait()
    assert claim.works(claim.replace(mine, pid=process.pid)) is False
    assert claim.works(claim.replace(mine, host="another")) is None


@pytest.mark.tensorflow
def test_a_training_that_was_taken_over_writes_nothing_more(program, tmp_path):
    from sweep.training import Watch
    from tests.conftest import tiny
    from tests.trainings import start_at, trained

    made = program(tiny())
    mine, written = claim.take(tmp_path), []

    def still_mine() -> None:
        claim.check(tmp_path, mine)

    def taken_over(epoch: int) -> None:
        written.append(epoch)
        if epoch == 1:
            claim.take(tmp_path)

    with pytest.raises(Interrupted, match="begun again elsewhere"):
        trained(made, start_at(made), tmp_path, on_epoch=taken_over, watch=Watch(still_mine))
    assert [line["epoch"] for line in store.read_metrics(tmp_path)] == [1]
    assert not (tmp_path / "checkpoint.h5").exists(), "the checkpoint is the new owner's"
