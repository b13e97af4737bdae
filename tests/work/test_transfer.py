"""Tickets found on one data set and trained on another, and training from given weights."""

from __future__ import annotations

import csv
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

from models import build
from sweep import data, files
from sweep.experiment import BEGINNING, point
from sweep.experiment.file import load
from sweep.graph.home import Home
from sweep.graph.mask_file import read_own_mask
from sweep.graph.results import classes_of, images_tested, results_of
from sweep.graph.snapshot_file import adopted_weights, read_weights
from sweep.report.findings import findings
from sweep.work.find import open_home, read_home
from sweep.work.inputs import open_inputs
from sweep.work.worker import Worker
from tests.commands import lottery
from tests.conftest import once
from tests.synthetic import refusal

SOURCE = """
model: {name: resnet8, width: 0.25}
data: {name: digits, channels: rgb}
recipe: {epochs: 2, batch: 64, learning_rate: 0.1}
prune: {quantiles: [0.5], rewind: [0, 1ep]}
"""
MOVED = """
transfer: {source: digits.yaml}
data: {name: synthetic, classes: 4, images: 64, image_size: 8}
recipe: {epochs: 2, batch: 32, learning_rate: 0.05}
prune: {quantiles: [0.5], rewind: [0, 1ep], controls: [fresh, random]}
"""


@pytest.fixture
def files_of(tmp_path) -> Path:
    (tmp_path / "digits.yaml").write_text(SOURCE)
    (tmp_path / "moved.yaml").write_text(MOVED)
    return tmp_path


@pytest.fixture(scope="module")
def moved(tmp_path_factory) -> Home:
    """A finished transfer from digits to synthetic images of 4 classes."""
    folder = tmp_path_factory.mktemp("transfer")
    (folder / "digits.yaml").write_text(SOURCE)
    (folder / "moved.yaml").write_text(MOVED)
    results = once(tmp_path_factory, "moved", "sweep", folder / "moved.yaml")
    return read_home(str(folder / "moved.yaml"), (), results)


def test_a_transfer_asks_for_the_dense_runs_of_both_data_sets_and_shares_those_of_the_source(files_of):
    home, source = (read_home(str(files_of / f"{name}.yaml"), (), files_of) for name in ("moved", "digits"))
    assert home.training("source-seed0").name == source.training("dense-seed0").name
    assert home.training("dense-seed0").name != source.training("dense-seed0").name
    ticket, own = home.training("ticket-q0.5-k1ep-seed0"), source.training("ticket-q0.5-k1ep-seed0")
    assert ticket.mask.name == own.mask.name and ticket.start == own.start and ticket.name != own.name
    assert ticket.begin == BEGINNING and own.begin != BEGINNING  # on the new data it sees all of the schedule
    assert [one.slug for one in ticket.needs] == ["source-seed0"]


def test_what_is_given_beside_the_name_of_the_source_counts_more(files_of):
    experiment = load(files_of / "moved.yaml", ["transfer.recipe.batch=32"])
    assert experiment.transfer.source == "digits" and experiment.model.name == "resnet8"
    assert (experiment.transfer.recipe.batch, experiment.transfer.recipe.learning_rate) == (32, 0.1)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("transfer.source=nowhere.yaml", "nowhere.yaml: No such file"),
        ("model.name=resnet20", "model.name: received 'resnet20', expected resnet8, the one of digits.yaml"),
        ("prune.lr_rewind=[1ep]", "transfer.source: received 'digits', expected with it prune.rounds 1"),
        ("recipe.rewind_momentum=true", "expected false with transfer.source: momentum is not carried to other data"),
        ('transfer.source=""', "expected with it transfer.source"),
        ("transfer.recipe.milestones=[1]", "transfer.recipe.milestones: received [1], expected epochs where"),
        ("prune.rewind=[5ep]", "prune.rewind: received ['5ep'], expected points of training before epoch 2"),
        ("transfer.data.channels=auto", "data.channels: synthetic has 3 and digits 1; expected as many"),
    ],
)
def test_a_transfer_that_makes_no_sense_is_refused_in_one_line_and_nothing_is_written(files_of, override, words):
    extra = ["transfer.data.pad=1"] if override.startswith('transfer.source="') else []
    done = lottery("sweep", files_of / "moved.yaml", override, *extra, "--results", files_of / "out", check=2)
    assert words in done.stderr and "Traceback" not in done.stderr and not (files_of / "out").exists()


def test_missing_images_of_the_source_are_named_as_the_sources(files_of):
    words = (files_of / "moved.yaml", "transfer.data.name=cifar10", "transfer.data.path=/nowhere")
    for command in ("sweep", "sbatch"):
        done = lottery(command, *words, "--results", files_of / "out", check=2)
        assert done.stderr.startswith("lottery: transfer.data.path: nothing at /nowhere; ")


