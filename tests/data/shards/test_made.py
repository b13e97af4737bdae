"""Shards: what is in them, and the same bytes from every source, engine and after every kill."""

from __future__ import annotations

import io
import os
import shutil
import signal
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from sweep.data import open_dataset, shards
from sweep.experiment import Data
from tests.commands import lottery, started
from tests.conftest import need, without
from tests.data.shards.conftest import SIZE, content, images_of, picture, prepare, save, squared
from tests.slurm_cluster import until

pytestmark = pytest.mark.slow

# ---- what is in them


@pytest.mark.parametrize(("split", "folder", "count"), [("train", "train", 60), ("test", "val", 12)])
def test_raw_shards_hold_every_image_once_as_the_source_decodes(source, raw, split, folder, count):
    found = images_of(raw, split)
    assert len(found) == count
    for name, (pixels, label) in found.items():
        assert label == ("ant", "bee", "cat").index(name.partition("/")[0])
        np.testing.assert_array_equal(pixels, squared(source / folder / name))


def test_jpeg_shards_are_near_to_the_source(source, jpeg):
    found = images_of(jpeg, "train")
    assert len(found) == 60
    for name, (pixels, _) in found.items():
        error = np.mean((pixels.astype(float) - squared(source / "train" / name)) ** 2)
        assert 10 * np.log10(255**2 / error) > 28  # PSNR in dB, at quality 90 of very small pictures


def test_small_originals_pass_through_untouched(tmp_path):
    for split in ("train", "val"):
        for kind in "ab":
            save(tmp_path / "source" / split / kind / "x.JPEG", picture(1).resize((SIZE, 50)))
    prepare(tmp_path / "source", tmp_path / "dest")
    original = (tmp_path / "source/train/a/x.JPEG").read_bytes()
    assert original in (tmp_path / "dest/train-00000.jpeg").read_bytes()


def test_shards_are_shuffled_once_and_another_seed_shuffles_otherwise(source, raw, tmp_path):
    names = [r[5] for r in shards.read_index(shards.open_prepared(raw), "train", 0)["records"]]
    assert len({name.partition("/")[0] for name in names}) == 3
    prepare(source, tmp_path / "other", "--format", "raw", "--seed", 1)
    other = [r[5] for r in shards.read_index(shards.open_prepared(tmp_path / "other"), "train", 0)["records"]]
    assert len(other) == len(names) and other != names


# ---- where they come from


def as_class_folders(source: Path, dest: Path) -> None:
    for split in ("train", "val"):
        with tarfile.open(dest / f"{split}.tar", "w") as tar:
            tar.add(source / split, split)


