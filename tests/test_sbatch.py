"""The job scripts as text: plain enough to read, edit and submit by hand."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path

import pytest

from slurm import sbatch
from sweep.experiment import Cluster, Experiment, check
from sweep.plan import cells
from tests import made_up

GOLDEN = Path(__file__).parent / "golden"
FOLDER = Path("results/small-0123abcdef")
SCRIPTS = {"dense": sbatch.dense_script, "cells": sbatch.cells_script, "report": sbatch.report_script}

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
    options=("--constraint=a100", "--exclusive"),
    setup=("module load cuda", "source .venv/bin/activate"),
)


def asking(cluster: Cluster = CLUSTER, **changes) -> Experiment:
    """The small experiment on a cluster."""
    experiment = dataclasses.replace(made_up.experiment(**changes), cluster=cluster)
    check(experiment)
    return experiment


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


@pytest.mark.parametrize("part", SCRIPTS)
def test_the_text_of_a_script_is_pinned(part):
    """Where a change is meant, write the new text to tests/golden and read the difference."""
    assert SCRIPTS[part](asking(), FOLDER) == (GOLDEN / f"{part}.sh").read_text()


@pytest.mark.parametrize("folder", [FOLDER, Path("my results/it's $HOME")], ids=["plain", "awkward"])
@pytest.mark.parametrize("part", SCRIPTS)
def test_bash_reads_every_script(part, folder):
    text = SCRIPTS[part](asking(seeds=(0, 1)), folder)
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("part", SCRIPTS)
def test_options_stand_before_the_first_command_where_sbatch_reads_them(part):
    lines = SCRIPTS[part](asking(), FOLDER).splitlines()
    assert lines[0] == "#!/bin/bash"
    first_command = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    assert all(line.startswith("#SBATCH --") for line in lines[1:first_command])
    assert not any(line.startswith("#") for line in lines[first_command:])


# ---- the cluster section


@pytest.mark.parametrize("part", SCRIPTS)
def test_partition_account_qos_and_further_options_are_asked_for_everywhere(part):
    text = SCRIPTS[part](asking(), FOLDER)
    assert [option(text, name) for name in ("partition", "account", "qos")] == ["gpu", "vision", "long"]
    assert options(text)[-2:] == ["--constraint=a100", "--exclusive"]


@pytest.mark.parametrize("part", SCRIPTS)
def test_what_is_not_chosen_is_not_asked_for(part):
    text = SCRIPTS[part](asking(Cluster()), FOLDER)
    assert [option(text, name) for name in ("partition", "account", "qos", "time")] == [None] * 4


def test_the_time_limit_is_that_of_cells_alone():
    limits = {part: option(script(asking(), FOLDER), "time") for part, script in SCRIPTS.items()}
    assert limits == {"dense": None, "cells": "02:30:00", "report": None}


@pytest.mark.parametrize("part", SCRIPTS)
def test_setup_lines_come_before_the_work_and_faults_end_the_script(part):
    lines = work(SCRIPTS[part](asking(), FOLDER))
    assert lines[:3] == ["set -eo pipefail", "module load cuda", "source .venv/bin/activate"]
    assert "lottery" in lines[-1]


@pytest.mark.parametrize("part", SCRIPTS)
def test_every_job_takes_one_node_whatever_the_cluster_has(part):
    text = SCRIPTS[part](asking(), FOLDER)
    assert (option(text, "nodes"), option(text, "ntasks")) == ("1", "1")


def test_the_dense_run_takes_all_gpus_of_a_node_with_their_memory_and_cores():
    text = sbatch.dense_script(asking(), FOLDER)
    assert [option(text, name) for name in ("gres", "mem", "cpus-per-task")] == ["gpu:4", "160G", "24"]


def test_a_cell_takes_its_own_gpus_with_their_memory_and_cores():
    text = sbatch.cells_script(asking(), FOLDER)
    assert [option(text, name) for name in ("gres", "mem", "cpus-per-task")] == ["gpu:2", "80G", "12"]


def test_the_report_takes_no_gpu():
    text = sbatch.report_script(asking(), FOLDER)
    assert [option(text, name) for name in ("gres", "mem", "cpus-per-task")] == [None, None, "6"]


@pytest.mark.parametrize(("each", "four"), [("32G", "128G"), ("500M", "2000M"), ("1T", "4T"), ("8000", "32000")])
def test_memory_is_multiplied_in_its_unit(each, four):
    assert option(sbatch.dense_script(asking(Cluster(memory_per_gpu=each)), FOLDER), "mem") == four


# ---- arrays


def test_the_array_numbers_the_cells_of_the_plan():
    experiment = asking(controls=("fresh", "random"))
    indices, _, _ = (option(sbatch.cells_script(experiment, FOLDER), "array") or "").partition("%")
    assert indices == "0-9"
    assert len(cells(experiment)) == 10
    assert '--index "$SLURM_ARRAY_TASK_ID"' in work(sbatch.cells_script(experiment, FOLDER))[-1]


@pytest.mark.parametrize(
    ("nodes", "per_node", "per_cell", "together"), [(20, 4, 1, 80), (20, 4, 4, 20), (1, 4, 2, 2), (1, 1, 1, 1)]
)
def test_as_many_cells_run_at_a_time_as_the_nodes_have_gpus_for(nodes, per_node, per_cell, together):
    cluster = Cluster(nodes=nodes, gpus_per_node=per_node, gpus_per_cell=per_cell)
    assert option(sbatch.cells_script(asking(cluster), FOLDER), "array") == f"0-3%{together}"


def test_one_seed_is_one_job_and_several_are_an_array():
    assert option(sbatch.dense_script(asking(), FOLDER), "array") is None
    assert option(sbatch.dense_script(asking(seeds=(3, 5, 8)), FOLDER), "array") == "0-2"


@pytest.mark.parametrize(("task", "seed"), [("0", "3"), ("2", "8"), (None, "3")])
def test_every_element_of_the_dense_array_trains_its_own_seed(task, seed, tmp_path):
    """Run by bash, with commands that only repeat their arguments."""
    text = sbatch.dense_script(asking(Cluster(), seeds=(3, 5, 8)), tmp_path / "a folder")
    environment = {} if task is None else {"SLURM_ARRAY_TASK_ID": task}
    heard = subprocess.run(
        ["bash"], input='srun() { printf "%s\\n" "$@"; }\n' + text, text=True, capture_output=True, check=True,
        env=environment,
    )  # fmt: skip
    assert heard.stdout.splitlines() == ["lottery", "train", str(tmp_path / "a folder"), "--seed", seed]


def test_every_element_of_an_array_has_a_log_of_its_own():
    assert option(sbatch.cells_script(asking(), FOLDER), "output") == f"{FOLDER}/slurm/logs/cells-%A_%a.out"
    assert option(sbatch.dense_script(asking(seeds=(0, 1)), FOLDER), "output") == f"{FOLDER}/slurm/logs/dense-%A_%a.out"
    assert option(sbatch.dense_script(asking(), FOLDER), "output") == f"{FOLDER}/slurm/logs/dense-%j.out"


@pytest.mark.parametrize("part", SCRIPTS)
def test_a_requeued_job_goes_on_in_its_log(part):
    assert {"--requeue", "--open-mode=append"} <= set(options(SCRIPTS[part](asking(), FOLDER)))


# ---- paths and the chain


@pytest.mark.parametrize("part", SCRIPTS)
def test_a_folder_with_a_space_stays_one_word(part):
    folder = Path("my results/small-0123abcdef")
    assert str(folder) in shlex.split(work(SCRIPTS[part](asking(), folder))[-1])


@pytest.mark.parametrize("part", SCRIPTS)
def test_a_log_in_a_folder_with_a_space_stays_one_word(part):
    """sbatch reads quotes in its #SBATCH lines as a shell would."""
    text = SCRIPTS[part](asking(), Path("my results/small-0123abcdef"))
    words = [word for line in options(text) for word in shlex.split(line)]
    assert f"--output=my results/small-0123abcdef/slurm/logs/{part}-%" in " ".join(words)
    assert all(word.startswith("--") for word in words)


