"""Trainings beside each other on a GPU, as real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from sweep.sharing import counted

HOLD = """
import sys, time
from pathlib import Path
from sweep.sharing import counted
with counted(["GPU-a"], Path(sys.argv[1])):
    print("holds", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def another(tmp_path):
    """Starts a process that counts on the same GPU."""
    started = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "holds\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_processes_on_a_gpu_are_counted_and_a_killed_one_no_longer(tmp_path, another):
    with counted(["GPU-a"], tmp_path) as on_gpu:
        assert on_gpu() == 1
        first, second = another(), another()
        assert on_gpu() == 3
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert on_gpu() == 2
        second.kill()
        second.wait()
        assert on_gpu() == 1 and len(list((tmp_path / "GPU-a").iterdir())) == 1
    assert list((tmp_path / "GPU-a").iterdir()) == []


def test_of_several_gpus_it_takes_a_part_of_each(tmp_path, another):
    """Half of one and all of the other are one and a half."""
    another()
    with counted(["GPU-a", "GPU-b"], tmp_path) as on_gpu:
        assert 2 / on_gpu() == pytest.approx(1 / 2 + 1)


def test_without_a_gpu_nothing_is_counted_or_written(tmp_path):
    with counted([], tmp_path) as on_gpu:
        assert on_gpu() is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_does_not_end_a_training(tmp_path, monkeypatch):
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with counted(["GPU-a"], tmp_path) as on_gpu:
        (tmp_path / "GPU-a" / "folder").mkdir()
        assert on_gpu() == 1
        monkeypatch.setattr(fcntl, "flock", refuses)
        assert on_gpu() == 1
    with counted(["GPU-b"], tmp_path) as on_gpu:
        assert on_gpu() == 1
    assert list((tmp_path / "GPU-b").iterdir()) == []


def test_a_place_that_cannot_be_written_does_not_end_a_training(tmp_path, capsys):
    (tmp_path / "file").touch()
    with counted(["GPU-a"], tmp_path / "file") as on_gpu:
        assert on_gpu() == 1
    assert "counted as if it had its GPUs alone" in capsys.readouterr().out
