"""The job scripts as text: plain enough to read, edit and submit by hand."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from slurm import launch, sbatch
from sweep.errors import Refused
from sweep.experiment import Cluster, Experiment, check
from sweep.graph.plan import graph_of
from sweep.graph.training import Mask, Start
from sweep.pruning.masks import Level
from tests import synthetic

GOLDEN = Path(__file__).parent / "golden"
FOLDER = Path("results/small")
PARTS = ("dense", "masks", "cells", "report")

CLUSTER = Cluster(
    partition="gpu",
    account="vision",
    qos="long",
    nodes=2,
    gpus_per_node=4,
    gpus_per_cell=2,
    cpus_per_gpu=6,
    memory_per_gpu="40G",
    time_limit="02:30:00",
    dense_time_limit="2-00:00:00",
    options=("--constraint=a100", "--exclusive"),
    setup=("module load cuda", "source .venv/bin/activate"),
)


def asking(cluster: Cluster = CLUSTER, **changes) -> Experiment:
    """The small experiment on a cluster; batch norm sees two images, so that four devices can share a batch of 8."""
    experiment = dataclasses.replace(synthetic.experiment(**changes), cluster=cluster)
    experiment = dataclasses.replace(experiment, recipe=dataclasses.replace(experiment.recipe, norm_images=2))
    check(experiment)
    return experiment


def script(part: str, experiment: Experiment, folder: Path = FOLDER) -> str:
    """The text of one job of the whole sweep."""
    return next(job.text for job in chain(experiment, folder) if job.part == part)


def chain(experiment: Experiment, folder: Path = FOLDER, **limits) -> list[sbatch.Job]:
    """The jobs of a sweep of which nothing is done."""
    return sbatch.chain(experiment, folder, graph_of(experiment).trainings, **limits)


def options(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def option(text: str, name: str) -> str | None:
    """The value of one option; an option given twice is a fault."""
    values = [line.partition("=")[2] for line in options(text) if line.startswith(f"--{name}=")]
    assert len(values) <= 1
    return values[0] if values else None


def work(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


# ---- the whole text


@pytest.mark.parametrize("part", PARTS)
def test_the_text_of_a_script_is_pinned(part):
    """Where a change is meant, write the new text to tests/slurm/golden and read the difference."""
    assert script(part, asking()) == (GOLDEN / f"{part}.sh").read_text()


def test_a_recipe_that_normalises_the_whole_batch_takes_one_device_wherever_it_runs():
    whole = asking()
    whole = dataclasses.replace(whole, recipe=dataclasses.replace(whole.recipe, norm_images=0))
    one = dataclasses.replace(whole, cluster=dataclasses.replace(CLUSTER, gpus_per_cell=1))
    assert {option(script(part, one), "gres") for part in ("dense", "cells")} == {"gpu:1"}
    with pytest.raises(Refused, match="batch norm sees 8 images together"):
        script("cells", whole)


def test_a_cell_of_as_many_gpus_as_the_dense_run_needs_nothing_compiled_ahead():
    text = script("masks", asking(dataclasses.replace(CLUSTER, gpus_per_cell=4)))
    assert option(text, "gres") is None and "--warm-up" not in text


@pytest.mark.parametrize("folder", [FOLDER, Path("my results/it's $HOME")], ids=["plain", "awkward"])
@pytest.mark.parametrize("part", PARTS)
def test_bash_reads_every_script(part, folder):
    text = script(part, asking(seeds=(0, 1)), folder)
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("part", PARTS)
def test_options_stand_before_the_first_command_where_sbatch_reads_them(part):
    lines = script(part, asking()).splitlines()
    assert lines[0] == "#!/bin/bash"
    first_command = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    assert all(line.startswith("#SBATCH --") for line in lines[1:first_command])
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:])


# ---- the same through submitit


@pytest.mark.parametrize("part", ["dense", "cells"])
def test_what_submitit_sends_asks_slurm_for_what_the_script_asks_for(part, tmp_path, monkeypatch):
    (tmp_path / "srun").write_text("#!/bin/sh\n")  # submitit looks for it
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cluster = dataclasses.replace(CLUSTER, options=('--comment="two words"', "--exclusive"))
    job = next(job for job in chain(asking(cluster, seeds=(0, 1))) if job.part == part)
    sent = launch.sent(job, tmp_path)
    for name in (
        "job-name",
        "partition",
        "account",
        "qos",
        "gres",
        "mem",
        "cpus-per-task",
        "time",
        "signal",
        "comment",
    ):
        assert shlex.split(option(sent, name) or "?") == shlex.split(option(job.text, name) or "!"), name
    assert {"--exclusive", "--requeue", "--nodes=1", "--open-mode=append"} <= set(options(sent))
    assert work(sent).index("trap '' USR1 USR2") < work(sent).index("module load cuda")


def test_a_trial_of_a_search_is_told_its_own_number_whatever_submitit_calls_it():
    job = sbatch.tuning(asking(), FOLDER, [2, 5])
    assert option(job.text, "array") == "2,5%2"
    tasks = launch._tasks(job, FOLDER)
    assert [task.command.partition("; ")[0] for task in tasks] == [f"export SLURM_ARRAY_TASK_ID={i}" for i in (2, 5)]
    assert [Path(task.log).name for task in tasks] == ["small-tune-2.out", "small-tune-5.out"]


# ---- the cluster section


@pytest.mark.parametrize("part", PARTS)
def test_partition_account_qos_and_further_options_are_asked_for_everywhere(part):
    text = script(part, asking())
    assert [option(text, name) for name in ("partition", "account", "qos")] == ["gpu", "vision", "long"]
    assert options(text)[-2:] == ["--constraint=a100", "--exclusive"]


@pytest.mark.parametrize("part", PARTS)
def test_options_that_are_not_set_are_not_in_the_script(part):
    text = script(part, asking(Cluster()))
    assert [option(text, name) for name in ("partition", "account", "qos", "time")] == [None] * 4


def test_dense_run_and_cells_have_time_limits_of_their_own():
    limits = {part: option(script(part, asking()), "time") for part in PARTS}
    assert limits == {"dense": "2-00:00:00", "masks": None, "cells": "02:30:00", "report": None}


@pytest.mark.parametrize("part", PARTS)
def test_setup_lines_come_before_the_work_and_faults_end_the_script(part):
    lines = work(script(part, asking()))
    lines = lines[lines.index("set -eo pipefail") :]
    assert lines[:3] == ["set -eo pipefail", "module load cuda", "source .venv/bin/activate"]
    assert any("lottery" in line for line in lines[3:])


@pytest.mark.parametrize("part", PARTS)
def test_every_job_takes_one_node_whatever_the_cluster_has(part):
    text = script(part, asking())
    assert (option(text, "nodes"), option(text, "ntasks")) == ("1", "1")


def test_the_dense_run_takes_all_gpus_of_a_node_with_their_memory_and_cores():
    text = script("dense", asking())
    assert [option(text, name) for name in ("gres", "mem", "cpus-per-task")] == ["gpu:4", "160G", "24"]


def test_a_cell_takes_its_own_gpus_with_their_memory_and_cores():
    text = script("cells", asking())
    assert [option(text, name) for name in ("gres", "mem", "cpus-per-task")] == ["gpu:2", "80G", "12"]


def test_a_type_of_gpu_and_other_resources_are_asked_for_together():
    cluster = dataclasses.replace(CLUSTER, gpu_type="a100", options=("--gres=lscratch:100",))
    found = {part: option(script(part, asking(cluster)), "gres") for part in ("dense", "cells", "report")}
    assert found == {"dense": "gpu:a100:4,lscratch:100", "cells": "gpu:a100:2,lscratch:100", "report": "lscratch:100"}


def test_jobs_without_a_gpu_may_have_a_partition_of_their_own():
    cluster = dataclasses.replace(CLUSTER, gpus_per_cell=4, cpu_partition="cpu")
    found = {part: option(script(part, asking(cluster)), "partition") for part in PARTS}
    assert found == {"dense": "gpu", "masks": "cpu", "cells": "gpu", "report": "cpu"}


def test_the_report_takes_no_gpu():
    text = script("report", asking())
    assert [option(text, name) for name in ("gres", "mem", "cpus-per-task")] == [None, None, "6"]


@pytest.mark.parametrize(("each", "four"), [("32G", "128G"), ("500M", "2000M"), ("1T", "4T"), ("8000", "32000")])
def test_memory_is_multiplied_in_its_unit(each, four):
    assert option(script("dense", asking(Cluster(memory_per_gpu=each))), "mem") == four


# ---- arrays


def test_the_array_lists_the_trainings_of_the_plan_by_name():
    experiment = asking(controls=("fresh", "random"))
    text = script("cells", experiment)
    assert (option(text, "array") or "").partition("%")[0] == "0-9"
    names = [one.name for one in graph_of(experiment) if one.mask]
    assert [line.strip() for line in text.partition("tasks=(\n")[2].partition("\n)")[0].splitlines()] == names
    assert 'task="${tasks[$SLURM_ARRAY_TASK_ID]}"' in text and '"$task" --restarts 5' in text


@pytest.mark.parametrize(
    ("nodes", "per_node", "per_cell", "together"), [(20, 4, 1, 80), (20, 4, 4, 20), (1, 4, 2, 2), (1, 1, 1, 1)]
)
def test_as_many_cells_run_at_a_time_as_the_nodes_have_gpus_for(nodes, per_node, per_cell, together):
    cluster = Cluster(nodes=nodes, gpus_per_node=per_node, gpus_per_cell=per_cell)
    assert option(script("cells", asking(cluster)), "array") == f"0-3%{together}"


def test_as_many_at_a_time_as_the_experiment_says_where_it_says_so():
    assert option(script("cells", asking(Cluster(array_parallelism=3))), "array") == "0-3%3"


def test_the_dense_array_has_one_element_per_seed():
    assert option(script("dense", asking()), "array") == "0"
    assert option(script("dense", asking(seeds=(3, 5, 8))), "array") == "0-2"


@pytest.mark.parametrize(("task", "seed"), [("0", "3"), ("2", "8")])
def test_every_element_trains_its_own_and_writes_its_own_log(task, seed, tmp_path):
    """Run by bash, with a `lottery` that only repeats its arguments."""
    experiment = asking(Cluster(), seeds=(3, 5, 8))
    folder, programs = tmp_path / "a folder" / "small", tmp_path / "bin"
    sbatch.write_scripts(folder, chain(experiment, folder))
    programs.mkdir()
    (programs / "lottery").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "lottery").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": task}
    text = script("dense", experiment, folder)
    done = subprocess.run(["bash"], input=text, text=True, capture_output=True, check=True, env=environment)
    name = graph_of(experiment)[f"dense-seed{seed}"].name
    heard = (tmp_path / "a folder" / "slurm" / "logs" / f"{name}.out").read_text().splitlines()
    assert done.stdout == "" and heard == ["supervise", "lottery", "train", str(folder), name, "--restarts", "5"]


@pytest.mark.parametrize("part", PARTS)
def test_every_job_is_supervised_and_a_warning_during_its_setup_does_not_end_it(part):
    lines = work(script(part, asking()))
    assert lines[0].startswith("trap '' USR1 USR2") and lines.index("module load cuda") > 0
    assert lines[-1].startswith("exec lottery supervise ")
    assert option(script(part, asking()), "signal") == "B:USR1@120"


def test_a_log_is_named_by_the_cell_so_that_every_job_of_it_appends_to_the_same():
    for part in ("cells", "dense"):
        assert 'exec >> results/slurm/logs/"$task.out" 2>&1' in script(part, asking())
        assert (
            option(script(part, asking()), "output") == f"results/slurm/logs/small-{part}.out"
        )  # what bash says before


@pytest.mark.parametrize("part", PARTS)
def test_a_requeued_job_appends_to_its_log(part):
    assert {"--requeue", "--open-mode=append"} <= set(options(script(part, asking())))


# ---- paths and the chain


@pytest.mark.parametrize("part", PARTS)
def test_a_folder_with_a_space_stays_one_word(part):
    folder = Path("my results/small")
    (line,) = [line for line in work(script(part, asking(), folder)) if "lottery " in line]
    words = shlex.split(line)
    if part == "report":  # two commands, for a shell to run
        words = shlex.split(words[-1].replace(";", " ;"))
    assert str(folder) in words


@pytest.mark.parametrize("part", PARTS)
def test_a_log_in_a_folder_with_a_space_stays_one_word(part):
    """sbatch reads quotes in its #SBATCH lines as a shell would."""
    text = script(part, asking(), Path("my results/small"))
    words = [word for line in options(text) for word in shlex.split(line)]
    assert f"--output=my results/slurm/logs/small-{part}" in " ".join(words)
    assert all(word.startswith("--") for word in words)


