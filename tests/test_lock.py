"""One at a time, with flock and where the file system does not know it."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from sweep import lock


def count_up(path: Path, times: int, without_flock: bool) -> None:
    """Reads a number, waits a moment, writes one more: two at a time would lose some."""
    if without_flock:
        fcntl.flock = refuse
    for _ in range(times):
        with lock.alone(path / "lock"):
            before = int((path / "number").read_text())
            time.sleep(0.002)
            (path / "number").write_text(str(before + 1))


def refuse(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("without_flock", [False, True])
def test_of_several_processes_one_at_a_time_is_inside(without_flock, tmp_path):
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("spawn")
    crew = [context.Process(target=count_up, args=(tmp_path, 10, without_flock)) for _ in range(3)]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    assert (tmp_path / "number").read_text() == "30"
    assert not (tmp_path / "lock.held").exists()


def test_what_a_dead_process_left_is_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "lock.held").touch()
    os.utime(tmp_path / "lock.held", (0, 0))
    with lock.alone(tmp_path / "lock"):
        assert (tmp_path / "lock.held").stat().st_mtime > 0
    assert not (tmp_path / "lock.held").exists()


def test_another_error_is_no_missing_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"), lock.alone(tmp_path / "lock"):
        pass
