"""Small experiments that train for real in seconds, and the programs that tests run beside them."""

from __future__ import annotations

import dataclasses
import fcntl
import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import settings

from models import NETWORKS, Network
from sweep.experiment import Cluster, Data, Experiment, Model, Prune, Recipe, method, point
from sweep.experiment import file as experiment_file
from tests import slurm_cluster
from tests.commands import lottery
from tests.networks import one_convolution

gc.set_threshold(50_000)  # as lottery.__main__ sets it
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # as lottery.cli sets it: TensorFlow without Keras and scikit-learn
# a loaded machine fails no test, and a run is repeatable
settings.register_profile("no clock", deadline=None, derandomize=True, database=None)
settings.load_profile("no clock")
PROGRAMS = {"slurm", "mpiexec", "browser"}  # fixtures that start daemons and other programs
# modules and folders whose fixtures are costly, compiled programs and imported libraries among them; the longest first
TOGETHER = ("shards", "replicas", "tests/training/", "rounds", "tests/export/", "page", "tests/tracking/")
# 3 to 30 CPU-seconds each
SWEEPS = ("tests/work/", "tests/slurm/", "tests/test_extending.py", "tests/cli/test_export.py")


class OnlyExamples:
    """Modules without an example in a docstring are not loaded to look for one: with Keras and wandb, that took every
    test process 1.6 of 10.6 CPU-seconds before its first test."""

    @staticmethod
    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        module = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
        return True if module and ">>> " not in collection_path.read_text() else None


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(OnlyExamples())


def pytest_itemcollected(item: pytest.Item) -> None:
    """What starts programs is marked so, and what shares costly fixtures has one group: one test process for it.

    Of the tests of SLURM those of two files, and the others: one process for all of them would be the last to end;
    of the drills, which are long, each by itself.
    """
    names, file = _fixtures(item), item.nodeid.partition("::")[0]
    if names & PROGRAMS:
        item.add_marker(pytest.mark.programs)
    if item.get_closest_marker("drill"):
        return
    if "slurm" in names:
        ours = file.endswith(("test_slurm.py", "test_inside_jobs.py"))
        item.add_marker(pytest.mark.xdist_group("slurm" if ours else "slurm, the others"))
    elif word := _together(file):
        item.add_marker(pytest.mark.xdist_group(word))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no process is alone at the end: SLURM, other groups, whole sweeps, the small last."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, int]:
    if "slurm" in _fixtures(item):
        return 0, 0
    if word := _together(item.nodeid.partition("::")[0]):
        return 1, TOGETHER.index(word)
    if "tensorflow" not in item.keywords and "programs" not in item.keywords:
        return 3, 0
    return 2, 0 if item.nodeid.startswith(SWEEPS) else 1


def _together(file: str) -> str:
    return next((word for word in TOGETHER if word in file), "")


def _fixtures(item: pytest.Item) -> set[str]:
    """By name, those among them that a parameter asks for."""
    chosen = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return set(getattr(item, "fixturenames", ())) | {value for value in chosen if isinstance(value, str)}


def tiny(**recipe: Any) -> Experiment:
    """A very narrow ResNet-8 on made-up images of 8 pixels: 3 epochs of 4 steps."""
    settings = {"epochs": 3, "batch": 16, "learning_rate": 0.05, "weight_decay": 1e-3, "nesterov": True} | recipe
    return Experiment(
        name="tiny",
        model=Model("resnet8", 0.25),
        data=Data("synthetic", image_size=8, classes=4, images=74, validation=10, pad=1, flip=True),
        recipe=Recipe(**settings),
        prune=Prune(quantiles=(0.5, 0.8), methods=(method("magnitude/uniform"),), rewind=(point(0), point("1ep"))),
        cluster=Cluster(cpus_per_gpu=1, memory_per_gpu="500M", array_parallelism=2),
    )


def smaller(**recipe: Any) -> Experiment:
    """`tiny` with a network of one convolution, traced in half the time: where it is not the network that is tested.

    For the fixture `program`, or where NETWORKS has been given its name.
    """
    return dataclasses.replace(tiny(**recipe), model=Model("one_convolution", 0.25))