def test_a_file_that_is_its_own_source_is_refused(tmp_path):
    (tmp_path / "one.yaml").write_text("transfer: {source: other.yaml}\n")
    (tmp_path / "other.yaml").write_text("transfer: {source: one.yaml}\n")
    assert refusal(lambda: load(tmp_path / "one.yaml")).endswith("expected an experiment that is not its own source")
    (tmp_path / "other.yaml").write_text("recipe: {epochs: 7}\n")
    extra = ("transfer.source=other.yaml", "recipe.epochs=3")  # the same file with other values
    found = load(tmp_path / "other.yaml", extra)
    assert (found.recipe.epochs, found.transfer.recipe.epochs) == (3, 7)


@pytest.mark.tensorflow
def test_a_transferred_ticket_has_the_sources_weights_and_mask_and_a_classifier_of_its_own(moved):
    ticket = moved.training("ticket-q0.5-k1ep-seed0")
    inputs = open_inputs(moved, ticket, Worker(moved, quiet=True))
    network, mask = inputs.mask.network, inputs.mask.mask
    source, weights, _ = read_weights(moved.starts(ticket)[0])
    ours, theirs = network.named(inputs.weights[0]), source.named(weights)
    shared = [name for name in ours if not name.startswith(network.layers[-1].name)]
    assert len(shared) == len(ours) - 2 and all((ours[name] == theirs[name]).all() for name in shared)
    classifier = network.named(network.initial(0))[f"{network.layers[-1].name}/kernel"]
    assert (ours[f"{network.layers[-1].name}/kernel"] == classifier).all()
    found = source.split("kernel", read_own_mask(moved, ticket.mask).mask)
    laid = network.split("kernel", mask)
    assert laid[f"{network.layers[-1].name}/kernel"].all()
    assert all((laid[name] == found[name]).all() for name in laid if name in shared)


@pytest.mark.tensorflow
def test_rewind_points_of_a_transfer_count_the_steps_of_the_source(moved):
    per_epoch = {one.kind: result["steps_per_epoch"] for one, result in results_of(moved).items()}
    assert per_epoch["source"] != per_epoch["dense"]
    assert findings(moved).steps(point("1ep")) == per_epoch["source"]
    assert classes_of(moved) == 4  # those of its own data, for what guessing would reach


@pytest.mark.tensorflow
def test_a_program_is_gone_before_the_next_one_reads_its_images(moved, monkeypatch):
    """Resident images of both would need twice the memory."""
    worker, left = Worker(moved, quiet=True), list[bool]()
    first = weakref.ref(worker.program(moved.training("source-seed0")))
    opened = data.open_dataset
    monkeypatch.setattr(data, "open_dataset", lambda asked: left.append(first() is not None) or opened(asked))
    worker.program(moved.training("dense-seed0"))
    assert left == [False]


@pytest.mark.tensorflow
def test_a_random_control_leaves_the_new_classifier_whole_as_its_ticket_does(moved):
    worker, kept = Worker(moved, quiet=True), {}
    for kind in ("ticket", "random"):
        found = open_inputs(moved, moved.training(f"{kind}-q0.5-k0-seed0"), worker).mask
        kept[kind] = found.network.split("kernel", found.mask)
    classifier = f"{found.network.layers[-1].name}/kernel"
    assert all(laid[classifier].all() for laid in kept.values())
    ticket, random = (sum(int(part.sum()) for part in laid.values()) for laid in kept.values())
    assert ticket == random and any((kept["ticket"][name] != kept["random"][name]).any() for name in kept["ticket"])


@pytest.mark.tensorflow
def test_the_rows_of_a_transfer_say_both_data_sets_and_its_controls_keep_as_many_weights(moved):
    with open(moved.report / "results.csv") as f:
        rows = {row["kind"]: row for row in csv.DictReader(f)}
    assert (rows["ticket"]["data"], rows["ticket"]["found_on"]) == ("synthetic", "digits")
    assert (rows["source"]["data"], rows["dense"]["data"]) == ("digits", "synthetic")
    assert rows["random"]["kept"] == rows["fresh"]["kept"] == rows["ticket"]["kept"]
    assert {row["rewind"] for row in rows.values()} >= {"0", "1ep"}
    assert all(row["state"] == "done" for row in rows.values())
    tested = {training.kind: result["test_images"] for training, result in results_of(moved).items()}
    assert images_tested(results_of(moved)) == tested["ticket"] != tested["source"]


