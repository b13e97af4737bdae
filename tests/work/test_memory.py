"""Trainings at a time that have not all room in memory: fewer at a time, and none is lost."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import slurm.local
from slurm.local import Local
from sweep.experiment import Model, Recipe
from sweep.graph.home import Home, open_home
from sweep.work.worker import Worker, out_of_memory
from tests import synthetic

pytestmark = pytest.mark.tensorflow
WORK = slurm.local._work


def with_room_for(count: int, root: Path, *words) -> None:
    """Run a worker process that has memory for a training only while fewer than `count` others train."""
    perform, program, places = Worker.perform, Worker.program, [(root / f"room{i}").open("w") for i in range(count)]

    def taken(place) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def freed(worker: Worker, task: str) -> None:
        try:
            perform(worker, task)
        finally:
            for place in places:
                fcntl.flock(place, fcntl.LOCK_UN)

    def crowded(worker: Worker, training) -> object:
        if not any(map(taken, places)):
            bytearray(2**60)
        return program(worker, training)

    Worker.perform, Worker.program = freed, crowded
    WORK(root, *words)


def with_room_for_one(*words) -> None:
    with_room_for(1, *words)


def with_room_for_none(*words) -> None:
    with_room_for(0, *words)


def on_gpus_of_which_one_is_full(*words) -> None:
    share = words[4]  # CUDA_VISIBLE_DEVICES of this worker
    with_room_for(0 if share == "0" else 1, *words)


def trained(tmp_path: Path, monkeypatch, work, restarts: int | None = None) -> tuple[Home, list]:
    monkeypatch.setattr("slurm.local._work", work)
    small = synthetic.experiment(seeds=(0, 1, 2), quantiles=())
    small = replace(small, model=Model("resnet8", 0.25), recipe=Recipe(epochs=1, batch=64))
    home = open_home(small, tmp_path / "small")
    return home, Local(jobs=3, restarts=restarts).run(home)


@pytest.mark.parametrize("restarts", [None, 0], ids=["here", "in an array element"])
def test_trainings_without_room_beside_others_wait_for_them(restarts, tmp_path, monkeypatch, capsys):
    home, failures = trained(tmp_path, monkeypatch, with_room_for_one, restarts)
    said = capsys.readouterr()
    assert not failures and all(map(home.done, home.graph.trainings)), failures
    assert not list(tmp_path.glob("**/failure.json"))
    assert "out of memory; it starts again later, 1 at a time" in " ".join((said.out + said.err).split())


def test_trainings_without_room_even_alone_fail_and_the_workers_they_cost_come_back(tmp_path, monkeypatch, capsys):
    home, failures = trained(tmp_path, monkeypatch, with_room_for_none)
    said = capsys.readouterr()
    assert (said.out + said.err).count("again later, 2 at a time") > 1, "the next ones were tried three at a time too"
    assert {one.task for one in failures} == {one.slug for one in home.graph.dense}
    assert all(one.memory and "MemoryError" in one.reason for one in failures)


def test_a_gpu_that_another_program_has_filled_costs_no_training(tmp_path, monkeypatch):
    monkeypatch.setattr("slurm.local.visible_gpus", lambda: ["0", "1"])
    home, failures = trained(tmp_path, monkeypatch, on_gpus_of_which_one_is_full)
    assert not failures and all(map(home.done, home.graph.trainings)), failures


def test_what_cuda_says_of_a_full_gpu_is_lack_of_memory():
    import tensorflow as tf

    said = (
        "cudaSetDevice() on GPU:0 failed. Status: out of memory",
        "Failed copying: Dst tensor is not initialized.",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "Autotuning failed",
    )
    assert [out_of_memory(tf.errors.InternalError(None, None, one)) for one in said] == [True, True, True, False]
    assert out_of_memory(MemoryError()) and not out_of_memory(ValueError("out of memory"))
