"""One at a time, with flock and where the file system does not know it."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from sweep import lock

CONTEXT = multiprocessing.get_context("spawn")


def refuse(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def without_flock(stale_seconds: float = 120.0, beat_seconds: float = 0.1) -> None:
    """In a process of its own: a file system that does not know flock."""
    fcntl.flock = refuse
    lock.STALE_SECONDS, lock.BEAT_SECONDS = stale_seconds, beat_seconds


def run(*calls: tuple[Callable, tuple]) -> list:
    """Call each in a process of its own, all at the same time."""
    crew = [CONTEXT.Process(target=call, args=arguments) for call, arguments in calls]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    return [process.exitcode for process in crew]


def count_up(path: Path, times: int, flock: bool) -> None:
    """Reads a number, waits a moment, writes one more: two at a time would lose some."""
    if not flock:
        without_flock()
    for _ in range(times):
        with lock.alone(path / "lock"):
            before = int((path / "number").read_text())
            time.sleep(0.002)
            (path / "number").write_text(str(before + 1))


@pytest.mark.parametrize("flock", [True, False])
def test_of_several_processes_one_at_a_time_is_inside(flock, tmp_path):
    (tmp_path / "number").write_text("0")
    assert run(*[(count_up, (tmp_path, 10, flock))] * 3) == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "30"


def die_inside(paths: list[Path]) -> None:
    without_flock()
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(lock.alone(path))
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_dead(paths: list[Path], told: Path) -> None:
    """Enter every lock as soon as it is free, on a file system that takes up to 5 ms for a step; tell of company."""
    # far above what a busy machine keeps a beat waiting
    without_flock(stale_seconds=5.0)
    lock.PAUSE_SECONDS = 0.02
    real, chance = {name: getattr(os, name) for name in ("open", "close", "unlink")}, random.Random(os.getpid())

    def slow(step: Callable) -> Callable:
        def slowly(*arguments, **more):
            time.sleep(chance.random() * 0.005)
            return step(*arguments, **more)

        return slowly

    for name in ("open", "stat", "unlink", "rename", "replace", "link", "listdir", "utime", "mkdir"):
        setattr(os, name, slow(getattr(os, name)))

    def enter(path: Path) -> None:
        inside = path.with_suffix(".inside")
        with lock.alone(path):
            try:
                real["close"](real["open"](inside, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                (told / f"{path.name}-{os.getpid()}").touch()
            time.sleep(0.02)
            try:
                real["unlink"](inside)
            except FileNotFoundError:
                (told / f"{path.name}-{os.getpid()}").touch()

    crew = [threading.Thread(target=enter, args=(path,)) for path in paths]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


def test_of_six_that_wait_for_a_dead_holder_on_a_slow_file_system_one_at_a_time_is_inside(tmp_path):
    paths = [tmp_path / "locks" / f"lock{i}" for i in range(30)]
    told = tmp_path / "told"
    told.mkdir()
    assert run((die_inside, (paths,))) == [-signal.SIGKILL]
    assert run(*[(wait_for_the_dead, (paths, told))] * 6) == [0] * 6
    assert not list(told.iterdir()), "two were inside"


class Paused:
    """A clock that stands still while its process does: a machine may stop both processes, but not their beat."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self.now += seconds


def stay(path: Path, told: Path, seconds: float) -> None:
    without_flock(stale_seconds=1.5)
    lock.time = Paused()
    with lock.alone(path):
        with open(told, "a") as f:
            f.write("in\n")
        time.sleep(seconds)
        with open(told, "a") as f:
            f.write("out\n")


def test_a_holder_that_lives_is_not_taken_for_dead_however_long_it_stays(tmp_path):
    told = tmp_path / "told"
    assert run(*[(stay, (tmp_path / "lock", told, 4.0))] * 2) == [0, 0]
    assert told.read_text().split() == ["in", "out", "in", "out"]


def test_a_holder_that_stood_still_and_was_overtaken_gives_nothing_back(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.3)  # and the next beat in 5 s
    first = ExitStack()
    first.enter_context(lock.alone(tmp_path / "lock"))
    with lock.alone(tmp_path / "lock"):
        held = list((tmp_path / "lock.token").iterdir())
        first.close()
        assert list((tmp_path / "lock.token").iterdir()) == held
    assert list((tmp_path / "lock.token").iterdir()) == [tmp_path / "lock.token" / lock.FREE] != held


def test_what_is_left_by_an_error_inside_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        with pytest.raises(KeyError), lock.alone(tmp_path / "lock"):
            raise KeyError


def test_another_error_is_no_missing_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"), lock.alone(tmp_path / "lock"):
        pass
