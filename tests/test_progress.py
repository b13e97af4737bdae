"""Progress in a log: plain lines now and then, with the time that is left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.table import Table

from sweep import progress
from sweep.progress import Work, duration, rendered


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (7.25, "7.2 s"),
        (59.9, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (75, "1 min 15 s"),
        (3599.9, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (3 * 3600 + 120, "3 h 02 min"),
        (100 * 3600, "100 h 00 min"),
    ],
)
def test_a_duration_is_said_in_the_units_a_person_would_use(seconds, text):
    assert duration(seconds) == text


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves: `clock(5)` lets five seconds pass."""
    now = [1000.0]

    def passes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return passes


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)


def test_what_happens_once_does_not_count_as_speed(clock, often, capsys):
    with Work("training", 10) as work:
        clock(500)  # compiling, once
        work.at(2)
        assert capsys.readouterr().out == ""
        clock(4)
        work.at(4, "epoch 1/3")
    assert capsys.readouterr().out == "training: 40%, 12.0 s left  epoch 1/3\n"


def test_what_was_done_before_does_not_count_as_speed(clock, often, capsys):
    with Work("resumed", 100, done=80) as work:
        for done in (80, 85, 90):
            work.at(done)
            clock(5)
    assert capsys.readouterr().out.startswith("resumed: 90%, 10.0 s left")


def test_the_time_left_can_be_reckoned_anew(clock, often, capsys):
    with Work("sweep", 20) as work:
        for done in (1, 2):  # one training, 100 s an epoch
            work.at(done)
            clock(100)
        work.start_clock()
        for done in (4, 6):  # two at a time, 50 s an epoch
            clock(50)
            work.at(done)
    assert capsys.readouterr().out.splitlines() == ["sweep: 10%, 30 min 00 s left  ", "sweep: 30%, 5 min 50 s left  "]


def test_at_the_end_nothing_is_left(clock, often, capsys):
    with Work("training", 4) as work:
        clock(3)
        work.at(4)
    assert capsys.readouterr().out.startswith("training: 100%, 0.0 s left")


def test_lines_are_as_far_apart_as_a_log_can_bear(clock, capsys):
    with Work("training", 100) as work:
        for done in range(100):
            work.at(done)
            clock(1)
    assert len(capsys.readouterr().out.splitlines()) == 99 // progress.LINE_SECONDS


def test_a_report_without_progress_says_nothing(clock, often, capsys):
    with Work("training", 4, done=1) as work:
        clock(60)
        work.at(1)
    assert capsys.readouterr().out == ""


def test_quiet_work_says_nothing(clock, often, capsys):
    with Work("training", 4, quiet=True) as work:
        for done in range(4):
            work.at(done)
            clock(60)
    assert capsys.readouterr().out == ""


def test_a_table_wider_than_the_terminal_becomes_lines_and_no_word_is_broken(monkeypatch):
    monkeypatch.setattr(progress.console, "width", 30)
    wide, narrow = Table("name", "count", "mean"), Table("name", "note")
    wide.add_row("block_10_depthwise/kernel", "1,296", "0.3721")
    narrow.add_row("stem/kernel", "a few words more")
    assert rendered(wide) == "block_10_depthwise/kernel: count 1,296, mean 0.3721\n"
    assert "stem/kernel" in rendered(narrow) and all(len(line) <= 30 for line in rendered(narrow).splitlines())
