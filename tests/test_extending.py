"""The examples of docs/extending.md, applied to a copy of the code as a reader would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import lottery
from tests.test_house import ROOT

BLOCK = re.compile(r"```(?:python|yaml)\n# (?P<place>.*?)\n(?P<text>.*?)```", re.DOTALL)


def applied(copy: Path) -> list[str]:
    """Apply every block of the page to a copy of the code; the files that were written or changed, in order."""
    touched = []
    for block in BLOCK.finditer((ROOT / "docs" / "extending.md").read_text()):
        place, text = block["place"], block["text"]
        if place.startswith("new file "):
            name = place.removeprefix("new file ")
            (copy / name).write_text(text)
        else:
            name, where = place.split(", ")
            before = (copy / name).read_text()
            if where == "imports":
                after = before.replace("from models.network", f"{text}from models.network", 1)
            elif where == "functions":
                after = before.replace("\n\ndef ", f"\n\n{text}\n\ndef ", 1)
            else:  # the first entry of a table
                after = re.sub(rf"^({where}\b[^\n]*= {{)\n?", lambda found, new=text: f"{found[1]}\n{new}", before,
                               count=1, flags=re.MULTILINE)  # fmt: skip
            assert after != before, place
            (copy / name).write_text(after)
        touched.append(name)
    return touched


@pytest.mark.tensorflow
def test_each_part_that_can_be_added_takes_one_file_or_two(tmp_path, monkeypatch):
    for package in ("models", "sweep", "slurm", "lottery"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert applied(tmp_path) == [
        "models/two_layers.py", "models/__init__.py", "models/__init__.py",
        "sweep/data/stripes.py", "sweep/experiment/sources.py",
        "sweep/pruning/scores.py", "sweep/pruning/scores.py",
        "sweep/pruning/allocations.py", "sweep/pruning/allocations.py",
        "sweep/experiment/controls.py", "experiment.yaml", "hosts.py",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)  # `python -m` looks there first
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    lottery("sweep", "experiment.yaml", env=env)
    for ticket in (tmp_path / "results" / "trainings").glob("ticket-*"):
        shutil.rmtree(ticket)
    hosts = (tmp_path / "hosts.py").read_text().replace('("ssh", "node1"), ("ssh", "node2")', '("env",), ("env",)')
    (tmp_path / "hosts.py").write_text(hosts)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    command = [sys.executable, "hosts.py", "experiment.yaml"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    named = {path.parent.name.rpartition("-")[0] for path in tmp_path.glob("results/trainings/*/result.json")}
    assert named == {
        "dense-seed0", "ticket-relative-q0.5-k0-seed0", "ticket-magnitude-but_the_first-q0.5-k0-seed0",
        "new_start-relative-q0.5-k0-seed0", "new_start-magnitude-but_the_first-q0.5-k0-seed0",
    }, done.stdout + done.stderr  # fmt: skip
    wrong = lottery("plan", tmp_path / "experiment.yaml", "data.name=stripe", env=env, check=2)
    assert "stripes" in wrong.stderr  # the name is known where a wrong one is corrected