@pytest.mark.tensorflow
@pytest.mark.parametrize("form", ["h5", "npz", "keras", "training"])
def test_a_training_starts_from_given_weights_and_is_named_by_them(moved, form, tmp_path):
    name = moved.training("source-seed0").name
    final = moved.pool / "trainings" / name / "snapshots" / "final.h5"
    network, weights, _ = read_weights(final)
    path, pool = tmp_path / f"given.{form}", tmp_path / "results"
    if form == "keras":
        from models.keras_model import keras_model

        keras_model(network, weights).save(path)
    elif form == "npz":
        np.savez(path, **network.named(weights))
    elif form == "h5":
        path.write_bytes(final.read_bytes())
    else:
        path, there = name, pool / "trainings" / name / "snapshots" / "final.h5"
        there.parent.mkdir(parents=True)
        there.write_bytes(final.read_bytes())
    (tmp_path / "given.yaml").write_text(MOVED.replace("transfer: {source: digits.yaml}", SOURCE.splitlines()[1]))
    home = read_home(str(tmp_path / "given.yaml"), (f"model.weights={path}",), pool)
    plain = read_home(str(tmp_path / "given.yaml"), (), pool)
    dense, fresh = home.training("dense-seed0"), home.training("fresh-q0.5-k0-seed0")
    assert dense.name != plain.training("dense-seed0").name
    worker = Worker(home, quiet=True)
    start = open_inputs(home, dense, worker).start()
    expected = adopted_weights(final, worker.program(dense).network, 0)
    assert all((one == other).all() for one, other in zip(start.weights, expected, strict=True))
    assert fresh.start.given == "" and home.training("ticket-q0.5-k0-seed0").start.given


def test_weights_on_record_stay_known_when_their_file_is_gone_and_a_wrong_name_is_refused(files_of):
    (files_of / "mine.npz").write_bytes(b"weights")
    final = files_of / "trainings" / "dense-seed0-0123456789" / "snapshots" / "final.h5"
    final.parent.mkdir(parents=True)
    final.write_bytes(b"others")
    for word, path in ((str(files_of / "mine.npz"), files_of / "mine.npz"), ("dense-seed0-0123456789", final)):
        words = ("digits.yaml", (f"model.weights={word}", f"name={path.stem}"), files_of)
        before = open_home(str(files_of / words[0]), *words[1:]).experiment.model
        astray = (f"model.weights=nowhere/{path.name}", f"name={path.stem}")  # not the file on record, which is there
        assert "No such file" in refusal(
            lambda astray=astray: read_home(str(files_of / "digits.yaml"), astray, files_of)
        )
        path.unlink()
        assert read_home(str(files_of / words[0]), *words[1:]).experiment.model == before
        moved = shutil.copytree(files_of, files_of.parent / f"moved-{path.stem}")  # with other absolute paths
        assert read_home(str(moved / words[0]), words[1], moved).experiment.model == before
        wrong = (f"model.weights={word}x", f"name={path.stem}")
        assert "expected a .h5, .npz or .keras file" in refusal(
            lambda wrong=wrong: read_home(str(files_of / "digits.yaml"), wrong, files_of)
        )


@pytest.mark.tensorflow
def test_weights_that_are_missing_damaged_or_of_another_network_are_refused_in_one_line(files_of):
    damaged = {"gone.h5": None, "cut.h5": b"nothing", "cut.keras": b"PK", "cut.npz": b"PK", "table.csv": b"1, 2"}
    for name, content in damaged.items():
        if content is not None:
            (files_of / name).write_bytes(content)
        words = ("sweep", files_of / "digits.yaml", f"model.weights={files_of / name}", "prune.quantiles=[]")
        done = lottery(*words, "prune.rewind=[]", "--results", files_of / "out", check=2)
        said = [line for line in done.stderr.splitlines() if name in line]
        assert said and "Traceback" not in done.stderr and "delete it" not in done.stderr, done.stderr
    other = build("resnet8", image_size=8, channels=3, classes=10, width=0.5)
    files.write_snapshot(files_of / "wide.h5", other, other.initial(0), {})
    words = ("sweep", files_of / "digits.yaml", f"model.weights={files_of / 'wide.h5'}")
    assert "belongs to another network" in lottery(*words, "--results", files_of / "out", check=2).stderr


@pytest.mark.tensorflow
def test_a_model_of_keras_applications_gives_its_weights_but_for_the_classifier(tmp_path):
    import keras

    published = keras.applications.MobileNetV2((32, 32, 3), 0.35, include_top=False, weights=None)
    published.save(tmp_path / "published.keras")
    network = build("mobilenet_v2", image_size=32, channels=3, classes=7, width=0.35)
    named = network.named(adopted_weights(tmp_path / "published.keras", network, 3))
    assert (named["Conv1/kernel"] == np.asarray(published.get_layer("Conv1").kernel)).all()
    own = network.named(network.initial(3))
    assert (named[f"{network.layers[-1].name}/kernel"] == own[f"{network.layers[-1].name}/kernel"]).all()
