"""Several trainings on one GPU: the same results, and the service they share comes and goes with them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from sweep import files, hardware
from sweep.errors import Refused
from sweep.graph.state import device_seconds
from sweep.mps import PLACES, shared_gpus
from sweep.sharing import counted
from tests.commands import csv_of, lottery, started, trainings
from tests.slurm_cluster import until
from tests.work.test_sweep import workers_of


@pytest.mark.tensorflow
def test_side_by_side_results_are_the_same_to_the_bit_and_say_so_also_where_a_worker_is_killed_in_an_array_element(
    undisturbed, tiny_file, trained, tmp_path, monkeypatch
):
    """And what each had of the GPU is what it took over how many there were; a name is all of a GPU that it needs."""
    lottery("masks", tiny_file, "--results", trained)
    tickets = [path.parent.name for path in trainings(undisturbed, "ticket-*/result.json")]
    words = ("train", tiny_file, *tickets, "--per-gpu", 2, "--restarts", 3, "--results", trained)
    gpu = f"GPU-{os.getpid()}-{tmp_path.name}"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
    with counted([gpu]), started(*words) as process:  # beside a training of another sweep
        until(lambda: len(workers_of(process.pid)) == 2 and trainings(trained, "ticket-*/claim.json"), 60)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    lottery("report", tiny_file, "--results", trained)
    assert csv_of(trained) == csv_of(undisturbed)
    beside = set()
    for path in trainings(trained, "ticket-*/result.json"):
        said, lines = json.loads(path.read_text()), files.read_metrics(path.parent)
        assert said["trainings_per_gpu"] == 2
        beside |= {line["trainings_on_gpu"] for line in lines}
        took = [(line["seconds"] + line["evaluation_seconds"]) / line["trainings_on_gpu"] for line in lines]
        assert said["gpu_seconds"] == pytest.approx(sum(took)) and device_seconds(said) == said["gpu_seconds"]
    assert beside and beside <= {2, 3}


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def gpu(tmp_path, monkeypatch) -> Path:
    """A folder of programs in front of all others, and a driver that says there is a GPU: none is needed to be told
    what would be done with it."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    program(tmp_path / "bin", "nvidia-smi", "echo Some GPU")
    hardware._driver.cache_clear()
    yield tmp_path / "bin"
    hardware._driver.cache_clear()


def test_the_service_has_folders_of_its_own_and_is_gone_afterwards(gpu, tmp_path):
    log = tmp_path / "log"
    program(gpu, "nvidia-cuda-mps-control", f"""
if [ "$1" = -d ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY" >> {log}; exit 0; fi
read words; echo "$words ${{CUDA_MPS_PIPE_DIRECTORY:-nowhere}}" >> {log}; [ "$words" = quit ]""")  # fmt: skip
    with shared_gpus(3):
        place = Path(os.environ[PLACES[0]])
        assert place.is_dir() and Path(os.environ[PLACES[1]]).is_dir()
    assert log.read_text().splitlines() == ["get_server_list nowhere", f"start {place}", f"quit {place}"]
    assert not place.exists() and not set(PLACES) & set(os.environ)


def test_a_service_that_runs_already_is_used_and_left_alone(gpu, tmp_path):
    log = tmp_path / "log"
    program(gpu, "nvidia-cuda-mps-control", f'read words; echo "$words" >> {log}')
    with shared_gpus(2):
        assert not set(PLACES) & set(os.environ)
    assert log.read_text().split() == ["get_server_list"]


def test_mps_that_cannot_be_started_is_refused_in_one_line(gpu):
    with pytest.raises(Refused, match="MPS, and nvidia-cuda-mps-control is not installed"), shared_gpus(2):
        pass
    program(gpu, "nvidia-cuda-mps-control", "echo no permission >&2; exit 1")
    with pytest.raises(Refused, match=r"MPS does not start \(no permission\)"), shared_gpus(2):
        pass
    assert not set(PLACES) & set(os.environ)
    with shared_gpus(1):  # one training needs nothing
        pass
