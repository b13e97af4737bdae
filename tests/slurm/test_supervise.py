"""The supervisor of a job: which end means another turn. Real processes and signals; what SLURM says is made up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# without a pause between the tries of a requeue
SUPERVISE = "import sys, slurm.supervise as s; s.PAUSE_SECONDS = 0; sys.exit(s.supervise(sys.argv[1:]))"


@pytest.fixture
def cluster(tmp_path) -> dict[str, str]:
    """Programs that stand for SLURM's: squeue says what SQUEUE holds, scontrol notes down what it is asked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "squeue": 'echo "${SQUEUE-RUNNING None}"',
        "scontrol": f'echo "$*" >> {tmp_path}/asked; test "$(wc -l < {tmp_path}/asked)" -gt "${{REFUSED-0}}"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | own


def asked(tmp_path: Path) -> list[str]:
    path = tmp_path / "asked"
    return path.read_text().splitlines() if path.exists() else []


def supervised(code: str, cluster: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SUPERVISE, "bash", "-c", code]
    return subprocess.Popen(command, env=cluster, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(
    ("status", "again"),
    [(0, False), (1, False), (2, False), (127, False), (130, False), (143, False), (137, True), (139, True),
     (255, False)],
)  # fmt: skip
def test_only_what_was_killed_is_requeued_and_alone(status, again, cluster, tmp_path):
    """130 and 143 without having been told: a person stopped it."""
    assert supervised(f"exit {status}", cluster).wait(300) == status
    assert asked(tmp_path) == (["requeue 17_3"] if again else [])


def test_killed_by_a_signal_is_known_by_the_shell_s_number(cluster, tmp_path):
    assert supervised("kill -9 $$", cluster).wait(300) == 137
    assert asked(tmp_path) == ["requeue 17_3"]


SAVING = "trap 'sleep 0.3; echo saved; exit {status}' {signal}; echo ready; while :; do sleep 0.05; done"


def told(process: subprocess.Popen[str], number: signal.Signals) -> list[str]:
    """What it says after it was sent a signal, once it was ready."""
    assert process.stdout
    while process.stdout.readline() != "ready\n":
        pass
    process.send_signal(number)
    return process.communicate(timeout=300)[0].splitlines()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_warned_the_work_saves_itself_and_gets_another_turn(number, cluster, tmp_path):
    process = supervised(SAVING.format(status=130, signal="USR1"), cluster)
    assert told(process, number) == ["saved"] and process.returncode == 130
    assert asked(tmp_path) == ["requeue 17_3"]


def test_warned_while_it_cannot_save_itself_it_gets_another_turn_and_the_log_says_why(cluster, tmp_path):
    process = supervised("echo ready; while :; do sleep 0.05; done", cluster)
    (said,) = told(process, signal.SIGUSR1)
    assert said.startswith("warned while it could not save itself")
    assert process.returncode == 138 and asked(tmp_path) == ["requeue 17_3"]


@pytest.mark.parametrize(
    ("seen", "again"),
    [("RUNNING None", True), ("COMPLETING TimeLimit", True), ("COMPLETING None", False), ("CANCELLED None", False),
     ("PENDING BeginTime", False), ("", True)],
)  # fmt: skip
def test_ended_by_slurm_it_asks_for_a_turn_only_where_slurm_has_not_decided(seen, again, cluster, tmp_path):
    process = supervised(SAVING.format(status=143, signal="TERM"), cluster | {"SQUEUE": seen})
    assert told(process, signal.SIGTERM) == ["saved"] and process.returncode == 143
    assert bool(asked(tmp_path)) == again


def test_a_warning_that_comes_before_the_work_is_passed_on(cluster, tmp_path):
    """Sent while Python starts: it is not lost, and does not end the job."""
    ignoring = ["bash", "-c", 'trap "" USR1 USR2; exec "$0" "$@"', sys.executable, "-c",
                f"import os; os.kill(os.getpid(), 10); {SUPERVISE}"]  # fmt: skip
    process = subprocess.Popen([*ignoring, "bash", "-c", "sleep 0.2; exit 0"], env=cluster)
    assert process.wait(300) == 0 and asked(tmp_path) == []


def test_a_requeue_that_is_refused_for_a_while_is_asked_for_again(cluster, tmp_path):
    process = supervised("kill -9 $$", cluster | {"REFUSED": "3"})
    assert process.wait(300) == 137 and asked(tmp_path) == ["requeue 17_3"] * 4


def test_refused_for_good_it_gives_up_with_a_line(cluster, tmp_path):
    process = supervised("kill -9 $$", cluster | {"REFUSED": "99"})
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 137 and len(asked(tmp_path)) == 6
    assert said.strip().endswith("job 17_3: SLURM refuses another turn; lottery retry submits it again")


def test_outside_a_job_slurm_is_not_asked(cluster, tmp_path):
    lone = {name: value for name, value in cluster.items() if not name.startswith("SLURM_")}
    assert supervised("kill -9 $$", lone).wait(300) == 137 and asked(tmp_path) == []


def test_a_job_that_is_no_array_is_requeued_by_its_own_number(cluster, tmp_path):
    single = {name: value for name, value in cluster.items() if not name.startswith("SLURM_")} | {"SLURM_JOB_ID": "21"}
    assert supervised("kill -9 $$", single).wait(300) == 137 and asked(tmp_path) == ["requeue 21"]
