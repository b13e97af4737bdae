"""Submission, status, retry and cancel on a real SLURM. Cells sleep where only the cluster's side matters."""

from __future__ import annotations

import dataclasses
import getpass
import json

import pytest

from slurm import arrays, jobs, queue
from sweep.experiment import Cluster
from sweep.experiment import file as experiment_file
from sweep.graph.home import open_home
from tests import synthetic
from tests.commands import home_of, lottery, started, status_of
from tests.conftest import tiny
from tests.sleeping_sweep import SMALL, evenly, ran, sleep_for, sleeping_sweep, submit
from tests.slurm_cluster import until

# ---- many cells


def test_64_cells_on_20_nodes_each_once_on_gpus_of_their_own(slurm, tmp_path):
    cluster = dataclasses.replace(SMALL, gpus_per_cell=2)  # two cells on each of the 20 nodes
    file, home = sleeping_sweep(tmp_path, 0.3, cluster, 10, quantiles=evenly(8), rewind=synthetic.points(*range(8)))
    bound = json.loads(lottery("plan", file, "--json", "--on", "slurm", "--results", home.pool).stdout)[
        "at_least_seconds"
    ]
    submit(file, home)
    until(lambda: len(ran(home)) == 64, 300)
    lines = ran(home)
    assert len({line["cell"] for line in lines}) == 64
    for one in lines:
        for other in lines:
            if one is not other and one["node"] == other["node"]:
                apart = one["ended"] <= other["began"] or other["ended"] <= one["began"]
                assert apart or not set(one["gpus"]) & set(other["gpus"]), (one, other)
    assert all(len(line["gpus"]) == 2 for line in lines)
    assert len({line["node"] for line in lines}) == 20
    assert bound == pytest.approx(0.3 * 8 * sum(10 - k for k in range(8)) / 40)


def test_1000_cells_are_one_array_and_the_cluster_is_asked_few_questions(slurm, tmp_path, monkeypatch):
    cluster = dataclasses.replace(SMALL, options=("--hold",))
    _, home = sleeping_sweep(tmp_path, 1.0, cluster, quantiles=evenly(500))
    told, asked = queue.output, []
    monkeypatch.setattr(queue, "output", lambda command: asked.append(command[0]) or told(command))
    open_home(home.experiment, home.root)
    arrays.submit(home)
    assert len(jobs.own(home)) == 3 and len(asked) <= 12, asked
    asked.clear()
    states = status_of(home.root)
    assert asked == ["squeue"], "however many cells there are"
    assert len(states) == 1001 and sum(row["state"] == "waiting" for row in states.values()) == 1000
    assert "in the queue" in states[synthetic.tickets(home)[0]]["note"]
    assert "cancelled:" in lottery("cancel", home.root).stdout
    until(lambda: not slurm.queue())


def test_more_cells_than_the_largest_array_go_into_several(slurm, tmp_path):
    slurm.set(MaxArraySize="4")
    try:
        file, home = sleeping_sweep(tmp_path, 0.01, quantiles=evenly(5))
        said = submit(file, home).stdout
        assert [line.split(": ")[1] for line in said.splitlines() if line.startswith("job ")] == [
            "masks", "cells, 4 tasks", "cells, 4 tasks", "cells, 2 tasks", "report",
        ]  # fmt: skip
        until(lambda: len(ran(home)) == 10, 120)
        assert len({line["cell"] for line in ran(home)}) == 10
    finally:
        slurm.set(MaxArraySize="1001")


def test_a_user_who_may_not_submit_all_at_once_gets_all_done_all_the_same(slurm, tmp_path):
    """The rest is submitted by the last job, with the real command."""
    slurm.run("sacctmgr", "-i", "modify", "user", getpass.getuser(), "set",
              "MaxSubmitJobs=8")  # fmt: skip
    try:
        file, home = sleeping_sweep(tmp_path, 0.01, quantiles=evenly(5))
        submit(file, home)
        assert len(slurm.queue()) <= 8
        until(lambda: len({line["cell"] for line in ran(home)}) == 10, 180)
        assert len(ran(home)) == 10
    finally:
        slurm.run("sacctmgr", "-i", "modify", "user", getpass.getuser(), "set",
                  "MaxSubmitJobs=-1")  # fmt: skip


# ---- running it again


