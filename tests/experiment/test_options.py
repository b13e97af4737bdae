"""cluster.options: which options of sbatch a file may have, and what to use instead of the others."""

from __future__ import annotations

import pytest

from tests.experiment.conftest import SMALL
from tests.synthetic import refusal

CHAIN = {
    "--dependency=singleton": "nothing: jobs wait for what they need (--dependency)",
    "--dep=singleton": "nothing: jobs wait for what they need (--dependency)",
    "--kill-on-invalid-dep=no": "nothing: a job whose turn cannot come is cancelled",
    "--array=0-3": "cluster.array_parallelism: the elements of an array are its trainings",
    "--arr=0-3": "cluster.array_parallelism: the elements of an array are its trainings",
    "--requeue": "nothing: a task that was interrupted goes on in another turn (--requeue)",
    "--no-requeue": "nothing: a task that was interrupted goes on in another turn (--no-requeue)",
    "--no-req": "nothing: a task that was interrupted goes on in another turn (--no-requeue)",
    "--signal=USR2": "cluster.warning_seconds instead (--signal)",
    "--output=x": "nothing: each training has a log of its own",
    "--error=x": "nothing: each training has a log of its own",
    "--open-mode=truncate": "nothing: a log goes on where it was",
    "--wrap=id": "cluster.setup and cluster.container instead",
    "--parsable": "nothing: the answer of sbatch is read",
    "--test-only": "nothing: lottery check asks SLURM",
    "--wait": "nothing: lottery status shows what runs",
    "--job-name=x": "name: jobs are called after the experiment",
    "--nodes=2": "cluster.nodes and cluster.gpus_per_cell",
    "--ntasks=2": "nothing: a job is one process",
    "--ntasks-per-node=2": "nothing: a job is one process",
    "--partition=x": "cluster.partition instead",
    "--part=x": "cluster.partition instead",
    "--account=x": "cluster.account instead",
    "--qos=x": "cluster.qos instead",
    "--time=5": "cluster.time_limit and cluster.dense_time_limit instead",
    "--t=5": "cluster.time_limit and cluster.dense_time_limit instead",
    "--mem=5G": "cluster.memory_per_gpu instead",
    "--cpus-per-task=5": "cluster.cpus_per_gpu instead",
    "--gres=gpu:a100:1": "cluster.gpu_type, cluster.gpus_per_node and cluster.gpus_per_cell instead",
    "--gres=gres/gpu:1": "cluster.gpu_type, cluster.gpus_per_node and cluster.gpus_per_cell instead",
    "--gpus-per-node=1": "cluster.gpu_type, cluster.gpus_per_node and cluster.gpus_per_cell instead",
    "--clusters=other": "nothing: jobs are submitted to the cluster of this machine",
    "--version": "nothing: jobs are submitted",
}


@pytest.mark.parametrize(("option", "right"), CHAIN.items())
def test_an_option_that_the_chain_of_jobs_rests_on_is_refused_with_what_to_use_instead(written, option, right):
    said = refusal(lambda: written(SMALL, f"cluster.options=[{option}]"))
    assert f"cluster.options[0]: received '{option}', expected {right}" in said


FREE = (
    "--gres=lscratch:100", "--constraint=a100", "--exclusive", "--hold", "--reservation=r", "--mail-type=END",
    "--mail-user=a@b", "--mem-per-gpu=8G", "--mem-per-cpu=1G", "--nodelist=n1", "--exclude=n2", "--comment='a b'",
    "--wckey=k", "--begin=now", "--nice=5", "--time-min=5", "--wait-all-nodes=1", "--export=NONE", "--gpu-freq=high",
)  # fmt: skip


@pytest.mark.parametrize("option", FREE)
def test_another_option_is_taken_as_it_is(written, option):
    assert written(SMALL, f'cluster.options=["{option}"]').cluster.options == (option,)
