"""Record the last screen of a command as an SVG picture: python benchmarks/terminal.py PICTURE.svg COMMAND …

The command really runs, in a terminal of 100 × 24 of its own; nothing of what it prints is changed.
"""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 100, 24


def output_of(command: list[str]) -> str:
    """Return all that a command prints to its terminal, colours included."""
    os.environ |= {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    parts: list[bytes] = []

    def read(fd: int) -> bytes:
        parts.append(os.read(fd, 65536))
        return parts[-1]

    pty.spawn(command, read)
    return b"".join(parts).decode(errors="replace").replace("\r\n", "\n")


def last_screen(said: str) -> list[str]:
    """Return the last lines as a terminal would show them: what a progress bar wrote over itself is left out."""
    drawn = [line.rpartition("\r")[2] for line in re.sub(r"\x1b\[[0-9;?]*[ABGHJKhl]", "\r", said).split("\n")]
    return [line for line in drawn if line.strip() or not line][-(LINES - 1) :]


def main(picture: str, *command: str) -> None:
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(f"$ {' '.join(command)}\n")
    for line in last_screen(output_of(list(command))):
        console.print(Text.from_ansi(line))
    Path(picture).write_text(console.export_svg(title=" ".join(command[:2])))


if __name__ == "__main__":
    main(*sys.argv[1:])
