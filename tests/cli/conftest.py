"""A folder with a small experiment in it, and the command `lottery`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lottery import cli
from sweep.graph.home import open_home
from tests import synthetic

SMALL = """
model: {name: mobilenet_v2_small, width: 0.35}
data: {name: digits}
recipe: {epochs: 4, batch: 8}
prune: {quantiles: [0.5, 0.9], rewind: [0, 2ep]}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder with the experiment file small.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def home(here):
    """The results folder of small.yaml, with nothing done yet."""
    experiment = synthetic.experiment()
    return open_home(experiment, here / "results" / experiment.name)


@pytest.fixture
def lottery(monkeypatch, capsys):
    """Runs the command in this process: its status and what it said."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lottery", *words])
        capsys.readouterr()
        status = cli.main()
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def unfinished(home):
    synthetic.epochs(synthetic.finish(home, "dense-seed0", 0.75), 4)
    for epoch in (0, 2, None):
        synthetic.write_snapshot(home, synthetic.network().initial(1), epoch)
    synthetic.epochs(synthetic.finish(home, "ticket-q0.5-k0-seed0", 0.7, density=0.5, kept=1, prunable=2), 4)
    synthetic.epochs(synthetic.fail(home, "ticket-q0.9-k0-seed0", "loss is nan"), 1)
    synthetic.epochs(home.folder_of("ticket-q0.5-k2ep-seed0"), 3)
    (home.folder_of("ticket-q0.5-k2ep-seed0") / "checkpoint.h5").touch()
    return home


@pytest.fixture
def weighed(home):
    """A final snapshot, and its weights."""
    weights = synthetic.network().initial(1)
    synthetic.write_snapshot(home, weights, None)
    return home, weights


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "lottery", *words], capture_output=True, text=True, check=False)
