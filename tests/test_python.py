"""The sweep from Python does what the command does."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from lottery import Sweep
from sweep.errors import Refused
from tests.commands import csv_of
from tests.sleeping_sweep import ran, sleeping_sweep

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
NUMPY = NOTEBOOK.with_name("results.md")


@pytest.fixture
def done(undisturbed, tmp_path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "results"))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.drill)])
def test_opened_run_and_looked_at_it_gives_what_the_command_gave(jobs, trained, tiny_file, undisturbed):
    sweep = Sweep(tiny_file, results=trained)
    assert repr(sweep) == f"{trained / 'tiny'}: 5 trainings, 4 of them missing"
    assert list(sweep.status()["state"]) == ["done", *["waiting"] * 4]
    assert sweep.run(jobs=jobs) == []
    page, *others = sweep.report()
    assert page.name == "report.html" and all(path.exists() for path in others)
    assert csv_of(trained) == csv_of(undisturbed)


@pytest.mark.tensorflow
def test_the_tables_are_those_of_the_report(done):
    sweep = Sweep("tiny", results=done)
    rows = list(csv.DictReader(io.StringIO(csv_of(done))))
    found = sweep.results()
    assert list(found["training"]) == [row["training"] for row in rows]
    assert [repr(value) for value in found["test_top1"]] == [row["test_top1"] for row in rows]
    verdicts = sweep.verdicts()
    assert len(verdicts) == 4 and set(verdicts["outcome"]) == {"one seed"} and sweep.answer()
    assert set(sweep.charts()) == {"accuracy", "multiply_adds", "heatmap", "differences", "rewinds", "gains"}
    assert all(chart.to_dict()["config"] for chart in sweep.charts().values())


@pytest.mark.tensorflow
def test_without_pandas_a_table_is_a_list_of_dictionaries(done, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = Sweep("tiny", results=done).results()
    assert [row["state"] for row in found] == ["done"] * 5


def test_looking_writes_nothing_and_what_cannot_be_used_is_refused(tmp_path, tiny_file):
    Sweep(tiny_file, "seeds=[0,1]", results=tmp_path / "none").status()
    assert not (tmp_path / "none").exists()
    with pytest.raises(Refused, match=r"data.path: nothing at .*none"):
        Sweep("cifar10_resnet20", f"data.path={tmp_path / 'none'}", results=tmp_path / "none").run()
    assert not (tmp_path / "none").exists()
    with pytest.raises(Refused, match="jobs=-1: expected 1 or more"):
        Sweep(tiny_file, results=tmp_path / "none").run(jobs=-1)
    with pytest.raises(Refused, match="margin nan: expected a share"):
        Sweep(tiny_file, results=tmp_path / "none").verdicts(margin=float("nan"))
    with pytest.raises(Refused, match="seeds: received"):
        Sweep(tiny_file, "seeds=[]", results=tmp_path)


def test_on_slurm_it_is_submitted_waited_for_and_cancelled(slurm, tmp_path):
    file, home = sleeping_sweep(tmp_path, 0.1)
    held = Sweep(file, "cluster.options=[--hold]", results=home.pool)
    assert set(held.submit()) == {"masks", "cells", "report"}
    with pytest.raises(Refused, match="jobs wait or run on SLURM"):
        held.run()
    assert len(held.cancel()) == 6
    sweep = Sweep(file, results=home.pool)
    sweep.submit()
    assert sweep.wait() == [] and len(ran(home)) == 4 and set(sweep.status()["state"]) == {"done"}


@pytest.mark.drill
@pytest.mark.tensorflow
def test_results_are_read_with_numpy_as_documented(dry_run, tmp_path):
    (tmp_path / "results").symlink_to(dry_run)
    code = textwrap.dedent(NUMPY.read_text().partition("needed, only h5py:\n")[2].partition("\nThe mask has")[0])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("394560 prunable weights\n50.0% of weights remaining\n")


@pytest.mark.drill
@pytest.mark.tensorflow
def test_the_notebook_runs_on_the_results_of_the_dry_run(dry_run, tmp_path):
    import nbformat
    from jupyter_client import AsyncKernelManager
    from nbclient import NotebookClient

    (tmp_path / "results").symlink_to(dry_run)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    kept = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert any(kept), "it is shown with its outputs"
    with tempfile.TemporaryDirectory() as sockets:  # in files: a free port may be taken before the kernel listens
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        client = NotebookClient(notebook, km=kernel, timeout=600, resources={"metadata": {"path": tmp_path}})
        client.execute()
    said = [
        "".join(out.get("text", "") or out["data"].get("text/plain", "") for out in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert any("missing" in text for text in said) and any("outcome" in text for text in said)
    assert any("image/png" in out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", ()))
