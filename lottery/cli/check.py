"""The commands check and schema: whether an experiment can run here or on the cluster, and what its file may say."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, Override, Results, print_json, read_home
from slurm import preflight
from sweep.progress import console, show


def check(
    experiment: ExperimentName,
    *overrides: Override,
    on: Annotated[Literal["local", "slurm"], Parameter(help="Where it would run")] = "local",
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """Check disk, data, devices, wandb, locks and clock; with --on slurm also SLURM's answer and what a node sees.

    Exit status 2 if something cannot work.
    Example: lottery check experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz --on slurm
    """
    home = read_home(experiment, overrides, results)
    found = list(preflight.look(home, on == "slurm"))
    wrong = [one for one in found if one.state == "wrong"]
    if json_:
        print_json(found)
    else:
        table = Table("", "", "found", "what to do")
        for one in found:
            table.add_row(one.what, {"ok": "ok", "warning": "?", "wrong": "FAIL"}[one.state], one.found, one.remedy)
        show(table)
        console.print("check failed" if wrong else "all checks passed")
    return 2 if wrong else 0


def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of experiment files, with which an editor completes and checks keys.

    Example: lottery schema > schema.json, and in a file's first line # yaml-language-server: $schema=schema.json
    """
    from sweep.experiment import reading

    print_json(reading.schema())