def test_a_sweep_without_cells_has_no_array():
    experiment = asking(quantiles=())
    assert [job.part for job in chain(experiment)] == [
        "dense", "masks", "report",
    ]  # fmt: skip


def many(count: int) -> Experiment:
    return asking(Cluster(), quantiles=tuple(i / count for i in range(count)), rewind=synthetic.points(0))


def test_cells_beyond_the_largest_array_go_into_a_chain_of_arrays_that_start_at_0():
    arrays = [job for job in chain(many(120), max_array_size=50) if job.part == "cells"]
    assert [(job.name, len(job.tasks), job.indices[:2]) for job in arrays] == [
        ("cells", 50, (0, 1)), ("cells-2", 50, (0, 1)), ("cells-3", 20, (0, 1)),
    ]  # fmt: skip
    assert [option(job.text, "array") for job in arrays] == ["0-49%80", "0-49%80", "0-19%80"]
    assert [job.waits for job in arrays] == [
        (("afterok", "masks"),), (("afterok", "masks"), ("afterany", "cells")),
        (("afterok", "masks"), ("afterany", "cells-2")),
    ]  # fmt: skip
    assert len({name for job in arrays for name in job.tasks}) == 120


def test_only_what_is_missing_is_in_the_array():
    some = [one for one in graph_of(asking()) if one.mask][1:]
    array, report = sbatch.chain(asking(), FOLDER, some, masks=False)
    assert option(array.text, "array") == "0-2%4" and report.part == "report"
    assert array.tasks == tuple(one.name for one in some)