def test_submitting_again_submits_only_what_is_neither_done_nor_in_the_queue(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 0.1, dataclasses.replace(SMALL, options=("--hold",)))
    submit(file, home)
    assert "nothing to submit" in submit(file, home).stdout
    victim = synthetic.tickets(home)[3]
    lottery("cancel", home.root, victim)
    until(lambda: status_of(home.root)[victim]["state"] == "lost")
    again = submit(file, home).stdout
    assert "cells, 1 tasks" in again and "masks" not in again
    slurm.run("scontrol", "release", *(job.id for job in jobs.own(home)))
    until(lambda: len(ran(home)) == 4, 120)
    until(lambda: not slurm.queue())
    assert sorted(line["cell"] for line in ran(home)) == sorted(synthetic.tickets(home))
    assert "nothing to submit" in submit(file, home).stdout


def test_a_failed_dense_run_is_resubmitted_by_retry_and_not_by_rescue(slurm, tmp_path):
    """The rest of a sweep that was too large must not begin a failed dense run over and over."""
    file, home = sleeping_sweep(tmp_path, 0.1)
    (synthetic.dense(home) / "result.json").unlink()
    synthetic.fail(home, "dense-seed0", "loss is nan")
    (home.pool / "slurm").mkdir()
    tasks = [home.training("dense-seed0").name]
    line = {"id": "1", "experiment": "small", "part": "dense", "tasks": tasks, "indices": [0], "at": 0.0}
    (home.pool / "slurm" / "jobs.jsonl").write_text(json.dumps(line) + "\n")
    assert "nothing to submit" in lottery("rescue", file, "--rest", "--results", home.pool).stdout
    assert not slurm.queue() and (synthetic.dense(home) / "failure.json").exists()
    assert "dense, 1 tasks" in lottery("retry", home.root, "--failed").stdout


def test_a_cancelled_training_is_reported_as_such_and_retried_alone(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 0.1)
    names = synthetic.tickets(home)
    sleep_for(home, 1000.0, *names[:2])  # as long as this test may take
    submit(file, home)
    until(lambda: all(status_of(home.root)[name]["state"] == "running" for name in names[:2]))
    said = lottery("cancel", home.root, names[0]).stdout
    assert said.startswith(f"cancelled: {names[0]}")
    until(lambda: status_of(home.root)[names[0]]["state"] == "lost")
    assert "nothing to try again" in lottery("retry", home.root, "--failed").stdout
    assert "CANCELLED" in status_of(home.root)[names[0]]["note"]
    said = lottery("retry", home.root, names[0], names[1]).stdout
    assert "cells, 1 tasks" in said and f"{names[1]}: running, left alone" in said
    until(lambda: status_of(home.root)[names[0]]["state"] == "running")
    until(lambda: len(ran(home)) == len(names) - 2)
    assert sorted(line["cell"] for line in ran(home)) == sorted(names[2:])


@pytest.mark.tensorflow
def test_a_sweep_here_over_one_on_the_cluster_is_refused_and_says_how_to_take_it_over(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 1.0, dataclasses.replace(SMALL, options=("--hold",)))
    submit(file, home)
    changed = submit(file, home, "cluster.nodes=7", "cluster.options=[--hold]").stdout
    assert "what the 6 jobs in the queue asked SLURM for stays as it was" in changed
    words = ("sweep", file, "--results", home.pool)
    (line,) = lottery(*words, check=2).stderr.splitlines()
    assert "jobs wait or run on SLURM" in line and "lottery cancel" in line and "--take-over" in line
    assert not [*home.pool.glob("trainings/ticket-*/claim.json")]
    lottery("cancel", home.root)
    until(lambda: not slurm.queue())
    assert "truncated" in lottery(*words, "--take-over", check=2).stderr, "it goes to work, on made-up snapshots"


def test_two_who_submit_at_the_same_moment_submit_once(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 0.1)
    words = ("sweep", file, "--on", "slurm", "--results", home.pool)
    with started(*words) as one, started(*words) as two:
        said = "".join(process.communicate(timeout=600)[0] for process in (one, two))
    assert said.count("cells, 4 tasks") == 1 and said.count("nothing to submit") == 1
    until(lambda: not slurm.queue(), 60)
    assert len(ran(home)) == 4


# ---- what sbatch refuses


