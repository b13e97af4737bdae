"""Progress of long work: a bar with the time left on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

LINE_SECONDS = 15.0  # time between plain lines

# On a terminal lines are broken between words; in a file or a pipe they stay whole.
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), markup=False, emoji=False)


def show(table: Table) -> None:
    """Print a table without cutting anything; if it is wider than the terminal, print a line of text per row."""
    for column in table.columns:
        column.no_wrap = not any(" " in str(cell) for cell in column.cells)
    widest = console.options.update(width=10_000)
    if Measurement.get(console, widest, table).minimum <= console.width:
        console.print(table, soft_wrap=False)
        return
    (first, *others), title = table.columns, table.title
    for line in [str(title)] if title else []:
        console.print(line)
    for name, *cells in zip(first.cells, *(column.cells for column in others), strict=True):
        said = (f"{column.header} {cell}" for column, cell in zip(others, cells, strict=True) if cell)
        console.print(f"{name}: {', '.join(said)}")


def rendered(*parts: Table | str) -> str:
    """Return the text that the console shows for tables and lines."""
    with console.capture() as shown:
        for part in parts:
            show(part) if isinstance(part, Table) else console.print(part)
    return shown.get()


class Work:
    """The progress of one piece of work of `total` units, of which `done` are done already."""

    def __init__(self, label: str, total: float, done: float = 0, quiet: bool = False) -> None:
        self.label, self.total, self.done, self.quiet = label, total, done, quiet
        self.began = self.spoke = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("left  {task.fields[note]}"), console=console, transient=True, get_time=time.monotonic,
            disable=quiet or not console.is_terminal,
        )  # fmt: skip
        completed: Any = done  # rich declares int here, and float everywhere else
        self.bar.add_task(label, total=total, completed=completed, note="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def start_clock(self) -> None:
        """Estimate the time left from now on, without what came before, such as compiling."""
        self.began = time.monotonic()

    def one_more(self) -> None:
        """Report one more unit as done."""
        self.at(self.done + 1)

    def say(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        if not self.quiet:
            console.print(line)

    def at(self, done: float, note: str = "", more: str = "") -> None:
        """Report how many units are done; `note` is shown beside the progress, `more` in logs only."""
        self.done, now = done, time.monotonic()
        self.bar.speed_estimate_period = now - self.began  # rich looks back 30 s only, and an epoch may take longer
        self.bar.update(TaskID(0), completed=done, total=self.total, note=note)
        left = self.bar.tasks[0].time_remaining
        if self.bar.disable and not self.quiet and now - self.spoke >= LINE_SECONDS and left is not None:
            self.spoke = now
            print(f"{self.label}: {done / self.total:.0%}, {duration(left)} left  {note}{more}", flush=True)


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(7.25), duration(75), duration(3 * 3600 + 120)
    ('7.2 s', '1 min 15 s', '3 h 02 min')
    """
    seconds = round(seconds, 1)
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"
