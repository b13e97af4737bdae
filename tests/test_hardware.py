"""What a result says of the machine and the code it came from."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from sweep import hardware
from tests.test_house import ROOT


def commit_of(folder) -> str:
    code = "from sweep.hardware import commit; print(commit())"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout[
        :-1
    ]


def test_a_copy_without_its_git_folder_says_the_commit_that_was_noted_beside_it(tmp_path):
    for name in ("sweep", "models"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert commit_of(tmp_path) == ""
    (tmp_path / "COMMIT").write_text("abc1234-dirty\n")
    assert commit_of(tmp_path) == "abc1234-dirty"


@pytest.mark.parametrize(
    ("said", "visible", "expected"),
    [
        ("143771 MiB\n81559 MiB\n", "0,1", 81559 << 20),
        ("[N/A]\n", "0", 0),
        ("", "", 0),
        ("81559 MiB\n", "MIG-1234", 0),  # the driver tells the memory of the whole card
    ],
)
def test_the_memory_of_the_smallest_gpu_counts_and_one_that_is_not_told_is_none(monkeypatch, said, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(hardware, "_asked", lambda field: said)
    assert hardware.gpu_memory() == expected
