"""The command `lottery`: what it answers, how fast, and how it refuses."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sweep import cli
from sweep.cli import show
from sweep.experiment_file import dump
from sweep.plan import cells
from sweep.store import open_store
from sweep.weights import QUANTILES
from tests import made_up
from tests.made_up import files_under

SMALL = """
model: {name: mobilenet_v2_small, width: 0.35}
data: {name: digits}
recipe: {epochs: 4, batch: 8}
prune: {quantiles: [0.5, 0.9], rewind_epochs: [0, 2]}
"""
ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder with the experiment file small.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def home(here):
    """The results folder of small.yaml, with nothing done yet."""
    experiment = made_up.experiment()
    return open_store(experiment, here / "results" / experiment.folder)


@pytest.fixture
def lottery(monkeypatch, capsys):
    """Runs the command in this process: its status and what it said."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lottery", *words])
        capsys.readouterr()
        status = cli.main()
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "sweep.cli", *words], capture_output=True, text=True, check=False)


def content(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with what changes when it is written."""
    return {name: ((folder / name).stat().st_ino, (folder / name).stat().st_mtime_ns) for name in files_under(folder)}


# ---- refusals: exit status 2, one line, nothing written

REFUSED = {
    "unknown key": ("sweep small.yaml recipe.epoch=3", "recipe.epoch: no such key; did you mean epochs?"),
    "unknown key in the file": ("sweep typo.yaml", "typo.yaml: recipe.epocs: no such key; did you mean epochs?"),
    "wrong type": ("sweep small.yaml recipe.epochs=many", "recipe.epochs: received 'many', expected a whole number"),
    "quantile above 1": ("sweep small.yaml prune.quantiles=[1.5]", "prune.quantiles: received 1.5, expected 0 up to"),
    "rewind past the end": ("sweep small.yaml prune.rewind_epochs=[4]", "prune.rewind_epochs: received 4, expected"),
    "malformed override": ("sweep small.yaml epochs", "'epochs': expected key.sub=value"),
    "data not given": ("sweep small.yaml data.name=cifar10", "data.path: not given; cifar10 needs its archive"),
    "data not there": ("train small.yaml data.name=cifar10 data.path=none.tar", "data.path: nothing at none.tar;"),
    "images not there": ("ticket small.yaml x data.name=folder data.path=none", "data.path: nothing at none; folder"),
    "no such file": ("sweep none.yaml", "none.yaml: No such file or directory; expected an experiment file"),
    "no such name": ("status none", "none: neither an experiment file nor under results/"),
    "a folder of something else": ("plan .", ".: no experiment.yaml in it; expected a results folder"),
    "unknown command": ("swep small.yaml", 'Unknown command "swep"'),
    "unknown option": ("sweep small.yaml --job 2", "--job"),
    "text for an option": ("sweep small.yaml --jobs many", "--jobs"),
    "no experiment": ("plan", "--experiment requires an argument"),
    "nothing to report": ("report small.yaml", "nothing there yet; lottery sweep small.yaml makes it"),
    "no weights yet": ("weights small.yaml", "final.h5: no such file; the step that writes it has not run"),
    "unknown cell": ("ticket small.yaml ticket-q0.5-k1-seed0", "no cell 'ticket-q0.5-k1-seed0' in small; did you mean"),
    "index past the end": ("ticket small.yaml --index 4", "--index 4: expected 0 to 3"),
    "unknown seed": ("train small.yaml --seed 7", "--seed 7: expected one of the experiment's seeds [0]"),
    "no job": ("sweep small.yaml --jobs 0", "--jobs 0: expected 1 or more"),
    "index and a wrong override": ("ticket small.yaml --index 0 recipe.epoch=3", "recipe.epoch: no such key"),
    "a folder that is not there": ("status /none/small", "/none/small: neither an experiment file nor under results/"),
    "network without a benchmark": ("bench step --model resnet21", "model.name: received 'resnet21', expected one of"),
}


def assert_refused(words: str, message: str) -> None:
    ended = command(*words.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("lottery: ")
    assert message in ended.stderr


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line_before_anything_is_written(here, words, message):
    (here / "typo.yaml").write_text(SMALL.replace("epochs: 4", "epocs: 4"))
    assert_refused(words, message)
    assert files_under(here) == ["small.yaml", "typo.yaml"]


REFUSED_CELLS = {
    "unknown cell": ("ticket small ticket-q0.5-k1-seed0", "no cell 'ticket-q0.5-k1-seed0' in small; did you mean"),
    "index past the end": ("ticket small --index 4", "--index 4: expected 0 to 3"),
    "index below 0": ("ticket small --index=-1", "--index -1: expected 0 to 3"),
    "neither cell nor index": ("ticket small", "give either the name of a cell or --index"),
    "cell and index": ("ticket small ticket-q0.5-k0-seed0 --index 0", "give either the name of a cell or --index"),
    "unknown seed": ("train small --seed 7", "--seed 7: expected one of the experiment's seeds [0]"),
    "no job": ("sweep small --jobs 0", "--jobs 0: expected 1 or more"),
    "another experiment": ("sweep small recipe.epochs=9", "recipe.epochs=9: makes another experiment than results/"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED_CELLS.values(), ids=REFUSED_CELLS)
def test_a_refusal_leaves_results_that_are_there_as_they_are(home, words, message):
    before = content(home.root)
    assert_refused(words, message)
    assert content(home.root) == before


@pytest.mark.parametrize("words", ["sweep small.yaml", "train small.yaml", "dry-run"])
def test_results_that_cannot_be_written_are_refused(here, words):
    (here / "in_the_way").write_text("a file")
    assert_refused(f"{words} --results in_the_way/results", "expected a folder that can be written")
    assert files_under(here) == ["in_the_way", "small.yaml"]


def test_results_of_another_experiment_under_the_same_name_are_refused(home):
    other = made_up.experiment(quantiles=(0.7,))
    (home.root / "experiment.yaml").write_text(dump(other))
    before = content(home.root)
    assert_refused("sweep small.yaml", f"hash {other.hash}, expected {home.experiment.hash}")
    assert content(home.root) == before


def test_an_ambiguous_name_is_refused_with_the_names_to_choose_from(home, lottery):
    other = made_up.experiment(quantiles=(0.7,))
    open_store(other, home.root.parent / other.folder)
    names = sorted([home.root.name, other.folder])
    status, _, said = lottery("status", "small")
    assert (status, said) == (
        2,
        f"lottery: small: several experiments of that name: {names[0]}, {names[1]}; give one of these\n",
    )


def test_a_name_is_not_ambiguous_because_another_begins_with_it(home, lottery):
    longer = made_up.experiment(name="small-er")
    open_store(longer, home.root.parent / longer.folder)
    assert json.loads(lottery("plan", "small", "--json")[1])["folder"] == f"results/{home.root.name}"


@pytest.mark.parametrize("words", [("report", "small"), ("weights", "small")])
def test_a_report_that_cannot_be_written_is_refused_in_one_line(weighed, lottery, words):
    home, _ = weighed
    home.report.write_text("a file in the way")
    status, _, said = lottery(*words)
    assert (status, said.count("\n")) == (2, 1)
    assert said.startswith(f"lottery: results/{home.root.name}/report")


def test_a_damaged_snapshot_is_refused_by_name(home, lottery):
    path = made_up.write_snapshot(home, made_up.network().initial(0), None)
    path.write_bytes(path.read_bytes()[:5000])
    status, _, said = lottery("weights", "small")
    assert (status, said.count("\n")) == (2, 1)
    assert f"{path.relative_to(home.root)}: truncated or not HDF5" in said


# ---- which experiment is meant


@pytest.mark.parametrize("word", ["small.yaml", "small", "{folder}", "results/{folder}", "results/{folder}/"])
def test_an_experiment_is_a_file_a_name_or_a_results_folder(home, lottery, word):
    status, said, _ = lottery("plan", word.format(folder=home.experiment.folder), "--json")
    assert status == 0
    assert json.loads(said)["folder"] == f"results/{home.experiment.folder}"


def test_results_may_be_anywhere(here, lottery):
    experiment = made_up.experiment()
    open_store(experiment, here / "elsewhere" / experiment.folder)
    for word in ("small.yaml", "small"):
        _, said, _ = lottery("plan", word, "--json", "--results", "elsewhere")
        assert json.loads(said)["folder"] == f"elsewhere/{experiment.folder}"


def test_an_override_of_a_finished_experiment_may_only_change_where_and_how(home, lottery):
    assert lottery("plan", "small", "cluster.nodes=3")[0] == 0
    assert lottery("plan", "small", "recipe.batch=16")[0] == 2


# ---- plan


def test_the_plan_lists_every_cell_in_its_order(here, lottery):
    status, said, _ = lottery("plan", "small.yaml")
    assert status == 0
    listed = re.findall(r"│ (\d+) │ (\S+) +│ (\d+) ", said)
    plan = cells(made_up.experiment())
    assert listed == [(str(i), cell.slug, str(4 - cell.rewind_epoch)) for i, cell in enumerate(plan)]
    assert "4 cells, 12 epochs; times are predicted once the dense run has been measured" in said
    assert files_under(here) == ["small.yaml"]


def test_the_plan_for_a_script_is_json(here, lottery):
    status, said, _ = lottery("plan", "small.yaml", "--json")
    found = json.loads(said)["cells"]
    assert status == 0
    assert [row["cell"] for row in found] == [cell.slug for cell in cells(made_up.experiment())]
    assert found[3] == {
        "index": 3,
        "cell": "ticket-q0.9-k2-seed0",
        "kind": "ticket",
        "rewind_epoch": 2,
        "epochs": 2,
        "seconds": None,
    }


def test_the_plan_predicts_times_from_the_epochs_of_the_dense_run(home, lottery):
    made_up.epochs(home.dense(0), 3, seconds=19.5)  # and half a second of evaluation
    _, said, _ = lottery("plan", "small", "--json")
    assert [row["seconds"] for row in json.loads(said)["cells"]] == [80.0, 80.0, 40.0, 40.0]
    _, said, _ = lottery("plan", "small", "cluster={nodes: 1, gpus_per_node: 2}")
    assert "4 cells, 12 epochs: 4 min 00 s one after the other" in said
    assert "at least 2 min 00 s with 2 at a time" in said


def test_the_plan_shows_the_job_scripts_as_they_are(home, lottery):
    from slurm import sbatch

    _, said, _ = lottery("plan", "small", "--on", "slurm")
    chain = sbatch.chain(home.experiment, home.root.resolve(), sbatch.everything(home.experiment))
    assert [job.part for job in chain] == ["dense", "masks", "cells", "report"]
    assert all(job.text in said for job in chain)
    assert lottery("sweep", "small", "--on", "slurm", "--dry-run")[1] in said


# ---- status and report, from files alone


@pytest.fixture
def unfinished(home):
    made_up.epochs(made_up.finish(home, "dense-seed0", 0.75), 4)
    made_up.epochs(made_up.finish(home, "ticket-q0.5-k0-seed0", 0.7, density=0.5, kept=1, prunable=2), 4)
    made_up.epochs(made_up.fail(home, "ticket-q0.9-k0-seed0", "loss is nan"), 1)
    made_up.epochs(home.cell("ticket-q0.5-k2-seed0"), 3)
    (home.cell("ticket-q0.5-k2-seed0") / "checkpoint.h5").touch()
    return home


def test_the_status_tells_what_is_done_begun_failed_and_waiting(unfinished, lottery):
    status, said, _ = lottery("status", "small", "--json")
    assert status == 0
    assert [(s["task"], s["state"], s["epoch"], s["note"], s["top1"]) for s in json.loads(said)] == [
        ("dense-seed0", "done", 4, "", 0.75),
        ("ticket-q0.5-k0-seed0", "done", 4, "", 0.7),
        ("ticket-q0.9-k0-seed0", "failed", 1, "loss is nan", None),
        ("ticket-q0.5-k2-seed0", "begun", 3, "", None),
        ("ticket-q0.9-k2-seed0", "waiting", 0, "", None),
    ]


def test_the_status_counts_and_gives_reasons(unfinished, lottery):
    before = content(unfinished.root)
    _, said, _ = lottery("status", "small")
    assert "2 done, 1 begun, 1 waiting, 1 failed" in said
    assert re.search(r"ticket-q0.9-k0-seed0 +│ failed +│ 1/4 +│ +│ loss is nan", said)
    assert re.search(r"dense-seed0 +│ done +│ 4/4 +│ 75.00%", said)
    assert content(unfinished.root) == before


def test_the_status_shows_a_reason_as_it_is_and_whole(unfinished, lottery):
    reason = "no room on [/job:localhost/replica:0] for [[{{node a}}]] :smile: " + "word " * 30
    made_up.fail(unfinished, "ticket-q0.9-k0-seed0", reason.strip())
    status, said, _ = lottery("status", "small")
    cells = [line.rpartition("│")[0].rpartition("│")[2].strip() for line in said.splitlines() if "│" in line]
    assert status == 0
    assert reason.replace(" ", "") in "".join(cells).replace(" ", "")


def test_the_status_of_an_experiment_that_was_never_run_is_waiting(here, lottery):
    status, said, _ = lottery("status", "small.yaml")
    assert (status, "5 waiting" in said) == (0, True)
    assert files_under(here) == ["small.yaml"]


def test_the_report_compares_with_the_dense_network_and_says_what_is_missing(unfinished, lottery):
    status, said, _ = lottery("report", "small")
    assert status == 0
    assert re.search(r"50.0% +│ 0 +│ 1 +│ 70.00% +│ -5.00 points +│ one seed", said)
    assert "3 of 5 trainings are not done" in said
    for path in re.findall(r"results/\S+/report/[\w.]+", said):
        assert Path(path).is_file()
    assert all(name in said for name in ("report.html", "results.csv", "results.tex", "accuracy.png"))


def test_the_report_averages_over_seeds(here, lottery):
    experiment = made_up.experiment(seeds=(0, 1))
    home = open_store(experiment, here / "results" / experiment.folder)
    for seed, top1 in ((0, 0.6), (1, 0.7)):
        made_up.finish(home, f"dense-seed{seed}", top1 + 0.1)
        made_up.finish(home, f"ticket-q0.5-k0-seed{seed}", top1, density=0.5)
    assert re.search(r"50.0% +│ 0 +│ 2 +│ 65.00% ± 63.53 +│ -10.00 points +│ worse", lottery("report", "small")[1])


def test_the_report_of_a_sweep_that_has_only_begun_works(home, lottery):
    status, said, _ = lottery("report", "small")
    assert (status, "5 of 5 trainings are not done" in said) == (0, True)
    assert files_under(home.report) == ["report.html", "results.csv", "results.tex"]


def test_the_report_for_a_script_is_json_and_writes_nothing(unfinished, lottery):
    before = content(unfinished.root)
    status, said, _ = lottery("report", "small", "--json")
    assert (status, [row["test_top1"] for row in json.loads(said)]) == (0, [0.75, 0.7, None, None, None])
    assert content(unfinished.root) == before


# ---- weights


@pytest.fixture
def weighed(home):
    """A final snapshot, and its weights."""
    weights = made_up.network().initial(1)
    made_up.write_snapshot(home, weights, None)
    return home, weights


def test_weights_of_all_kinds_and_prunable_ones_stand_side_by_side(weighed, lottery):
    status, said, _ = lottery("weights", "small")
    network = made_up.network()
    assert status == 0
    assert re.search("prunable weights +┃ all weights", said)
    assert re.search(rf"count +│ {network.prunable:,} +│ {network.parameters:,} ", said)
    assert network.prunable < network.parameters


def test_weights_for_a_script_have_the_quantiles_of_their_magnitude(weighed, lottery):
    home, weights = weighed
    status, said, _ = lottery("weights", "small", "--json")
    found = json.loads(said)
    assert (status, list(found)) == (0, ["prunable", "all"])
    assert QUANTILES == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    for name, values in (("prunable", weights.kernels), ("all", np.concatenate(weights))):
        assert found[name]["count"] == values.size
        for q in QUANTILES:
            assert found[name][f"|w| q{q}"] == pytest.approx(np.quantile(np.abs(values), q), rel=1e-6)
    assert not home.report.exists()


def test_weights_come_with_a_figure(weighed, lottery):
    home, _ = weighed
    _, said, _ = lottery("weights", "small")
    assert files_under(home.report) == ["weights-seed0.png", "weights-seed0.svg"]
    assert "weights-seed0.png" in said
    assert (home.report / "weights-seed0.png").read_bytes().startswith(b"\x89PNG")


def test_weights_of_every_kernel_are_shown_on_request(weighed, lottery, monkeypatch):
    names = [v.name for v in made_up.network().of("kernel")]
    monkeypatch.setattr(show.console, "width", 200)
    _, said, _ = lottery("weights", "small", "--layers")
    assert re.findall(r"│ (\S+/\S+) +│", said) == names
    assert list(json.loads(lottery("weights", "small", "--layers", "--json")[1])) == ["prunable", "all", *names]


# ---- help and speed


def test_completion_of_the_shell_knows_every_command(lottery, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    status, _, _ = lottery("--install-completion", "--shell", "bash")
    (script,) = tmp_path.rglob("completions/lottery")
    assert status == 0 and all(name.split()[0] in script.read_text() for name in COMMANDS)


COMMANDS = [
    "dry-run", "train", "masks", "sweep", "ticket", "plan", "status", "weights", "report", "sbatch", "retry", "cancel",
    "logs", "bench step", "wandb sync",
]  # fmt: skip


def test_every_command_is_tested_here_and_listed_in_the_help(lottery):
    top = {name for name in cli.app if not name.startswith("-")}
    assert top == {name.split()[0] for name in COMMANDS}
    status, said, _ = lottery("--help")
    assert status == 0
    assert all(re.search(rf"│ {name} ", said) for name in top)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_of_it(lottery, name):
    status, said, _ = lottery(*name.split(), "--help")
    assert status == 0
    example = re.search(rf"^Example: lottery {name}( .*)?$", said, re.MULTILINE)
    assert example
    for path in re.findall(r"experiments/\S+", example[0]):
        assert (ROOT / path).is_file()


ANSWERED = ["--help", "report --help", "plan small.yaml", "status small"]


@pytest.mark.parametrize("words", ANSWERED)
def test_looking_takes_less_than_a_second(unfinished, words):
    """Of processor time, which other tests beside this one do not stretch; the best of three."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    took: list[float] = []
    while len(took) < 3 and min(took, default=9) >= 1:
        before = used()
        assert command(*words.split()).returncode == 0
        took.append(used() - before)
    assert 0.05 < min(took) < 1  # nothing starts in less: that would be a measurement of nothing


def test_looking_does_not_import_tensorflow(unfinished):
    made_up.write_snapshot(unfinished, made_up.network().initial(0), None)
    lines = [*ANSWERED, "report small", "weights small", "plan small --sbatch", "sweep small.yaml data.name=cifar10"]
    code = f"""
import sys
from sweep.cli import main
for line in {lines}:
    sys.argv = ["lottery", *line.split()]
    main()
    loaded = {{"tensorflow", "keras", "wandb"}} & set(sys.modules)
    assert not loaded, (line, loaded)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
