"""What runs in a fork of the process that has loaded other people's code: a module that loads none of ours before."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from pathlib import Path


def run(command: list[str], environment: dict[str, str], here: Path, leads: bool, *said: Path) -> None:
    """In the fork: as a new Python would be started there; `leads`: in a session of its own."""
    if leads:
        os.setsid()
    multiprocessing.set_start_method(None, force=True)  # the platform's, not that of this fork
    signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as in the background of a shell
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # or under nohup
    for number, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(here)
    flag, program, *words = command
    sys.argv = [flag, *words]
    if flag == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})