def connected_mask(network: Network, quantile: float = 0.7, seed: int = 1) -> np.ndarray:
    """A random mask that leaves something of every kernel: one that cuts the network through would test nothing."""
    from sweep.pruning.allocations import uniform
    from sweep.pruning.masks import kernel_shapes

    return uniform(np.random.default_rng(seed).random(network.prunable), kernel_shapes(network), quantile)


@pytest.fixture(scope="session")
def devices() -> Any:
    """TensorFlow's devices, set up once per process, before the first test that computes anything."""
    from sweep.devices import prepare

    return prepare()


@pytest.fixture(autouse=True)
def _devices_first(request) -> None:
    if request.node.get_closest_marker("tensorflow"):
        request.getfixturevalue("devices")


@pytest.fixture(scope="session")
def program(devices) -> Callable[..., Any]:
    """Makes the program of an experiment on one device; equal experiments share one, as the cells of a sweep do."""
    from sweep.data import open_dataset
    from sweep.training.program import Program

    made: dict[Any, Any] = {}

    def make(experiment: Experiment, use_mask: bool = True) -> Any:
        key = (dataclasses.replace(experiment, prune=Prune()), use_mask)
        if key not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(NETWORKS, "one_convolution", one_convolution)
                made[key] = Program(experiment, open_dataset(experiment.data), devices, use_mask)
        return made[key]

    return make


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("experiments") / "tiny.yaml"
    path.write_text(experiment_file.dump(tiny()))
    return path


@pytest.fixture(scope="session")
def undisturbed(tiny_file, tmp_path_factory) -> Path:
    """The results of the tiny sweep, run in one process, once for all test processes. Only to be read."""
    return once(tmp_path_factory, "undisturbed", "sweep", tiny_file)


DRY_RUN = ("dry-run", "recipe.epochs=4", "prune.quantiles=[0.5]", "prune.control_quantiles=[0.5]")


@pytest.fixture(scope="session")
def dry_run(tmp_path_factory) -> Path:
    """The results of a dry run of few epochs, likewise."""
    return once(tmp_path_factory, "dry_run", *DRY_RUN)


def once(tmp_path_factory: Any, name: str, *words: object) -> Path:
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    results, made = base / name, base / f"{name}.made"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            lottery(*words, "--results", results)
            made.touch()
    return results


@pytest.fixture
def trained(undisturbed, tmp_path) -> Path:
    """A results root in which the dense run of the tiny sweep is done, and nothing else."""
    left_out = shutil.ignore_patterns("ticket-*", "masks", "report")
    return Path(shutil.copytree(undisturbed, tmp_path / "results", ignore=left_out))


def need(programs: list[str], why: str) -> None:
    """Skip where programs are missing, and say so; fail where all components are required, as in CI."""
    if programs:
        without(f"{why}: not installed: {', '.join(programs)}")


def without(said: str) -> NoReturn:
    """Skip a test whose component cannot run on this machine, for one line of reason; fail where all are required."""
    said = said.strip().partition("\n")[0]
    pytest.fail(said, pytrace=False) if os.environ.get("REQUIRE_ALL_COMPONENTS") else pytest.skip(said)


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[slurm_cluster.Cluster]:
    need(slurm_cluster.missing_programs(), "a real SLURM")
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a time-out of CI must not leave daemons behind
    try:
        with ExitStack() as stack:
            try:
                cluster = stack.enter_context(slurm_cluster.Cluster())
            except slurm_cluster.CannotStart:  # another program may have taken a port in the meantime
                cluster = stack.enter_context(slurm_cluster.Cluster())
            yield cluster
    except slurm_cluster.CannotStart as error:
        without(f"a real SLURM cannot start here: {error}")
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def slurm(started_cluster, monkeypatch, request) -> Iterator[slurm_cluster.Cluster]:
    """A real SLURM cluster with an empty queue, as a user's shell on its login node sees it."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(started_cluster.conf))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{slurm_cluster.PATH}")
    yield started_cluster
    if request.node.stash.get(FAILED, False):
        print(started_cluster.described())  # before the queue is cleared: what the cluster looked like then
    started_cluster.clear()


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def mpiexec() -> Iterator[str]:
    found, began = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"), time.time()
    need([] if found else ["mpiexec"], "a real MPI")
    yield str(found)
    slurm_cluster.remove_shared_memory(began)
