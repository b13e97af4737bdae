"""What a result says of the machine and the code it came from."""

from __future__ import annotations

import shutil
import subprocess
import sys

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
