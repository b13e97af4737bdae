"""What XLA compiled is kept for the other tasks of a sweep."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweep import hardware
from sweep.training import compiled
from tests.commands import python

TRAIN = """
import sys
from pathlib import Path
from sweep.training import compiled
compiled.gpu_name = lambda: "a GPU"  # this process compiles for the CPU; the folder is kept the same way
folder = compiled.keep_compiled(Path(sys.argv[1]))
from sweep.data import open_dataset
from sweep.devices import prepare
from sweep.training.program import Program
from sweep.training.schedule import epoch_of
from models import NETWORKS
from tests.conftest import smaller
from tests.networks import one_convolution
NETWORKS["one_convolution"] = one_convolution
experiment = smaller(xla="on", layers="plain")
program = Program(experiment, open_dataset(experiment.data), prepare())
if sys.argv[2] == "trains":  # without compiling ahead, in another order, after other work
    import tensorflow as tf
    tf.function(lambda x: x + 1)(tf.constant(1.0))
    program.load(program.network.initial(0))
    program.evaluation.metrics(program.dataset.test)
    program.load(program.network.initial(0))
    program.run(epoch_of(experiment.recipe, 0, 0, len(program.dataset.train), program.dataset.image_size), 0, 1)
else:
    compiled.compile_once(program, folder)
program.load(program.network.initial(0))
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
        return python("-c", TRAIN, tmp_path, how).stdout

    with ThreadPoolExecutor() as together:
        answers = set(together.map(run, ["compiles ahead"] * 2))
    assert len(answers) == 1
    (folder,) = (tmp_path / "compiled").glob("a-GPU-tensorflow-2-*/programs")
    entries = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    kinds = Counter(name.rpartition(".")[2] for name in entries)  # nothing half written is left
    assert set(kinds) == {"pb", "done", "compiling"} and kinds["done"] == 1
    assert run("trains") in answers
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == entries


class Counted:
    """A program that counts how often it is compiled, in a file that processes share."""

    data = recipe = images = "the same"

    def __init__(self, path):
        self.path, self.network = path, self

    def initial(self, seed):
        return None

    def load(self, weights):
        self.path.write_text(f"{self.path.read_text() if self.path.exists() else ''}begin ")

    def calls(self):
        time.sleep(0.3)
        self.path.write_text(f"{self.path.read_text()}end ")
        (self.path.parent / "programs" / "a.pb").touch()
        return ()

    def __str__(self):
        return "a program"


def test_one_compiles_while_the_others_wait(tmp_path):
    log = tmp_path / "log"
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.starmap(compiled.compile_once, [(Counted(log), tmp_path / "programs")] * 3)
    assert log.read_text() == "begin end "
    other = Counted(log)
    other.recipe = "another"
    compiled.compile_once(other, tmp_path / "programs")
    assert log.read_text() == "begin end begin end "
    (tmp_path / "programs" / "a.pb").unlink()  # tidied away
    compiled.compile_once(other, tmp_path / "programs")
    assert log.read_text() == "begin end begin end begin end "


def test_code_of_layers_step_and_augmentation_decides_whether_a_program_was_compiled(monkeypatch):
    read = set()
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.add(path.name) or b"")
    compiled._digest(Counted(None))
    assert read >= {"layers.py", "step.py", "augment.py", "policies.py"}


def test_nothing_is_kept_where_there_is_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    assert compiled.keep_compiled(tmp_path) is None
    assert "TF_XLA_FLAGS" not in os.environ and not list(tmp_path.iterdir())


VARIABLES = {"TF_XLA_FLAGS": "--tf_xla_persistent_cache_directory", "XLA_FLAGS": compiled.CHOICES[1]}


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_folder_a_user_chose_is_left_as_it_is(variable, monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "gpu_name", lambda: "a GPU")
    for each, flag in VARIABLES.items():
        monkeypatch.setenv(each, f"{flag}=mine" if each == variable else "")
    compiled.keep_compiled(tmp_path)
    assert os.environ[variable] == f"{VARIABLES[variable]}=mine"


@pytest.mark.parametrize(("variable", "other"), [("TF_XLA_FLAGS", "--tf_xla_auto_jit=1"), ("XLA_FLAGS", "--xla_a=b")])
def test_other_flags_of_a_user_are_kept(variable, other, monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "gpu_name", lambda: "a GPU")
    for each in VARIABLES:
        monkeypatch.setenv(each, other if each == variable else "")
    compiled.keep_compiled(tmp_path)
    assert os.environ[variable].startswith(f"{other} {VARIABLES[variable]}={tmp_path}")


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
