"""A user sees our lines and errors, not what TensorFlow says when it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TENSORFLOW = """
import os
os.write(2, b"I0000 00:00:1 port.cc:153] oneDNN custom operations are on.\\n")
os.write(2, b"libcuda: something is really wrong\\n")
raise ImportError("cannot load")
"""


def loaded(path="", **environment: str) -> tuple[int, str]:
    """Return the exit status of a process that loads `sweep`, then TensorFlow, and what it wrote to standard error."""
    variables = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | environment
    code = f"import sys; sys.path[:0] = {[str(path)] if path else []}; import sweep, tensorflow"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    return ended.returncode, ended.stderr


@pytest.mark.tensorflow
def test_tensorflow_is_loaded_without_a_line():
    assert loaded() == (0, "")


def test_whatever_else_is_written_meanwhile_comes_out(tmp_path):
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    status, said = loaded(tmp_path)
    assert status == 1 and "oneDNN" not in said
    assert said.startswith("libcuda: something is really wrong\n") and said.endswith("ImportError: cannot load\n")


def test_who_sets_the_log_level_sees_everything(tmp_path):
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    assert "oneDNN" in loaded(tmp_path, TF_CPP_MIN_LOG_LEVEL="0")[1]