REFUSED = {
    "partition": (Cluster(partition="nowhere"), "invalid partition", "cluster.partition is 'nowhere'"),
    "account": (Cluster(account="nobody"), "account", "cluster.account is 'nobody'"),
    "GPUs": (Cluster(gpus_per_node=8, gpus_per_cell=8), "node configuration", "cluster.gpus_per_node, gpus_per_cell"),
    "time": (Cluster(time_limit="20:00:00"), "time limit", "cluster.time_limit is '20:00:00'"),
    "option": (Cluster(options=("--nonsense",)), "unrecognized option", "cluster.options"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_of_sbatch_is_shown_with_the_field_that_caused_it_and_nothing_stays(case, slurm, tmp_path):
    cluster, said, field = REFUSED[case]
    cluster = dataclasses.replace(cluster, cpus_per_gpu=1, memory_per_gpu="100M")
    file, home = sleeping_sweep(tmp_path, 1.0, cluster)
    (synthetic.dense(home) / "result.json").unlink()  # so that a job of the chain is accepted before the refused one
    done = submit(file, home, status=2)
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr.lower() and field in done.stderr and "nothing was submitted" in done.stderr
    until(lambda: not slurm.queue())


def test_a_folder_that_slurm_cannot_write_a_log_to_is_refused_in_one_line(tiny_file, tmp_path):
    done = lottery("sweep", tiny_file, "--on", "slurm", "--dry-run", "--results", tmp_path / "back\\slash", check=2)
    assert "SLURM takes no backslash" in done.stderr and len(done.stderr.splitlines()) == 1


# ---- the chain


@pytest.mark.tensorflow
def test_a_failing_dense_run_leaves_the_cells_cancelled_and_the_status_says_why(slurm, tmp_path):
    """A real training that diverges; all jobs were submitted before it began."""
    file = tmp_path / "wild.yaml"
    file.write_text(experiment_file.dump(dataclasses.replace(tiny(learning_rate=1e30), name="wild")))
    said = lottery("sweep", file, "--on", "slurm", "--results", tmp_path / "results").stdout
    assert [line.split(": ")[1] for line in said.splitlines() if line.startswith("job ")] == [
        "dense, 1 tasks", "masks", "cells, 4 tasks", "report",
    ]  # fmt: skip
    until(lambda: not slurm.queue(), 300)
    home = tmp_path / "results" / "wild"
    states = status_of(home)
    assert states["dense-seed0"]["state"] == "failed" and "loss is" in states["dense-seed0"]["note"]
    others = [row for task, row in states.items() if task != "dense-seed0"]
    assert {row["state"] for row in others} == {"lost"} and {row["starts"] for row in others} == {0}
    assert all("never began: dense-seed0 failed (loss is" in row["note"] for row in others)
    assert "loss is" in lottery("logs", home, "dense-seed0").stdout
    assert "not done" in (home.parent / "slurm/logs/wild-report.out").read_text(), "the report of what is missing"


@pytest.mark.tensorflow
def test_cells_that_waited_for_the_dense_run_get_its_predicted_time_limit(slurm, tiny_file, tmp_path):
    words = (tiny_file, "cluster.nodes=1", "prune.quantiles=[0.5]", "prune.rewind=[0]", "--on", "slurm")
    said = lottery("sweep", *words, "--results", tmp_path / "results").stdout
    (job,) = [line.split()[1].rstrip(":") for line in said.splitlines() if "cells" in line and line.startswith("job")]
    limit = ("squeue", "--noheader", "--jobs", job, "--format=%l")
    assert set(slurm.run(*limit).split()) == {"30:00"}, "the partition's"
    home = home_of(tmp_path / "results" / "tiny")
    until(lambda: set(slurm.run(*limit).split()) == {f"{arrays.predicted_limit(home)}:00"}, 300)


# ---- a cluster that does not answer


def test_status_answers_from_the_files_where_slurm_does_not(slurm, tmp_path, monkeypatch):
    file, home = sleeping_sweep(tmp_path, 1.0, dataclasses.replace(SMALL, options=("--hold",)))
    submit(file, home)
    broken = tmp_path / "slurm.conf"
    away = {f"SlurmctldPort={slurm.port}": "SlurmctldPort=9", "MessageTimeout=30": "MessageTimeout=1"}
    text = slurm.conf.read_text()
    for line, other in away.items():
        text = text.replace(line, other)
    broken.write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(broken))
    done = lottery("status", home.root)
    assert "SLURM does not answer, this is from the files alone" in done.stdout
    assert "1 done, 4 waiting" in done.stdout
    refused = lottery("retry", home.root, check=2)
    assert "does not answer" in refused.stderr and len(refused.stderr.splitlines()) == 1


def test_without_slurm_submission_is_refused_in_one_line(tmp_path, monkeypatch):
    file, home = sleeping_sweep(tmp_path, 1.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = submit(file, home, status=2)
    assert "no such program here" in done.stderr and len(done.stderr.splitlines()) == 1
