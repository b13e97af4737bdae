"""Readers of the same shards side by side, each a process (tests/read_epochs.py)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.commands import forked
from tests.slurm_cluster import until


def together(
    folder: Path, cache: Path | str, epochs: int, kill: bool = False, readers: int = 4
) -> tuple[float, set[str]]:
    """CPU-seconds of all, and what they say of their epochs; `kill`: one of them is killed and begins anew."""
    with tempfile.TemporaryDirectory() as place:

        def said(reader: str) -> Path:
            return Path(place) / reader

        def start(seed: int, reader: str):
            words = ["-m", "tests.read_epochs", str(folder), str(seed), str(epochs), str(cache)]
            said(reader).touch()
            return forked(words, said(reader), said("errors"))

        crew = [start(seed, f"reader-{seed}") for seed in range(readers)]
        if kill:
            until(lambda: said("reader-0").read_text() or not crew[0].is_alive())
            crew[0].kill()
            crew[0].join()
            crew[0] = start(0, "reader-0-again")
        for reader in crew:
            reader.join()
        lines = [line for path in Path(place).glob("reader-*") for line in path.read_text().splitlines()]
    said_of_epochs = {line.partition(": ")[2] for line in lines if line.startswith("epoch")}
    return sum(float(line.split()[1]) for line in lines if line.startswith("cpu")), said_of_epochs
