"""Images and folders that are not as they should be: listed or refused, never lost in silence."""

from __future__ import annotations

import json
import subprocess

import pytest
from PIL import Image

from sweep.data import open_dataset
from sweep.errors import Refused
from sweep.experiment import Data
from tests.commands import lottery
from tests.data.shards.conftest import SIZE, content, images_of, picture, prepare, save

pytestmark = pytest.mark.slow


def test_broken_images_are_listed_none_is_lost_in_silence(source, tmp_path):
    broken = tmp_path / "source"
    subprocess.run(["cp", "-r", source, broken], check=True)
    whole = (broken / "train/ant/ant_0.JPEG").read_bytes()
    (broken / "train/ant/ant_0.JPEG").write_bytes(whole[: len(whole) // 2])
    (broken / "train/bee/bee_0.JPEG").write_text("no picture")
    (broken / "val/cat/cat_0.JPEG").write_bytes(b"")
    save(broken / "train/cat/cat_0.JPEG", picture(5).convert("CMYK"))
    save(broken / "train/cat/cat_1.JPEG", picture(6), "PNG")
    said = prepare(broken, tmp_path / "dest")
    assert "WARNING: 3 images were lost and 2 repaired" in said and "69 images of 3 classes" in said
    listed = (tmp_path / "dest/problems.txt").read_text().splitlines()
    assert [line.split(": ")[:2] for line in listed] == [
        ["ant/ant_0.JPEG", "lost"], ["bee/bee_0.JPEG", "lost"], ["cat/cat_0.JPEG", "lost"],
        ["cat/cat_0.JPEG", "repaired"], ["cat/cat_1.JPEG", "repaired"],
    ]  # fmt: skip
    assert {"cat/cat_0.JPEG", "cat/cat_1.JPEG"} <= set(images_of(tmp_path / "dest", "train"))
    prepare(broken, tmp_path / "dest", "--strict", check=1)


WRONG = {
    "no folder": ("nowhere", [], "nothing there"),
    "nothing in it": ("empty", [], "expected class folders"),
    "no size": ("source", ["--size", 0], "--size: received 0, expected pixels"),
    "a size of a mile": ("source", ["--size", 10**9], "--size: received 1000000000, expected pixels, 1 to 8192"),
    "jobs": ("source", ["--jobs", 10**9], "--jobs: received 1000000000, expected 0 (one per core) to 1024"),
    "quality": ("source", ["--quality", 100], "--quality: received 100, expected 1 to 95"),
}


@pytest.mark.parametrize(("place", "words", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_prepared_is_refused_in_one_line(place, words, message, source, tmp_path):
    (tmp_path / "empty").mkdir()
    at = source if place == "source" else tmp_path / place
    ended = lottery("data", "prepare", at, tmp_path / "dest", *words, check=2)
    assert message in ended.stderr and len(ended.stderr.splitlines()) == 1 and not (tmp_path / "dest").exists()


def test_a_folder_that_was_begun_otherwise_is_refused(source, raw):
    ended = lottery("data", "prepare", source, raw, "--format", "raw", "--size", 16, check=2)
    assert "begun with another" in ended.stderr and "size" in ended.stderr


def test_a_folder_that_was_begun_from_another_source_is_refused(source, raw, tmp_path):
    subprocess.run(["cp", "-r", raw, tmp_path / "dest"], check=True)
    (tmp_path / "dest/train-00001.json").unlink()
    words = ("--format", "raw", "--part", "1/2")  # a part that leaves the other to another machine
    (tmp_path / "dest/train-00002.json").unlink()
    prepare(source, tmp_path / "dest", *words)
    subprocess.run(["cp", "-r", source, tmp_path / "moved"], check=True)
    ended = lottery(
        "data", "prepare", tmp_path / "moved", tmp_path / "dest", "--format", "raw", "--size", SIZE, check=2
    )
    assert f"begun from {source}" in ended.stderr
    prepare(source, tmp_path / "dest", "--format", "raw")
    assert content(tmp_path / "dest") == content(raw)


def test_inspect_counts_shows_and_finds_damage(jpeg, tmp_path):
    told = json.loads(lottery("data", "inspect", jpeg, "--verify", "--json", "--sheet", tmp_path / "sheet.png").stdout)
    assert [(s["split"], s["images"], s["fewest in a class"]) for s in told["splits"]] == [
        ("train", 60, 20),
        ("test", 12, 4),
    ]
    assert told["broken"] == [] and Image.open(tmp_path / "sheet.png").size == (96 * 8, 96 * 3)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", jpeg, copy], check=True)
    with (copy / "train-00001.jpeg").open("r+b") as file:
        file.seek(100)
        file.write(b"\x00\x01")
    ended = lottery("data", "inspect", copy, "--verify", check=1)
    assert "train-00001.jpeg: its checksum is another" in ended.stdout


def test_shards_that_are_not_all_there_are_refused(raw, tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", raw, copy], check=True)
    (copy / "train-00001.json").unlink()
    with pytest.raises(Refused, match=r"1 of \d+ train shards are missing"):
        open_dataset(Data("shards", path=str(copy)))


def test_other_hidden_files_of_the_folder_are_left_alone(source, raw, tmp_path):
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / ".env").write_text("mine")
    (dest / ".snapshot").mkdir()
    prepare(source, dest, "--format", "raw")
    assert (dest / ".env").read_text() == "mine"
    assert content(dest) == content(raw) | {".env": b"mine"}


def test_a_file_that_cannot_be_reached_is_no_broken_picture(source, tmp_path):
    """It ends the work, and the next run makes the shard whole."""
    moved = tmp_path / "source"
    subprocess.run(["cp", "-r", source, moved], check=True)
    prepare(moved, tmp_path / "dest", "--part", "1/2")  # the listing is kept now
    one = moved / "train/ant/ant_3.JPEG"
    one.rename(tmp_path / "away")
    words = ("data", "prepare", moved, tmp_path / "dest", "--size", SIZE, "--shard-bytes", 40_000)
    ended = lottery(*words, check=2)
    assert "ant_3.JPEG: No such file" in ended.stderr and len(ended.stderr.splitlines()) == 1
    (tmp_path / "away").rename(one)
    assert "72 images" in lottery(*words).stdout and not (tmp_path / "dest/problems.txt").exists()


def test_another_number_of_images_per_shard_is_refused(source, raw):
    words = ("--size", SIZE, "--shard-bytes", 39_000, "--format", "raw")
    assert "images_per_shard" in lottery("data", "prepare", source, raw, *words, check=2).stderr


@pytest.mark.parametrize(
    "break_", [lambda path: path.write_bytes(path.read_bytes()[:5000]), lambda path: path.write_text("x")]
)
def test_a_tar_file_that_is_not_whole_is_refused_in_one_line(break_, source, tmp_path):
    for split in ("train", "val"):
        subprocess.run(["tar", "cf", tmp_path / f"{split}.tar", "-C", source, split], check=True)
    break_(tmp_path / "train.tar")
    ended = lottery("data", "prepare", tmp_path, tmp_path / "dest", check=2)
    assert "train.tar" in ended.stderr and len(ended.stderr.splitlines()) == 1
