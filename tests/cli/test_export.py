"""A ticket taken out of the dry run: named, evaluated and exported by commands."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from sweep.data import open_dataset
from sweep.experiment import Data
from sweep.export.formats import facts_in
from tests.commands import lottery
from tests.conftest import once
from tests.synthetic import content

pytestmark = pytest.mark.tensorflow


def result(dry_run: Path, training: str) -> dict:
    return json.loads((dry_run / "trainings" / training / "result.json").read_text())


@pytest.fixture(scope="session")
def dry_run(tmp_path_factory) -> Path:
    """The results of a dry run of a network that is traced sooner: tests/export has the blocks of MobileNet."""
    words = ("dry-run", "model.name=resnet8", "model.width=0.5", "recipe.epochs=4")
    return once(tmp_path_factory, "small_dry_run", *words, "prune.quantiles=[0.8]", "prune.control_quantiles=[0.8]")


@pytest.fixture(scope="module")
def best(dry_run) -> dict:
    return json.loads(lottery("best", dry_run / "dry_run", "--json").stdout)


def test_the_best_ticket_is_a_finished_one_with_its_accuracy_and_folder(dry_run, best):
    assert best["training"].startswith("ticket-") and Path(best["path"]).is_dir()
    assert best["test_top1"] == result(dry_run, best["training"])["test"]["top1"]
    said = lottery("best", dry_run / "dry_run").stdout
    assert best["training"] in said and "lottery export" in said


@pytest.mark.parametrize("split", ["test", "validation"])
def test_an_evaluation_gives_the_recorded_accuracy(dry_run, best, split, tmp_path):
    table = tmp_path / "predictions.csv"
    words = ("evaluate", dry_run / "dry_run", best["training"], "--split", split, "--predictions", table, "--json")
    found, recorded = json.loads(lottery(*words).stdout), result(dry_run, best["training"])[split]
    assert found["top1"] == pytest.approx(recorded["top1"], abs=1e-9)
    assert found["top5"] == pytest.approx(recorded["top5"], abs=1e-9)
    assert found["loss"] == pytest.approx(recorded["loss"], rel=1e-5)
    assert np.trace(found["confusion"]) == round(found["top1"] * found["images"])
    if split == "test":  # kept for the report
        kept = json.loads((Path(best["path"]) / "evaluation.json").read_text())
        assert kept["confusion"] == found["confusion"]
    with table.open() as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == found["images"] and list(found["per_class"]) == [str(i) for i in range(10)]
    assert sum(row["label"] == row["answer"] for row in rows) == np.trace(found["confusion"])


def test_an_experiment_alone_means_its_best_ticket(dry_run, best):
    done = lottery("evaluate", dry_run / "dry_run")
    assert f"best ticket: {best['training']}" in done.stderr and "calibration error" in done.stdout


@pytest.mark.parametrize("ending", [".tflite", ".keras", ".onnx", ""])
def test_an_exported_file_answers_as_the_training_does(dry_run, best, tmp_path, ending):
    path, another = tmp_path / f"ticket{ending}", tmp_path / "another"  # an experiment of the same name
    (another / "dry_run").mkdir(parents=True)
    given = (dry_run / "dry_run" / "experiment.yaml").read_text().replace("# checksum", "# none")
    (another / "dry_run" / "experiment.yaml").write_text(re.sub(r"learning_rate: \S+", "learning_rate: 0.03", given))
    said = lottery("export", dry_run / "dry_run", best["training"], "--to", path).stdout
    assert "100 % of answers as in training" in said
    facts = facts_in(path)
    assert facts["training"] == best["training"] and facts["classes"] == [str(i) for i in range(10)]
    nowhere = lottery("evaluate", path, "--results", tmp_path / "nowhere", check=2).stderr
    assert "from the experiment dry_run, which is not under" in nowhere
    other = lottery("evaluate", path, "--results", another, check=2).stderr
    assert f"its training {best['training']} is not in {another / 'dry_run'}" in other and other.count("\n") == 1
    found = json.loads(lottery("evaluate", path, "--results", dry_run, "--json").stdout)
    assert found["top1"] == pytest.approx(best["test_top1"], abs=1e-9)  # of all test images
    assert found["loss"] == pytest.approx(result(dry_run, best["training"])["test"]["loss"], rel=1e-4)


def test_a_training_is_evaluated_on_pictures_in_class_folders_and_its_confusion_drawn(dry_run, best, tmp_path):
    from PIL import Image

    test = open_dataset(Data("digits")).test
    for number, (image, label) in enumerate(zip(test.images, test.labels, strict=True)):
        (tmp_path / "own" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(tmp_path / "own" / str(label) / f"{number}.png")
    words = ("evaluate", dry_run / "dry_run", best["training"], "--on", tmp_path / "own")
    found = json.loads(lottery(*words, "--json", "--figure", tmp_path / "confusion.svg").stdout)
    assert found["top1"] == pytest.approx(best["test_top1"], abs=1e-9)
    assert (tmp_path / "confusion.svg").read_text().startswith("<svg") and (tmp_path / "confusion.png").exists()
    lottery("export", dry_run / "dry_run", best["training"], "--to", tmp_path / "ticket.keras")
    file = ("evaluate", tmp_path / "ticket.keras", "--on", tmp_path / "own", "--results", tmp_path / "nowhere")
    assert json.loads(lottery(*file, "--json").stdout)["confusion"] == found["confusion"]
    for path in (tmp_path / "own").glob("*/*.png"):  # 16 bits a pixel
        Image.fromarray(np.asarray(Image.open(path)).astype(np.uint16) << 8).save(path)
    assert json.loads(lottery(*words, "--json").stdout)["confusion"] == found["confusion"]
    (tmp_path / "own" / "3" / "broken.png").write_bytes(b"no picture")
    done = lottery(*words, check=2)
    assert "broken.png" in done.stderr and "expected a picture" in done.stderr


def test_images_that_are_not_there_are_not_taken_for_those_of_the_training(dry_run, best, tmp_path):
    (tmp_path / "other" / "cats").mkdir(parents=True)
    for words, right in (
        (tmp_path / "nowhere", "no such folder"),
        (tmp_path / "other", "folders named by the classes"),
    ):
        done = lottery("evaluate", dry_run / "dry_run", best["training"], "--on", words, check=2)
        assert right in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_a_damaged_file_is_refused_in_one_line(dry_run, tmp_path):
    for name in ("cut.keras", "cut.tflite", "cut.onnx", "cut.npz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 and no more")
        done = lottery("evaluate", tmp_path / name, "--results", dry_run, check=2)
        assert "expected a file that lottery export wrote" in done.stderr and len(done.stderr.splitlines()) == 1


def test_inference_is_timed_dense_sparse_and_int8_with_the_kernels_that_ran(dry_run, best):
    found = json.loads(lottery("bench", "inference", dry_run / "dry_run", "--rounds", 2, "--json").stdout)
    lines = {(one["variant"], one["threads"]): one for one in found}
    assert {name for name, _ in lines} == {"dense float32", "sparse float32", "sparse float16", "dense int8"}
    assert all(one["milliseconds"] > 0 and one["memory"] > 0 for one in found)
    assert lines["dense float32", 1]["sparse_operators"] == 0 and lines["dense int8", 1]["sparse_operators"] is None
    assert (
        lines["sparse float16", 1]["bytes"] < lines["sparse float32", 1]["bytes"] < lines["dense float32", 1]["bytes"]
    )


def test_from_python_the_best_ticket_is_a_keras_model(dry_run, best):
    from lottery import Sweep
    from sweep.data import open_dataset

    ticket = Sweep(dry_run / "dry_run").best()
    assert ticket.found.training == best["training"]
    test = open_dataset(Sweep(dry_run / "dry_run").experiment.data).test
    model = ticket.model()
    right = model.predict(test.images, verbose=0).argmax(1) == test.labels
    assert right.mean() == pytest.approx(best["test_top1"], abs=1e-9) and model.trainable_variables


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "ticket.pt"), "no such format"),
        (("--to", "ticket.keras", "--precision", "int8"), "Keras model is written in float32"),
        (("ticket-nowhere", "--to", "ticket.npz"), "no training 'ticket-nowhere'"),
        (("dense-seed0", "ticket-x", "--to", "ticket.npz"), "expected one training"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(dry_run, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    done = lottery("export", dry_run / "dry_run", *words, check=2)
    assert said in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_training_without_weights_is_said_to_have_none(dry_run, best, tmp_path):
    copy = shutil.copytree(dry_run, tmp_path / "results", ignore=shutil.ignore_patterns("final.h5"))
    done = lottery("export", copy / "dry_run", best["training"], "--to", tmp_path / "x.npz", check=2)
    assert f"{best['training']}: its weights are not in {copy}" in done.stderr and not (tmp_path / "x.npz").exists()


def test_a_colleague_evaluates_and_exports_from_a_record_with_weights(dry_run, best, tmp_path):
    said = lottery("record", dry_run / "dry_run", "--to", tmp_path / "bare").stdout
    assert "the weights of none" in said
    bare = lottery("report", tmp_path / "bare" / "dry_run", "--out", tmp_path / "page").stdout
    assert "next:" not in bare, "what has no weights cannot be exported"
    lottery("record", dry_run / "dry_run", "--weights", "--to", tmp_path / "record")
    before = content(tmp_path / "record")
    found = json.loads(lottery("evaluate", tmp_path / "record" / "dry_run", "--json").stdout)
    assert found["training"] == best["training"] and found["top1"] == pytest.approx(best["test_top1"], abs=1e-9)
    named = json.loads(lottery("best", tmp_path / "record" / "dry_run", "--json").stdout)
    assert named | {"path": ""} == best | {"path": ""} and named["path"] == str(tmp_path / "record")
    lottery("export", tmp_path / "record" / "dry_run", "--to", tmp_path / "ticket.npz")
    assert facts_in(tmp_path / "ticket.npz")["training"] == best["training"]
    assert content(tmp_path / "record") == before
