"""What is read of a source and what is left out: every file is one or the other, and no header is believed."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweep.data.prepare import Options, _record
from sweep.data.sources import DEVKIT, KEPT, LARGEST, Source, listing
from tests.commands import lottery
from tests.data.shards.conftest import SIZE, content, images_of, picture, prepare, save
from tests.images import refusal

pytestmark = pytest.mark.slow


def classes(root: Path) -> Path:
    """One picture of each of two classes in both splits."""
    for split in ("train", "val"):
        for number, kind in enumerate(("ant", "bee")):
            save(root / split / kind / "one.jpg", picture(number))
    return root


def names(root: Path) -> list[str]:
    return [one.name for one in listing(root).splits["train"]]


def packed(root: Path, dest: Path, inside: str = "") -> Path:
    dest.mkdir()
    for split in ("train", "val"):
        with tarfile.open(dest / f"{split}.tar", "w") as tar:
            tar.add(root / split, f"{inside}{split}" if inside else ".")
    return dest


@pytest.mark.parametrize("suffix", ["gif", "tif", "tiff", "webp", "bmp", "PNG"])
def test_every_kind_of_picture_is_prepared(suffix, tmp_path):
    source, kept = classes(tmp_path / "source"), Image.fromarray(np.full((SIZE, SIZE, 3), 100, np.uint8))
    kept.save(source / "train" / "ant" / f"two.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
    assert "5 images of 2 classes" in prepare(source, tmp_path / "dest", "--format", "raw")
    pixels, label = images_of(tmp_path / "dest", "train")[f"ant/two.{suffix}"]
    assert (pixels == 100).all() and label == 0


def test_what_is_left_out_is_counted_named_and_listed(tmp_path):
    source = classes(tmp_path / "source")
    left = [
        source / "train" / name for name in ("ant/deep/er/three.jpg", "ant/deep/two.jpg", "ant/notes.txt", "flat.jpg")
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "train/ant/one.jpg", path)
    (source / "train/ant/.hidden").touch()
    (source / "test/ant").mkdir(parents=True)
    left.append(source / "test")
    said = prepare(source, tmp_path / "dest")
    assert (
        "4 images of 2 classes" in said and f"not read, 5: {source / 'test'}, {left[0]}, {left[1]}, … (expected" in said
    )
    lines = (tmp_path / "dest/problems.txt").read_text().splitlines()
    assert sorted(lines) == sorted(f"{path}: left out" for path in left)
    assert "lists what was lost, repaired or left out" in lottery("data", "inspect", tmp_path / "dest").stdout


@pytest.mark.parametrize("inside", ["", "pictures/", "data/all/"])
def test_deeper_folders_of_a_tar_file_are_no_classes(inside, tmp_path):
    source = classes(tmp_path / "source")
    expected = names(source)
    for place in ("ant/deep/two.jpg", "flat.jpg", "ant/notes.txt"):
        (source / "train" / place).parent.mkdir(exist_ok=True)
        shutil.copy(source / "train/ant/one.jpg", source / "train" / place)
    made = packed(source, tmp_path / "packed", inside)
    assert names(source) == names(made) == expected and listing(made).classes == ("ant", "bee")
    for root in (source, made):
        assert sorted(re.split("[/ ]", name)[-1] for name in listing(root).left_out) == [
            "flat.jpg",
            "notes.txt",
            "two.jpg",
        ]


def test_training_pictures_without_class_folders_are_refused(tmp_path):
    for split in ("train", "val"):
        save(tmp_path / split / "one.jpg", picture(1))
    (tmp_path / "val/ant").mkdir()
    save(tmp_path / "val/ant/one.jpg", picture(1))
    assert "lie in no class folder; expected train/CLASS" in refusal(lambda: listing(tmp_path))


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def test_an_image_of_more_bytes_than_any_image_has_is_lost_and_not_read(tmp_path):
    """A sparse member: it claims more than it takes on the disk."""
    made = packed(classes(tmp_path / "source"), tmp_path / "packed")
    end = (made / "train.tar").stat().st_size
    with (made / "train.tar").open("r+b") as file:
        file.seek(0)
        rest = file.read().rstrip(b"\0")
        end = -(-len(rest) // 512) * 512
        file.seek(end)
        file.write(header("ant/huge.jpg", LARGEST + 1))
        file.truncate(end + 512 * (LARGEST // 512 + 4))
    (huge,) = [one for one in listing(made).splits["train"] if one.name == "ant/huge.jpg"]
    assert huge.length == LARGEST + 1 and huge.content() is None
    prepare(made, tmp_path / "dest")
    assert (tmp_path / "dest/problems.txt").read_text() == "ant/huge.jpg: lost: more than 256 MiB\n"
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert Source("huge.jpg", 0, tmp_path / "huge.jpg").content() is None


CLAIMS = {
    "a file": header("train/ant/one.jpg", 2**70),
    "a smaller file": header("train/ant/one.jpg", 2**62),
    "a header": header("x", 2**70, tarfile.XHDTYPE),
    "a tar file": header("train/ant.tar", 2**50),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_tar_file_that_claims_more_than_it_has_is_refused(claim, tmp_path):
    made = packed(classes(tmp_path / "source"), tmp_path / "packed")
    (made / "train.tar").write_bytes(claim + b"\0" * 4096)
    assert refusal(lambda: listing(made)).startswith(f"{made / 'train.tar'}: ")


def test_a_sparse_file_of_a_tar_file_is_left_out(tmp_path):
    """Its bytes do not lie one after the other."""
    made = packed(classes(tmp_path / "source"), tmp_path / "packed")
    sparse = header("ant/sparse.jpg", 512, tarfile.GNUTYPE_SPARSE) + b"\1" * 512
    (made / "train.tar").write_bytes(sparse + (made / "train.tar").read_bytes())
    assert names(made) == ["ant/one.jpg", "bee/one.jpg"] and "sparse.jpg" in listing(made).left_out[0]


LISTINGS = (
    "[[1]]", "{", '{"source": 1}', '{"source": "SOURCE", "classes": [], "splits": {}}',
    '{"source": "SOURCE", "classes": [], "splits": {"train": [1], "test": []}}',
)  # fmt: skip


@pytest.mark.parametrize("text", LISTINGS)
def test_a_damaged_listing_of_a_preparation_is_refused_and_deleting_it_mends(text, source, tmp_path):
    dest = tmp_path / "dest"
    prepare(source, dest, "--format", "raw")
    whole = content(dest)
    (dest / "train-00000.json").unlink()
    (dest / KEPT).write_text(text.replace("SOURCE", str(source.resolve())))
    words = ("data", "prepare", source, dest, "--size", SIZE, "--shard-bytes", 40_000, "--format", "raw")
    ended = lottery(*words, check=2)
    assert len(ended.stderr.splitlines()) == 1 and f"{dest / KEPT}: " in ended.stderr and "delete it" in ended.stderr
    (dest / KEPT).unlink()
    lottery(*words)
    assert content(dest) == whole


@pytest.mark.parametrize("harm", ["cut", "no mat", "no number", "no class"])
def test_a_damaged_devkit_is_refused_in_one_line(harm, tmp_path):
    from tests.data.shards.test_made import devkit

    source = classes(tmp_path)
    shutil.rmtree(source / "val")
    save(source / "val" / "ILSVRC2012_val_00000001.JPEG", picture(1))
    devkit(source, [1 if harm != "no class" else 7], ["ant", "bee"])
    path = source / f"{DEVKIT}.tar.gz"
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-60])
    elif harm != "no class":
        with tarfile.open(path) as tar:
            tar.extractall(source, filter="data")
        path.unlink()
        name = "meta.mat" if harm == "no mat" else "ILSVRC2012_validation_ground_truth.txt"
        (source / DEVKIT / "data" / name).write_text("words")
    said = refusal(lambda: listing(source))
    assert "no ground truth" in said or "ground truth 7, expected a class" in said


def test_pictures_whose_colours_are_fractions_are_lost_by_name():
    for kind in (np.float32, np.int32):
        made, problems = io.BytesIO(), list[list[str]]()
        Image.fromarray(np.ones((8, 8), kind)).save(made, "TIFF")
        assert _record(Source("a/b.tif", 0, held=made.getvalue()), Options(), problems) is None
        assert problems[0][1].startswith("lost: colours are")
