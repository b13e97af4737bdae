"""Running sweeps as a user does, by the command."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from slurm.status import standing_of
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from tests.run_in_fork import run
from tests.slurm_cluster import until

ROOT = Path(__file__).parents[1]
LOTTERY = [sys.executable, "-m", "lottery"]
TIME_OUT = 900
STARTING = re.compile(r"WARNING: All log messages before absl|[IWE]0000 \d\d:\d\d:")


FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["tests.preloaded"])


def lottery(
    *words: object, check: int | None = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command; with an environment of its own, in a new process."""
    if env is None:
        return python("-m", "lottery", *words, check=check)
    command = [*LOTTERY, *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIME_OUT, check=False)
    done.stderr = ours(done.stderr)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def python(flag: str, program: str, *words: object, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE WORDS` or `python -c CODE WORDS`, in a process that has loaded TensorFlow already."""
    command = [sys.executable, flag, program, *map(str, words)]
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        process = forked(command[1:], *said)
        process.join(TIME_OUT)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(command, TIME_OUT)
        done = subprocess.CompletedProcess(command, process.exitcode, said[0].read_text(), ours(said[1].read_text()))
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def forked(command: list[str], *said: Path, leads: bool = False) -> Any:
    """`python COMMAND` in a process that has loaded TensorFlow already, its output in files; `leads`: as the first of
    a session and group of its own."""
    process = FORKING.Process(target=run, args=(command, dict(os.environ), Path.cwd(), leads, *said))
    with chdir(ROOT):  # where the server starts, `tests` is this folder; tf2onnx installs a `tests` of its own
        process.start()
    return process


class Fork:
    """`lottery …` in such a process, in the background: what of Popen the tests use."""

    def __init__(self, words: Sequence[object], folder: Path, leads: bool = False) -> None:
        self.said = folder / "said"
        self.process = forked(["-m", "lottery", *map(str, words)], self.said, self.said, leads=leads)
        self.pid: int = self.process.pid
        until(lambda: not leads or os.getpgid(self.pid) == self.pid)  # there is a group to be killed

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.returncode is None:
            raise TimeoutError(f"process {self.pid} runs after {timeout} s")
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, None]:
        self.wait(timeout)
        return self.said.read_text(), None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()


def ours(stderr: str) -> str:
    """Without what TensorFlow says on x86 while it loads, of oneDNN and of missing GPUs, at any log level."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not STARTING.match(line))


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands draw bars and colours from now on."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


def csv_of(results: Path) -> str:
    (found,) = results.glob("*/report/results.csv")
    return found.read_text()


def status_of(home: Path) -> dict[str, dict[str, Any]]:
    """What `lottery status` says of every training; asked in this process, because tests ask it again and again."""
    return {one.task: asdict(one) for one in standing_of(home_of(home)).tasks}


def home_of(folder: Path) -> Home:
    return Home(folder, experiment_file.load(folder / "experiment.yaml"))


def trainings(results: Path, pattern: str) -> list[Path]:
    """Files in the folders of trainings, such as `ticket-*/claim.json`."""
    return list(results.glob(f"trainings/{pattern}"))


def kill_tree(process: subprocess.Popen[str] | Fork) -> None:
    """The process and all that descend from it, also those that have a session of their own (MPI's ranks)."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process.pid)
        for one in [first, *first.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # gone in the meantime
                one.kill()
    process.wait()


@contextmanager
def started(*words: object, before: Sequence[str] = (), leads: bool = False) -> Iterator[subprocess.Popen[str] | Fork]:
    """`lottery …` in the background, by another program in a new process; `leads`: as the first of a group that can be
    killed. Nothing of it is left afterwards, whatever happens."""
    with tempfile.TemporaryDirectory() as folder:
        if before:
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            process = subprocess.Popen([*before, *LOTTERY, *map(str, words)], **pipes)
        else:
            process = Fork(words, Path(folder), leads)
        try:
            yield process
        finally:
            kill_tree(process)


def listening() -> None:
    """Under nohup SIGHUP is ignored, and in the background of a shell SIGINT; a child inherits that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