def as_imagenet_ships_it(source: Path, dest: Path) -> None:
    with tarfile.open(dest / "ILSVRC2012_img_train.tar", "w") as outer:
        for folder in sorted((source / "train").iterdir()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for path in sorted(folder.iterdir()):
                    tar.add(path, path.name)
            member = tarfile.TarInfo(f"{folder.name}.tar")
            member.size = inner.tell()
            inner.seek(0)
            outer.addfile(member, inner)
    (dest / "val").symlink_to(source / "val")


@pytest.mark.parametrize("pack", [as_class_folders, as_imagenet_ships_it])
def test_tar_files_give_the_same_shards_to_the_byte(pack, source, raw, tmp_path):
    (tmp_path / "packed").mkdir()
    pack(source, tmp_path / "packed")
    prepare(tmp_path / "packed", tmp_path / "dest", "--format", "raw")
    assert content(tmp_path / "dest") == content(raw)


def devkit(dest: Path, answers: list[int], names: list[str]) -> None:
    from scipy.io import savemat

    kinds = np.zeros(len(names), [("ILSVRC2012_ID", "<i4"), ("WNID", "O")])
    for i, name in enumerate(names):
        kinds[i] = (i + 1, name)
    meta = io.BytesIO()
    savemat(meta, {"synsets": kinds})
    with tarfile.open(dest / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        truth = "".join(f"{answer}\n" for answer in answers).encode()
        for name, text in (("meta.mat", meta.getvalue()), ("ILSVRC2012_validation_ground_truth.txt", truth)):
            member = tarfile.TarInfo(f"ILSVRC2012_devkit_t12/data/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))


def test_imagenets_flat_validation_images_get_their_classes_from_the_devkit(source, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    as_imagenet_ships_it(source, packed)
    (packed / "val").unlink()
    with tarfile.open(packed / "ILSVRC2012_img_val.tar", "w") as tar:
        for i, name in enumerate(("cat", "ant", "ant", "bee")):
            tar.add(source / f"val/{name}/{name}_{i}.JPEG", f"ILSVRC2012_val_{i:08d}.JPEG")
    ended = lottery("data", "prepare", packed, tmp_path / "dest", check=2)
    assert "no ground truth" in ended.stderr and "expected ILSVRC2012_devkit_t12.tar.gz beside them" in ended.stderr
    devkit(packed, [2, 3, 3], ["bee", "cat", "ant"])  # numbered otherwise than by name
    assert "4 validation images, but 3 lines" in lottery("data", "prepare", packed, tmp_path / "dest", check=2).stderr
    devkit(packed, [2, 3, 3, 1], ["bee", "cat", "ant"])
    prepare(packed, tmp_path / "dest", "--format", "raw")
    found = images_of(tmp_path / "dest", "test")
    assert [found[f"ILSVRC2012_val_{i:08d}.JPEG"][1] for i in range(4)] == [2, 0, 0, 1]
    np.testing.assert_array_equal(found["ILSVRC2012_val_00000003.JPEG"][0], squared(source / "val/bee/bee_3.JPEG"))


def test_cifar_10_becomes_raw_shards_without_loss(tmp_path):
    from tests.data.test_cifar10 import as_tar, binary_files, tiny_cifar

    prepare(as_tar(binary_files(), tmp_path / "cifar.tar.gz"), tmp_path / "dest", "--format", "raw")
    found = open_dataset(Data("shards", path=str(tmp_path / "dest"), crop="padded"))
    for part, expected in zip((found.train, found.test), tiny_cifar(), strict=True):
        received = {(image.tobytes(), label) for image, label in zip(part.images, part.labels, strict=True)}
        assert received == {
            (image.tobytes(), label) for image, label in zip(expected.images, expected.labels, strict=True)
        }


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_number_of_processes_changes_nothing(jobs, source, raw, tmp_path):
    prepare(source, tmp_path / "dest", "--format", "raw", jobs=jobs)
    assert content(tmp_path / "dest") == content(raw)


def test_a_preparation_that_is_killed_again_and_again_ends_with_the_same_bytes(source, raw, tmp_path):
    words = ["data", "prepare", source, tmp_path / "dest", "--size", SIZE, "--shard-bytes", 40_000, "--format", "raw"]
    for made in (0, 1, 3):  # killed with so many shards there, and others half made
        with started(*words, leads=True) as process:
            until(lambda made=made: len([*(tmp_path / "dest").glob("train-*.json")]) >= made, 60)
            # by the group: /bin/kill takes -12345 for -1, and ends every process of the machine
            with suppress(ProcessLookupError):  # it may have ended by itself where the machine is busy
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lottery(*words)
    assert content(tmp_path / "dest") == content(raw)


def test_a_job_array_makes_the_same_shards_to_the_byte(slurm, source, raw, tmp_path):
    (tmp_path / "e.yaml").write_text("cluster: {nodes: 3, cpus_per_gpu: 1}\n")
    said = prepare(source, tmp_path / "dest", "--format", "raw", "--on", "slurm", "--cluster", tmp_path / "e.yaml")
    assert "3 parts" in said
    summary = tmp_path / "dest/slurm/logs/summary.out"
    until(lambda: summary.exists() and "72 images of 3 classes" in summary.read_text(), 120)
    assert content(tmp_path / "dest") == content(raw)


def test_spark_makes_the_same_shards_to_the_byte(source, raw, tmp_path, monkeypatch):
    need([] if shutil.which("java") else ["java"], "Apache Spark")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # half the CPU time
    try:
        prepare(source, tmp_path / "dest", "--format", "raw", "--on", "spark")
    except Exception as error:  # py4j and Spark raise what they like; a fault of ours still fails below
        if "UnknownHostException" in str(error) or "JAVA_GATEWAY_EXITED" in str(error):
            without(f"Apache Spark cannot start here: {error}")
        raise
    assert content(tmp_path / "dest") == content(raw)
