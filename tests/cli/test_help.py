"""Help, completion, and that looking loads nothing that takes long."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lottery import cli
from tests import synthetic

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


def test_it_tells_its_version(lottery):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert lottery("--version")[:2] == (0, f"{declared}\n")


def test_completion_of_the_shell_knows_every_command(lottery, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    status, _, _ = lottery("--install-completion", "--shell", "bash")
    (script,) = tmp_path.rglob("completions/lottery")
    assert status == 0 and all(name.split()[0] in script.read_text() for name in COMMANDS if name not in INTERNAL)


def test_the_shell_completes_experiments_and_the_trainings_of_one(unfinished, lottery):
    def offered(*words: str) -> set[str]:
        status, said, _ = lottery("__complete", *words)
        assert status == 0
        return set(said.splitlines())

    assert {"small", "small.yaml", "results/"} <= offered("status", "")
    assert "results/small/" in offered("status", "results/")
    slugs = {training.slug for training in unfinished.graph}
    assert slugs <= offered("logs", "small", "") and slugs <= offered("train", "small.yaml", "dense-seed0", "")
    assert not offered("logs", "unknown", "") & slugs


COMMANDS = [
    "dry-run", "check", "train", "masks", "sweep",
    "plan", "status", "weights", "report", "record", "sbatch", "supervise", "rescue", "retry",
    "cancel", "logs", "tune", "tidy", "bench step", "bench scaling", "bench input", "bench packing",
    "bench inference",
    "wandb sync", "wandb dashboard", "wandb report",
    "data prepare", "data inspect", "schema", "best", "evaluate", "export", "compare", "profile",
]  # fmt: skip
INTERNAL = ("rescue", "supervise")  # jobs call them


def test_every_command_is_tested_here_and_listed_in_the_help(lottery):
    top = {name for name in cli.app if not name.startswith("-")}
    assert top == {name.split()[0] for name in COMMANDS}
    status, said, _ = lottery("--help")
    assert status == 0
    assert all(bool(re.search(rf"│ {name} ", said)) == (name not in INTERNAL) for name in top)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_of_it(lottery, name):
    status, said, _ = lottery(*name.split(), "--help")
    assert status == 0
    example = re.search(rf"^Example: lottery {name}( .*)?$", said, re.MULTILINE)
    assert example
    for path in re.findall(r"experiments/\S+", example[0]):
        assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_explained(name):
    _, commands, _ = cli.app.parse_commands(name.split())
    arguments = commands[-1].assemble_argument_collection(parse_docstring=True)
    assert [argument.name for argument in arguments if not argument.parameter.help] == []


ANSWERED = ["--help", "report --help", "plan small.yaml", "status small"]


@pytest.mark.slow
def test_looking_does_not_import_tensorflow(unfinished):
    synthetic.write_snapshot(unfinished, synthetic.network().initial(0), None)
    lines = [*ANSWERED, "report small", "weights small", "plan small --on slurm", "sweep small.yaml data.name=cifar10"]
    code = f"""
import sys
from lottery.cli import main
for line in {lines}:
    sys.argv = ["lottery", *line.split()]
    main()
    loaded = {{"tensorflow", "keras", "wandb", *({{"pydantic"}} if "--help" in line else ())}} & set(sys.modules)
    assert not loaded, (line, loaded)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