def test_a_sweep_without_cells_has_no_array():
    said = made_up.refusal(lambda: sbatch.cells_script(asking(quantiles=()), FOLDER))
    assert said.startswith("prune.quantiles: received []")


def test_the_chain_submits_the_three_scripts_each_after_the_one_before():
    assert sbatch.chain(FOLDER).splitlines() == [
        "dense=$(sbatch --parsable results/small-0123abcdef/slurm/dense.sh)",
        'cells=$(sbatch --parsable --dependency=afterok:"$dense" --kill-on-invalid-dep=yes '
        "results/small-0123abcdef/slurm/cells.sh)",
        'sbatch --dependency=afterany:"$cells" results/small-0123abcdef/slurm/report.sh',
    ]


def test_the_chain_hands_job_numbers_on_and_keeps_folders_with_spaces_whole():
    """Run by bash, with an sbatch that repeats its arguments and gives job numbers."""
    fake = 'sbatch() { printf "%s|" "$@" >&2; echo >&2; echo $((100 + $#)); }\n'
    heard = subprocess.run(
        ["bash", "-eu"], input=fake + sbatch.chain(Path("my results")), text=True, capture_output=True, check=True
    )
    assert heard.stderr.splitlines() == [
        "--parsable|my results/slurm/dense.sh|",
        "--parsable|--dependency=afterok:102|--kill-on-invalid-dep=yes|my results/slurm/cells.sh|",
        "--dependency=afterany:104|my results/slurm/report.sh|",
    ]


def test_written_scripts_lie_where_the_chain_looks_with_a_folder_for_their_logs(tmp_path):
    made = made_up.experiment()
    place = sbatch.write_scripts(made, tmp_path)
    assert {path.name: path.read_text() for path in place.glob("*.sh")} == sbatch.scripts(made, tmp_path)
    assert all(str(place / name) in sbatch.chain(tmp_path) for name in ("dense.sh", "cells.sh", "report.sh"))
    logs = [line.partition("=")[2] for text in sbatch.scripts(made, tmp_path).values() for line in text.splitlines()
            if line.startswith("#SBATCH --output=")]  # fmt: skip
    assert len(logs) == 3 and all(Path(log).parent.is_dir() for log in logs)