def test_where_the_user_may_not_submit_them_all_the_last_job_submits_the_rest():
    jobs = chain(many(120), room=60)
    assert [job.part for job in jobs] == ["dense", "masks", "cells", "rest"]
    assert len(jobs[2].tasks) == 60 - 1 - 1 - 1
    assert f"lottery rescue {FOLDER} --rest" in jobs[3].text
    assert jobs[3].waits == (("afterany", "cells"), ("afterany", "masks"))


def rounds(count: int, seeds: tuple[int, ...]):
    """A graph of chains: each training takes its mask from the one before of its seed."""
    last = {one.seed: one for one in graph_of(asking(quantiles=(), seeds=seeds))}
    dense, out = dict(last), list(last.values())
    for number in range(1, count + 1):
        for seed in seeds:
            mask = Mask(Level("quantile", 0.1 * number), last[seed])
            last[seed] = dataclasses.replace(dense[seed], start=Start(seed=seed), mask=mask, kind="ticket")
        out += last.values()
    return out


def test_in_a_chain_of_rounds_each_element_waits_for_its_own_predecessor():
    jobs = sbatch.chain(asking(seeds=(0, 1, 2)), FOLDER, rounds(3, (0, 1, 2)))
    assert [(job.name, job.waits) for job in jobs] == [
        ("dense", ()),
        ("masks", (("afterany", "dense"),)),
        ("cells", (("afterok", "masks"),)),
        ("generation2", (("aftercorr", "cells"),)),
        ("generation3", (("aftercorr", "generation2"),)),
        ("report", (("afterany", "generation3"), ("afterany", "masks"))),
    ]


