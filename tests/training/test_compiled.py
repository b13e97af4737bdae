"""What XLA compiled is kept for the other tasks of a sweep."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweep import hardware
from sweep.training import compiled
from tests.sweeping import python

TRAIN = """
import sys
from pathlib import Path
from sweep.training import compiled
compiled.gpu_name = lambda: "a GPU"  # this process compiles for the CPU; the folder is kept the same way
compiled.keep_compiled(Path(sys.argv[1]))
from sweep.data import open_dataset
from sweep.devices import prepare
from sweep.training.program import Program
from sweep.training.schedule import epoch_of
from tests.conftest import tiny
experiment = tiny(xla="on", layers="plain")
program = Program(experiment, open_dataset(experiment.data), prepare())
if sys.argv[2] == "trains":  # without compiling ahead, in another order, after other work
    import tensorflow as tf
    tf.function(lambda x: x + 1)(tf.constant(1.0))
    program.load(program.network.initial(0))
    program.evaluate(program.dataset.test)
    program.load(program.network.initial(0))
    program.run(epoch_of(experiment.recipe, 0, 0, len(program.dataset.train), program.dataset.image_size), 0, 1)
else:
    compiled.compile_all(program)
(folder,) = Path(sys.argv[1]).iterdir()
before = len(list(folder.iterdir()))
epoch = epoch_of(experiment.recipe, 0, 1, len(program.dataset.train), program.dataset.image_size)
program.run(epoch, 0, 3)  # other lengths and another epoch are data, not other programs
program.run(epoch, 1, 3)
assert len(list(folder.iterdir())) == before
print(program.weights().kernels.tobytes().hex()[:64])
"""


@pytest.mark.tensorflow
def test_many_processes_fill_one_folder_and_a_later_one_compiles_nothing(tmp_path):
    def run(how: str) -> str:
        return python("-c", TRAIN, tmp_path / "compiled", how).stdout

    with ThreadPoolExecutor() as together:
        answers = set(together.map(run, ["compiles ahead"] * 2))
    assert len(answers) == 1
    (folder,) = (tmp_path / "compiled").iterdir()
    assert folder.name.startswith("a-GPU-tensorflow-2-")
    entries = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert entries and all(name.endswith(".pb") for name in entries)  # nothing half written is left
    assert run("trains") in answers
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == entries


def test_nothing_is_kept_where_there_is_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    compiled.keep_compiled(tmp_path / "compiled")
    assert "TF_XLA_FLAGS" not in os.environ and not (tmp_path / "compiled").exists()


def test_the_folder_a_user_chose_is_left_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "gpu_name", lambda: "a GPU")
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=mine")
    compiled.keep_compiled(tmp_path)
    assert os.environ["TF_XLA_FLAGS"] == "--tf_xla_persistent_cache_directory=mine"


def test_other_flags_of_a_user_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "gpu_name", lambda: "a GPU")
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=1")
    compiled.keep_compiled(tmp_path)
    assert os.environ["TF_XLA_FLAGS"].startswith("--tf_xla_auto_jit=1 --tf_xla_persistent_cache_directory=")


@pytest.mark.parametrize(("answer", "name"), [("echo NVIDIA H200; echo NVIDIA H200", "NVIDIA H200"), ("exit 9", "")])
def test_the_driver_tells_the_name_of_the_gpu(answer, name, monkeypatch, tmp_path):
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    hardware._driver.cache_clear()
    assert hardware.gpu_name() == name
    hardware._driver.cache_clear()
