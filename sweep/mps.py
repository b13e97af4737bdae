"""NVIDIA's Multi-Process Service (MPS): processes compute on one GPU at the same time instead of taking turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.errors import Refused
from sweep.hardware import gpu_name

CONTROL = "nvidia-cuda-mps-control"
PLACES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")


@contextmanager
def shared_gpus(trainings_per_gpu: int) -> Iterator[None]:
    """Let processes started from the body share their GPUs through MPS.

    A service that runs already is used; else one is started with its own folders, and stopped at the end. Without a GPU
    nothing is done.
    """
    if trainings_per_gpu == 1 or not gpu_name():
        yield
        return
    if shutil.which(CONTROL) is None:
        raise Refused(f"{trainings_per_gpu} trainings on a GPU need NVIDIA's MPS, and {CONTROL} is not installed here; "
                      "expected it, or one training per GPU")  # fmt: skip
    if _run([CONTROL], "get_server_list") == "":
        yield
        return
    before = {name: os.environ.get(name) for name in PLACES}
    # a short path on this machine, because it will contain sockets
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        for name in PLACES:
            place = Path(folder) / name
            place.mkdir()
            os.environ[name] = str(place)
        try:
            if why := _run([CONTROL, "-d"]):
                raise Refused(f"{trainings_per_gpu} trainings on a GPU: MPS does not start ({why}); expected one "
                              "training per GPU, or a node that allows it")  # fmt: skip
            try:
                yield
            finally:
                _run([CONTROL], "quit")
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _run(command: list[str], words: str = "") -> str:
    """Run a command of MPS and return why it failed, or ""."""
    # with some GPUs hidden the service would number them anew, and clients would use the wrong ones
    all_gpus = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            command, input=words, env=all_gpus, capture_output=True, text=True, check=False, timeout=60
        )
    except subprocess.TimeoutExpired:
        return "no answer within a minute"
    return "" if done.returncode == 0 else " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