def test_where_elements_do_not_line_up_the_whole_generation_is_waited_for():
    chains = rounds(2, (0, 1, 2))
    jobs = {job.name: job for job in sbatch.chain(asking(seeds=(0, 1, 2)), FOLDER, [*chains[:6], *chains[:5:-1]])}
    assert jobs["generation2"].waits == (("afterany", "cells"),)


def test_a_container_stands_before_every_command():
    experiment = asking(Cluster(container="apptainer exec --nv image.sif"))
    for part in PARTS:  # the supervisor stands outside: it needs squeue and scontrol
        before = "bash -c 'lottery rescue results/small; " if part == "report" else ""
        assert f"exec lottery supervise {before}apptainer exec --nv image.sif lottery " in script(part, experiment)


def test_the_commands_submit_the_scripts_each_after_the_one_before_and_keep_folders_with_spaces_whole():
    """Run by bash, with an sbatch that repeats its arguments and gives job numbers."""
    fake = 'sbatch() { printf "%s|" "$@" >&2; echo >&2; echo $((100 + $#)); }\n'
    text = fake + sbatch.commands(Path("my results"), chain(asking(), Path("my results")))
    heard = subprocess.run(["bash", "-eu"], input=text, text=True, capture_output=True, check=True)
    assert heard.stderr.splitlines() == [
        "--parsable|my results/slurm/dense.sh|",
        "--parsable|--dependency=afterany:102|--kill-on-invalid-dep=yes|my results/slurm/masks.sh|",
        "--parsable|--dependency=afterok:104|--kill-on-invalid-dep=yes|my results/slurm/cells.sh|",
        "--parsable|--dependency=afterany:104,afterany:104|--kill-on-invalid-dep=yes|my results/slurm/report.sh|",
    ]


def test_written_scripts_lie_where_the_commands_look_with_a_folder_for_their_logs(tmp_path):
    folder = tmp_path / "small"
    jobs = chain(asking(), folder)
    paths = sbatch.write_scripts(folder, jobs)
    assert [path.read_text() for path in paths] == [job.text for job in jobs]
    assert all(str(path) in sbatch.commands(folder, jobs) for path in paths)
    assert all(Path(option(job.text, "output") or "").parent.is_dir() for job in jobs)
