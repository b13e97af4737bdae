"""lottery check: each fault put in once, and found."""

from __future__ import annotations

import dataclasses
import getpass
import json
import shutil
from pathlib import Path

import pytest

from slurm import preflight, queue
from sweep import files
from sweep.experiment import Cluster, Track
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from tests import synthetic
from tests.commands import lottery
from tests.sleeping_sweep import SMALL, evenly, sleeping_sweep, submit
from tests.slurm_cluster import until


def home_in(folder: Path, **changes) -> Home:
    experiment = dataclasses.replace(synthetic.experiment(), **changes)
    return Home(folder / "results" / experiment.name, experiment)


def found(home: Home, what: str, on_slurm: bool = False) -> preflight.Finding:
    return next(one for one in preflight.look(home, on_slurm) if one.what == what)


def test_a_sound_experiment_passes_all_checks_and_no_file_is_left(tmp_path):
    findings = list(preflight.look(home_in(tmp_path), on_slurm=False))
    assert {one.what for one in findings if one.state != "ok"} == {"data"}, "359 digits are few"
    assert "has a standard error of 1.6 percentage points" in findings[-1].found
    assert {one.what for one in findings} == {"results", "lock", "clock", "disk", "weights", "wandb", "devices", "data"}
    assert list(tmp_path.iterdir()) == []


def test_missing_weights_that_others_start_from_are_reported(tmp_path):
    home = home_in(tmp_path)
    synthetic.finish(home, "dense-seed0", 0.9)
    files.write_text(home.root / "experiment.yaml", experiment_file.record(home.experiment))
    one = found(home, "weights")
    assert (one.state, one.found) == ("warning", "not there: dense-seed0 at 2ep, end") and "trained again" in one.remedy
    assert lottery("plan", home.root, "--json").stdout.count('"again": []') == len(home.graph) - 1


def test_a_disk_that_is_too_small_is_reported(tmp_path, monkeypatch):
    home = home_in(tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: usage)
    one = found(home, "disk")
    assert one.state == "wrong" and "0.0 GB free" in one.found and "--results" in one.remedy
    # at least the snapshots of the dense run and the end of every ticket
    assert preflight.needed_bytes(home) > 4 * synthetic.network().parameters * len(home.graph)


def test_a_wrong_clock_is_reported(tmp_path, monkeypatch):
    def late() -> float:  # by 100 s, of the file system's clock at this moment
        return max(path.stat().st_mtime for path in tmp_path.rglob("*")) - 100

    monkeypatch.setattr(preflight.time, "time", late)
    one = found(home_in(tmp_path), "clock")
    assert one.state == "warning" and one.found.startswith("+100 s") and "ntp" in one.remedy


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight.fcntl, "flock", lambda *_: None)  # as where a lock is granted to everybody
    assert found(home_in(tmp_path), "lock").state == "warning"


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight.os, "access", lambda *_: False)  # root may write anywhere
    assert found(home_in(tmp_path), "results").state == "wrong"


def test_missing_too_few_or_changed_images_are_reported(tmp_path):
    data = dataclasses.replace(synthetic.experiment().data, name="cifar10", path="nowhere")
    assert found(home_in(tmp_path, data=data), "data").state == "wrong"
    recipe = dataclasses.replace(synthetic.experiment().recipe, batch=5000)
    one = found(home_in(tmp_path, recipe=recipe), "data")
    assert one.state == "wrong" and "recipe.batch: received 5000" in one.found
    home = home_in(tmp_path)
    synthetic.finish(home, "dense-seed0", 0.9, fingerprint="of others")
    one = found(home, "data")
    assert one.state == "wrong" and "others than before" in one.found


