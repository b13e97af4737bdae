"""Trainings at a time that have not all room in memory: fewer at a time, and none is lost."""

from __future__ import annotations

import fcntl
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
    perform, places = Worker.perform, [(root / f"room{place}").open("w") for place in range(count)]

    def crowded(worker: Worker, task: str) -> None:
        for place in places:
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            try:
                return perform(worker, task)
            finally:
                fcntl.flock(place, fcntl.LOCK_UN)
        bytearray(2**60)

    Worker.perform = crowded
    WORK(root, *words)


def with_room_for_one(*words) -> None:
    with_room_for(1, *words)


def with_room_for_none(*words) -> None:
    with_room_for(0, *words)


def trained(tmp_path: Path, monkeypatch, work) -> tuple[Home, list]:
    monkeypatch.setattr("slurm.local._work", work)
    small = synthetic.experiment(seeds=(0, 1, 2), quantiles=())
    small = replace(small, model=Model("resnet8", 0.25), recipe=Recipe(epochs=1, batch=64))
    home = open_home(small, tmp_path / "small")
    return home, Local(jobs=3).run(home)


def test_trainings_without_room_beside_others_wait_for_them(tmp_path, monkeypatch, capsys):
    home, failures = trained(tmp_path, monkeypatch, with_room_for_one)
    said = capsys.readouterr()
    assert not failures and all(map(home.done, home.graph.trainings)), failures
    assert not list(tmp_path.glob("**/failure.json"))
    assert "out of memory; it starts again later, with 1 at a time" in " ".join((said.out + said.err).split())


def test_trainings_without_room_even_alone_fail_and_the_sweep_ends(tmp_path, monkeypatch):
    home, failures = trained(tmp_path, monkeypatch, with_room_for_none)
    assert {one.task for one in failures} == {one.slug for one in home.graph.dense}
    assert all(one.memory and "MemoryError" in one.reason for one in failures)


def test_a_training_without_room_on_a_gpu_of_its_own_fails_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("slurm.local.visible_gpus", lambda: ["0", "1", "2"])
    _, failures = trained(tmp_path, monkeypatch, with_room_for_none)
    said = capsys.readouterr()
    assert len(failures) == 3 and "starts again" not in said.out + said.err


def test_what_cuda_says_of_a_full_gpu_is_lack_of_memory():
    import tensorflow as tf

    said = ("cudaSetDevice() on GPU:0 failed. Status: out of memory", "Failed copying: Dst tensor is not initialized.",
            "Autotuning failed")  # fmt: skip
    assert [out_of_memory(tf.errors.InternalError(None, None, one)) for one in said] == [True, True, False]
    assert out_of_memory(MemoryError()) and not out_of_memory(ValueError("out of memory"))
