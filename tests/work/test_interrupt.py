"""Being asked to stop."""

from __future__ import annotations

import os
import signal

import pytest

from sweep.interrupt import stoppable


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_asks_for_a_stop_and_afterwards_means_what_it_did(number):
    inherited = signal.signal(number, signal.default_int_handler)  # under nohup SIGHUP is ignored, here it must not be
    try:
        with stoppable() as stop:
            assert not stop.requested
            os.kill(os.getpid(), number)
            assert stop.requested
        assert signal.getsignal(number) == signal.default_int_handler
    finally:
        signal.signal(number, inherited)


def test_under_nohup_a_closed_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_person_who_asks_twice_does_not_wait():
    with pytest.raises(KeyboardInterrupt), stoppable():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
