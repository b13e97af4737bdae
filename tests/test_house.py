"""The house: rooms import from rooms above them and from the ground, never from below, and never in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# from above to below; a room may import what stands before it. The ground stands before all rooms.
ROOMS = ["pruning", "experiment", "graph", "data", "training", "tracking", "work", "tuning", "report", "export",
         "bench"]  # fmt: skip
GROUND = {"errors", "files", "greetings", "progress", "interrupt", "hardware", "mps", "lock", "devices", "sharing",
          "utilisation"}  # fmt: skip


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports, anywhere in it, and names out of them."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            out |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return out


def imports(path: Path) -> set[str]:
    """Those of this project."""
    return {name for name in imports_of(path) if name.split(".")[0] in ("models", "sweep", "slurm", "lottery")}


def place(module: str) -> str:
    """The room or the stone of the ground that a module of sweep belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.xdist_group("house")
def test_groups_of_tests_hold(request):
    """Without them every test process would start its own SLURM and browser."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@house")


def test_every_folder_and_file_of_sweep_has_its_place():
    found = {path.stem for path in (ROOT / "sweep").iterdir() if not path.name.startswith("__")}
    assert found == set(ROOMS) | GROUND


def test_a_room_imports_only_from_rooms_above_it_and_from_the_ground():
    wrong = []
    for room in ROOMS:
        allowed = {*ROOMS[: ROOMS.index(room) + 1], *GROUND, ""}
        for path in [*(ROOT / "sweep" / room).rglob("*.py"), *(ROOT / "sweep").glob(f"{room}.py")]:
            for name in imports(path):
                above = name.startswith("sweep") and place(name) in allowed
                wrong += [] if above or name.startswith("models") else [f"{path.relative_to(ROOT)}: {name}"]
    assert wrong == []


def test_the_ground_stands_on_nothing_but_itself():
    allowed = GROUND | {""}
    for stone in GROUND:
        names = imports(ROOT / "sweep" / f"{stone}.py")
        assert all(name.startswith("models") or place(name) in allowed for name in names), (stone, names)


def test_arrows_run_one_way_from_lottery_to_slurm_to_sweep_to_models():
    order = ["models", "sweep", "slurm", "lottery"]
    for number, package in enumerate(order):
        for path in (ROOT / package).rglob("*.py"):
            assert {name.split(".")[0] for name in imports(path)} <= set(order[: number + 1]), path


MIDDLE = ("Of ", "The same", "As ", "That ", "By ", "With ", "Those ", "These ", "It ", "Its ", "So ")


def test_a_docstring_can_be_read_alone():
    wrong = []
    for path in [path for room in ("lottery", "slurm", "sweep", "models") for path in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                said = ast.get_docstring(node) or ""
                if said.startswith(MIDDLE):
                    wrong.append(f"{path.relative_to(ROOT)}: {said.splitlines()[0]}")
    assert wrong == []


def test_altair_is_loaded_only_where_something_is_drawn():
    drawing = "{'altair', 'vl_convert', 'jinja2'}"
    code = f"import sys, lottery.cli, lottery.api; sys.exit(bool({drawing} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
