"""Draw the last screen of a command in a terminal of 80 columns as SVG, readable on light and dark pages.

    python docs/images/make_terminal.py docs/images/dry-run.svg lottery dry-run

The command runs for real, in a pseudo-terminal.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROWS, COLUMNS = 24, 80
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14  # of a character, of a row, around the screen, in pixels
STYLE = """
text { font: 14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328; white-space: pre }
rect { fill: #f6f8fa; stroke: #d0d7de }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } rect { fill: #161b22; stroke: #30363d } }
"""


def screen(command: list[str]) -> list[str]:
    """Run a command in a pseudo-terminal and return the rows that are on the screen when it has ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # the other end is closed
        pass
    if process.wait():
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    text = re.sub(r"[^\n]*\n(\x1b\[\?25h)?\r\x1b\[1A\x1b\[2K", "", said.decode().replace("\r\n", "\n"))  # wiped bars
    lines = text.rstrip().split("\n")
    shown = (re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", re.split(r"\r|\x1b\[2K", line)[-1]).rstrip() for line in lines)
    return [f"$ {' '.join(command)}", *shown][-ROWS:]


def drawn(rows: list[str]) -> str:
    """Return rows of text as an SVG picture of a terminal."""
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    lines = [f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * (i + 0.75):g}">{html.escape(row)}</text>'
             for i, row in enumerate(rows)]  # fmt: skip
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
    frame = f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="6"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", frame, *lines, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(screen(sys.argv[2:])))
