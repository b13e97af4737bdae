"""Readers of the same shards side by side, each a process (tests/read_epochs.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def together(
    folder: Path, cache: Path | str, epochs: int, kill: bool = False, readers: int = 4
) -> tuple[float, set[str]]:
    """CPU-seconds of all, and what they say of their epochs; `kill`: one of them is killed and begins anew."""

    def start(seed: int) -> subprocess.Popen[str]:
        words = ["-m", "tests.read_epochs", str(folder), str(seed), str(epochs), str(cache)]
        return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    crew = [start(seed) for seed in range(readers)]
    if kill:
        assert crew[0].stdout
        crew[0].stdout.readline()
        crew[0].kill()
        crew[0].wait()
        crew[0] = start(0)
    lines = [line for reader in crew for line in reader.communicate()[0].splitlines()]
    said = {line.partition(": ")[2] for line in lines if line.startswith("epoch")}
    return sum(float(line.split()[1]) for line in lines if line.startswith("cpu")), said
