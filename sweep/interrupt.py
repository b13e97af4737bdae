"""Requests to stop: the training finishes its current steps, saves itself and ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """A flag: whether a stop was requested."""

    def __init__(self) -> None:
        self.requested = False

    def request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:  # second Ctrl-C: at once; a checkpoint is on disk
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP into a request to stop, instead of dying in the middle of a step.

    SIGUSR1 is a batch system's warning that the time limit is near, SIGHUP a terminal that was closed.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may handle signals
        return
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored under nohup
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop.request) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
