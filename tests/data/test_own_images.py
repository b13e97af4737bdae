"""A newcomer's own pictures, from a folder to the report, and what may be wrong with them."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slurm.reading import images_of
from sweep.data import open_dataset
from sweep.data.folder import ORIENTATION, left_out, read, turned
from sweep.data.prepare import Options, _record, eight_bits
from sweep.data.sources import Source, listing
from sweep.errors import Refused
from sweep.experiment import Data, Experiment
from tests.commands import lottery

FILE = Path(__file__).parents[2] / "experiments" / "own_images.yaml"
SHORT = (
    "recipe.epochs=1", "recipe.warmup_epochs=0", "prune.quantiles=[0.5]", "prune.rewind=[0]", "prune.controls=[]",
    "prune.control_quantiles=[]", "prune.control_rewind=[]",
)  # fmt: skip


@pytest.fixture
def pictures(tmp_path) -> Path:
    """200 in 4 classes, each class a colour; sizes differ."""
    for i in range(200):
        split, kind = "val" if i % 5 == 0 else "train", i // 5 % 4
        pixels = np.random.default_rng(i).integers(0, 256, (40 + i % 7, 60 - i % 9, 3), np.uint8) // 4
        pixels[..., kind % 3] += 60 * (1 + kind // 3)
        to = tmp_path / "pictures" / split / f"kind{kind}" / f"{i:03d}.{'png' if i % 3 else 'jpg'}"
        to.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(to)
    return tmp_path / "pictures"


@pytest.mark.drill
@pytest.mark.tensorflow
def test_two_commands_bring_them_to_a_report_and_what_is_not_read_is_said(pictures, tmp_path):
    (pictures / "train" / "kind0" / "notes.txt").write_text("words")
    (pictures / "train" / "kind1" / "more").mkdir()
    (pictures / "train" / "kind2" / ".hidden").touch()
    Image.new("RGB", (8, 8)).save(pictures / "train" / "kind1" / "more" / "deep.png")
    words = (FILE, f"data.path={pictures}", *SHORT, "--results", tmp_path / "results")
    (found,) = [one["found"] for one in json.loads(lottery("check", *words, "--json").stdout) if one["what"] == "data"]
    assert "160 training, 0 validation, 40 test images" in found and "2 other files are not read" in found
    said = lottery("sweep", *words).stdout
    assert "not read, 2 files: " in said and "notes.txt" in said and "deep.png" in said and ".hidden" not in said
    assert (tmp_path / "results" / "own_images" / "report" / "report.html").exists()
    assert "2 trainings, 2 of them done" in lottery("plan", *words).stdout
    lottery("export", tmp_path / "results" / "own_images", "dense-seed0", "--to", tmp_path / "ticket.keras")
    file = (
        "evaluate",
        tmp_path / "ticket.keras",
        "--on",
        pictures / "val",
        "--results",
        tmp_path / "nowhere",
        "--json",
    )
    (result,) = (tmp_path / "results" / "trainings").glob("dense-seed0-*/result.json")
    assert json.loads(lottery(*file).stdout)["top1"] == pytest.approx(json.loads(result.read_text())["test"]["top1"])


@pytest.mark.tensorflow
def test_a_class_without_test_pictures_is_said_by_check(pictures, tmp_path):
    shutil.rmtree(pictures / "val" / "kind1")
    words = (FILE, f"data.path={pictures}", *SHORT, "--results", tmp_path / "results", "--json")
    (found,) = [one for one in json.loads(lottery("check", *words).stdout) if one["what"] == "data"]
    assert found["state"] == "warning" and "30 test images; no test images of kind1;" in found["found"]


def test_what_lies_beside_class_folders_is_said_not_to_be_read(pictures):
    assert left_out(pictures) == []
    flat, test = pictures / "train" / "flat.png", pictures / "test"
    Image.new("RGB", (8, 8)).save(flat)
    (test / "kind0").mkdir(parents=True)  # val/ is there, and read
    assert left_out(pictures) == [test, flat]


@pytest.mark.tensorflow
def test_a_picture_that_cannot_be_decoded_is_named(pictures, tmp_path):
    broken = pictures / "train" / "kind3" / "017.png"
    broken.write_bytes(broken.read_bytes()[:100])
    said = lottery("sweep", FILE, f"data.path={pictures}", *SHORT, "--results", tmp_path / "results", check=2).stderr
    assert f"{broken} is damaged or no image; take it out" in said and "Traceback" not in said


@pytest.mark.tensorflow
def test_a_folder_of_no_class_is_named_by_the_option_that_was_given(pictures):
    from sweep.export.evaluate import in_class_folders

    with pytest.raises(Refused, match=r"^--on: .*kind3 is no class of the training folders"):
        in_class_folders(pictures / "val", ["kind0", "kind1", "kind2"], 8, 3, centre=False)


def test_plan_counts_with_the_test_images_that_a_data_set_has():
    assert images_of(Experiment(data=Data("digits")), "test") == len(open_dataset(Data("digits")).test)
    assert images_of(Experiment(data=Data("folder", path="/nowhere")), "test") == 0


@pytest.mark.tensorflow
def test_a_picture_that_was_taken_out_is_planned_without(pictures, tmp_path):
    """Trainings are named by the listing: they must not carry that of other pictures."""
    words, results = (f"data.path={pictures}", *SHORT, "name=own"), ("--results", tmp_path / "results")
    lottery("plan", FILE, *words, *results)
    lottery("sbatch", FILE, *words, *results)  # the experiment has a folder from now on
    before = json.loads(lottery("plan", tmp_path / "results" / "own", "--json").stdout)["trainings"][0]["training"]
    (pictures / "train" / "kind3" / "017.png").unlink()
    said = lottery("sweep", tmp_path / "results" / "own", check=2).stderr
    assert "other images than" in said and f"lottery sweep {tmp_path / 'results' / 'own'} data.path=" in said
    lottery("sbatch", tmp_path / "results" / "own", f"data.path={pictures}")
    after = json.loads(lottery("plan", tmp_path / "results" / "own", "--json").stdout)["trainings"][0]["training"]
    assert before != after and not [*(tmp_path / "results").glob("trainings/*")]


def test_pictures_that_are_stored_turned_are_named_and_hidden_ones_are_none(pictures):
    path = next((pictures / "train" / "kind1").glob("*.jpg"))
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.new("RGB", (40, 70)).save(path, exif=exif)
    (path.parent / f"._{path.name}").write_bytes(b"what macOS writes beside a picture")
    for split in ("train", "val"):  # Jupyter's
        shutil.copytree(pictures / split / "kind0", pictures / split / ".ipynb_checkpoints")
    damaged = next((pictures / "train" / "kind2").glob("*.jpg"))
    damaged.write_bytes(path.read_bytes()[:40])
    made = read(Data("folder", path=str(pictures)))
    assert (made.classes, len(made.train), len(made.test)) == (4, 160, 40) and turned(made.train) == [str(path)]
    assert images_of(Experiment(data=Data("folder", path=str(pictures))), "test") == 40
    assert not [path for path in left_out(pictures) if path.name.startswith(".")]
    assert len(listing(pictures).splits["train"]) == 160


def test_a_class_without_training_pictures_is_refused(pictures, tmp_path):
    (pictures / "train" / "kind9").mkdir()
    words = (f"data.path={pictures}", "--results", tmp_path / "results")
    assert f"no images in {pictures / 'train' / 'kind9'}" in lottery("sweep", FILE, *words, check=2).stderr
    said = lottery("data", "prepare", pictures, tmp_path / "shards", check=2).stderr
    assert "kind9" in said and not (tmp_path / "shards").exists()


@pytest.mark.parametrize("field", ["recipe.batch=1000", "data.validation=1000"])
def test_what_only_the_data_can_tell_is_refused_before_anything_is_written(field, pictures, tmp_path):
    words = (FILE, f"data.path={pictures}", field, "--results", tmp_path / "results")
    assert "160 training images" in lottery("sweep", *words, check=2).stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.tensorflow
def test_of_16_bits_the_upper_8_are_taken_by_both_ways_of_reading(devices):
    import tensorflow as tf

    deep = np.linspace(0, 65535, 64 * 48).astype(np.uint16).reshape(48, 64)
    packed = io.BytesIO()
    Image.fromarray(deep).save(packed, "PNG")
    prepared = np.asarray(eight_bits(Image.open(io.BytesIO(packed.getvalue()))).convert("RGB"))
    read = tf.io.decode_image(packed.getvalue(), channels=3).numpy()
    assert (prepared == read).all() and (prepared[..., 0] == deep >> 8).all()


def test_what_is_said_of_a_lost_picture_is_the_same_every_time():
    """An address in memory stood there: other bytes of the index at every preparation."""
    problems: list[list[str]] = []
    for _ in range(2):
        assert _record(Source("a/b.jpg", 0, held=b"no picture"), Options(), problems) is None
    assert problems[0] == problems[1] == ["a/b.jpg", "lost: cannot identify image file"]
