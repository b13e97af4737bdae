"""What a user has who installs the package and never sees this folder: pages, published curves, experiment files."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.test_house import ROOT, imports_of

PACKAGES = ("models", "sweep", "slurm")

LOOK = """
import sys
from pathlib import Path
from sweep import files
from lottery.cli import main
from sweep.work.find import open_home
home = open_home("cifar10_resnet20", ("data.path=cifar",), Path("results"))
for task in ("dense-seed0", "ticket-q0.79-k10ep-seed0"):
    scores = {"test": {"top1": 0.9, "top5": 1.0, "loss": 0.1}, "validation": {"top1": 0.9}, "density": 0.21}
    circumstances = {"epochs": 182, "seconds": 1.0, "devices": 1, "hardware": "CPU", "steps_per_epoch": 391}
    files.write_json(home.folder_of(task) / "result.json", scores | circumstances)
sys.argv = ["lottery", "report", "cifar10_resnet20"]
sys.exit(main())
"""


@pytest.mark.slow
def test_installed_from_a_wheel_it_has_all_that_it_reads(tmp_path):
    source, target = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in (*PACKAGES, "experiments", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    words = ["install", "--no-deps", "--no-build-isolation", "--no-index", "--target", target, source]
    subprocess.run([*pip, *words], check=True)
    assert not [path.name for path in target.iterdir() if path.is_dir() and path.name not in (
        *PACKAGES, "experiments", "bin") and not path.name.endswith(".dist-info")]  # fmt: skip
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = os.environ | {"PYTHONPATH": str(target)}
    said = subprocess.run([sys.executable, "-c", LOOK], cwd=empty, env=environment, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert said.returncode == 0, said.stderr
    page = (empty / "results" / "cifar10_resnet20" / "report" / "report.html").read_text()
    assert "Renda, Frankle and Carbin" in page and page.startswith("<!doctype html>")
    where = subprocess.run([sys.executable, "-c", "import sweep; print(sweep.__path__[0])"], cwd=empty, env=environment,
                           check=True, capture_output=True, text=True)  # fmt: skip
    assert Path(where.stdout.strip()) == target / "sweep"


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "test" for line in lines]
    stated = [*project["dependencies"], *extras]
    declared = {line.split("=")[0].split(">")[0].lower() for line in stated}
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    modules = {name.split(".")[0] for path in files for name in imports_of(path)} - sys.stdlib_module_names
    owners = packages_distributions()
    unknown = {
        module for module in modules - {*PACKAGES, "experiments", "__future__"}
        if not {name.lower() for name in owners.get(module, [module])} & declared
    }  # fmt: skip
    assert unknown == set()