def test_a_missing_wandb_key_is_reported(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    one = found(home_in(tmp_path, track=Track("online")), "wandb")
    assert one.state == "warning" and "no key" in one.found and "wandb login" in one.remedy


def test_the_command_tells_by_its_status_and_as_json(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(experiment_file.dump(synthetic.experiment()))
    assert "all checks passed" in lottery("check", file, "--results", tmp_path / "results").stdout
    done = lottery("check", file, "recipe.batch=5000", "--json", "--results", tmp_path / "results", check=2)
    assert [one["what"] for one in json.loads(done.stdout) if one["state"] == "wrong"] == ["data"]


# ---- on a real SLURM

WRONG = {
    "partition": (Cluster(partition="nowhere"), "cluster.partition is 'nowhere'"),
    "account": (Cluster(account="nobody"), "cluster.account is 'nobody'"),
    "GPUs": (Cluster(gpus_per_node=8, gpus_per_cell=8), "gpus_per_node"),
    "time": (Cluster(time_limit="20:00:00"), "cluster.time_limit is '20:00:00'"),
    "option": (Cluster(options=("--nonsense",)), "cluster.options"),
}


def on_cluster(tmp_path: Path, cluster: Cluster) -> Home:
    recipe = dataclasses.replace(synthetic.experiment().recipe, norm_images=1)
    return home_in(tmp_path, cluster=dataclasses.replace(cluster, cpus_per_gpu=1, memory_per_gpu="100M"), recipe=recipe)


@pytest.mark.parametrize("case", WRONG)
def test_what_slurm_would_not_take_is_found_and_nothing_is_submitted(case, slurm, tmp_path):
    cluster, field = WRONG[case]
    one = found(on_cluster(tmp_path, cluster), "submission", on_slurm=True)
    assert one.state == "wrong" and field in one.found, one
    assert not slurm.queue()


def test_where_slurm_takes_it_and_a_node_sees_the_folder_all_is_well(slurm, tmp_path, monkeypatch):
    home = on_cluster(tmp_path, SMALL)
    findings = {one.what: one for one in preflight.look(home, on_slurm=True)}
    assert {one.what for one in findings.values() if one.state != "ok"} == {"data"}, findings
    assert "a node sees this folder" in findings["nodes"].found
    monkeypatch.setattr(preflight.sys, "executable", "/nowhere/python")
    assert preflight._nodes(home)[0] == "wrong"
    until(lambda: not slurm.queue())


LIMITS = {  # where SLURM keeps a limit on jobs in the queue → what sets it, and what takes it back
    "the user's association": ("user {me} set MaxSubmitJobs={n}", "user {me} set MaxSubmitJobs=-1"),
    "the account, for all its users": (
        "account {account} set GrpSubmitJobs={n}",
        "account {account} set GrpSubmitJobs=-1",
    ),
    "the default QOS, for a user": (
        "qos normal set MaxSubmitJobsPerUser={n}",
        "qos normal set MaxSubmitJobsPerUser=-1",
    ),
    "the default QOS, for all": ("qos normal set GrpSubmitJobs={n}", "qos normal set GrpSubmitJobs=-1"),
}


@pytest.mark.parametrize("place", LIMITS)
def test_a_limit_on_jobs_in_the_queue_is_foreseen_and_as_many_as_fit_are_submitted(place, slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 1.0, dataclasses.replace(SMALL, options=("--hold",)), quantiles=evenly(6))

    me = getpass.getuser()
    account = slurm.run("sacctmgr", "-nP", "show", "user", me, "format=DefaultAccount")

    def set_to(words: str, n: int = 0) -> None:
        slurm.run("sacctmgr", "-i", "modify", *words.format(me=me, account=account, n=n).split())

    set_to(LIMITS[place][0], 8)
    try:
        one = found(home, "submit limit", on_slurm=True)
        assert (one.state, one.found) == ("warning", "14 jobs, and SLURM takes 8 more of yours now"), one
        if "default QOS, for a user" in place:  # once is enough: the same number is asked for
            submit(file, home)
            assert len(slurm.queue()) == 8
            one = found(home, "submit limit", on_slurm=True)
            assert one.state == "wrong" and "takes 0 more" in one.found
    finally:
        set_to(LIMITS[place][1])
        slurm.clear()


def test_no_workload_key_is_sent_that_the_site_would_refuse(slurm, tmp_path):
    slurm.set(AccountingStorageEnforce="limits,wckeys", TrackWCKey="yes")
    try:
        file, home = sleeping_sweep(tmp_path, 1.0, dataclasses.replace(SMALL, options=("--hold",)))
        assert found(home, "submission", on_slurm=True).state == "ok"
        submit(file, home)
        assert "submitit" not in slurm.run("squeue", "--noheader", "--format=%w %j")
        other = dataclasses.replace(home.experiment.cluster, options=("--wckey=nobody",))
        one = found(on_cluster(tmp_path / "other", other), "submission", on_slurm=True)
        assert one.state == "wrong" and "wckey" in one.found.lower(), one
    finally:
        slurm.clear()
        slurm.set(AccountingStorageEnforce="limits", TrackWCKey="no")


TIMES = {
    "a minute after the warning": (Cluster(time_limit="3"), "warning", "cluster.time_limit: 180 s"),
    "too short to start": (Cluster(dense_time_limit="2:10"), "wrong", "cluster.dense_time_limit: 130 s"),
    "long enough": (Cluster(time_limit="10", dense_time_limit="10"), "ok", "the partition's"),
}


@pytest.mark.parametrize("case", TIMES)
def test_a_time_limit_under_what_starting_takes_is_found(case, slurm, tmp_path):
    cluster, state, said = TIMES[case]
    one = found(on_cluster(tmp_path, cluster), "time limit", on_slurm=True)
    assert one.state == state and said in one.found, one


def test_the_partition_s_own_time_limit_is_looked_at_where_none_is_asked_for(slurm, tmp_path):
    slurm.run("scontrol", "update", "PartitionName=gpu", "DefaultTime=2")
    queue.partition.cache_clear()
    try:
        one = found(on_cluster(tmp_path, Cluster()), "time limit", on_slurm=True)
        assert (
            one.state == "wrong" and "the partition's default, as cluster.dense_time_limit is empty: 120 s" in one.found
        )
    finally:
        slurm.run("scontrol", "update", "PartitionName=gpu", "DefaultTime=30")
        queue.partition.cache_clear()


def test_a_node_is_asked_for_with_the_account_of_the_jobs(slurm, tmp_path):
    one = found(on_cluster(tmp_path, Cluster(account="nobody")), "nodes", on_slurm=True)
    assert one.state == "wrong" and "account" in one.found.lower()


def test_memory_that_no_node_has_is_named_among_the_causes(slurm, tmp_path):
    recipe = dataclasses.replace(synthetic.experiment().recipe, norm_images=1)
    home = home_in(tmp_path, cluster=Cluster(cpus_per_gpu=1, memory_per_gpu="9000G"), recipe=recipe)
    one = found(home, "submission", on_slurm=True)
    assert one.state == "wrong" and "memory_per_gpu" in one.found, one
