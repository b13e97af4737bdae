"""What SLURM's answers mean, where a real cluster would take long to give them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from slurm import queue
from slurm.queue import Entry, Silent
from sweep.errors import Refused


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program in the place of one of SLURM's: it repeats a text and ends with a status."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(name: str, says: str, status: int = 0, to: str = "") -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\ncat {to} <<'EOF'\n{says}\nEOF\nexit {status}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return path

    return put


def test_a_machine_without_a_cluster_is_said_in_plain_words(program):
    program("sbatch", "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host", 1)
    with pytest.raises(Refused, match=r"^sbatch: no cluster is configured on this machine; expected a login node$"):
        queue.output(["sbatch"])


def test_one_line_can_stand_for_many_waiting_elements(program):
    program("squeue", "17_[0-2,5%4]|PENDING|Priority|\n17_3|RUNNING|None|node01\n99_1|RUNNING|None|node02")
    program("sacct", "")
    seen = queue.ask(["17_0", "17_1", "17_3", "17_5"])
    assert {job: one.state for job, one in seen.items()} == {
        "17_0": "PENDING", "17_1": "PENDING", "17_3": "RUNNING", "17_5": "PENDING",
    }  # fmt: skip
    assert seen["17_3"] == Entry("17_3", "RUNNING", "None", "node01")


def test_accounting_is_asked_about_what_squeue_has_forgotten_and_never_overrules_it(program):
    program("squeue", "17_0|PENDING|BeginTime|")
    program("sacct", "17_0|NODE_FAIL|node01\n17_1|CANCELLED by 0|node01\n17_2|RUNNING|node01\n18|COMPLETED|node01")
    seen = queue.ask(["17_0", "17_1", "17_2"])
    assert {job: one.state for job, one in seen.items()} == {"17_0": "PENDING", "17_1": "CANCELLED"}
    assert seen["17_0"].live and not seen["17_1"].live


def test_without_accounting_what_squeue_has_forgotten_is_unknown(program):
    program("squeue", "17_0|RUNNING|None|node01")
    program("sacct", "Slurm accounting storage is disabled", 1, ">&2")
    assert set(queue.ask(["17_0", "17_1"])) == {"17_0"}


def test_a_cluster_that_cannot_be_reached_is_silent_and_not_an_error(program):
    said = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    program("squeue", said, 1, ">&2")
    with pytest.raises(Silent, match="Unable to contact"):
        queue.ask(["17"])


def test_nothing_is_asked_where_nothing_was_submitted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert queue.ask([]) == {}
    with pytest.raises(Refused, match="squeue: no such program here"):
        queue.ask(["17"])


def test_a_job_does_not_hand_its_own_settings_on(program, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "4000")
    monkeypatch.setenv("SLURM_CONF", "/somewhere")
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    program("sbatch", "").write_text("#!/bin/sh\nenv\n")
    told = [queue.output(["sbatch"])]
    with queue.without_own_job():  # where submitit calls sbatch
        told.append(subprocess.run(["sbatch"], capture_output=True, text=True, check=True).stdout)
    for each in told:
        assert "SLURM_CONF=/somewhere" in each and "SLURM_MEM_PER_NODE" not in each
        assert "SBATCH_ACCOUNT=mine" in each, "these are the user's own"
    assert os.environ["SLURM_MEM_PER_NODE"] == "4000"
