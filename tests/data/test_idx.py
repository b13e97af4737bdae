"""MNIST's format: IDX files as they are published, and what damage to them is answered with."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from sweep.data import open_dataset
from sweep.errors import Refused
from sweep.experiment import Data

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def write(path: Path, array: np.ndarray) -> None:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    content = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for part, count in (("train", 30), ("t10k", 12)):
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", random.integers(0, 256, (count, 28, 28)))
        write(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(count) % 10)
    return tmp_path


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_images_and_labels_are_those_of_the_files(folder, name):
    found = open_dataset(Data(name, path=str(folder), validation=5))
    assert (len(found.train), len(found.validation), len(found.test)) == (25, 5, 12)
    assert (found.image_size, found.channels, found.classes) == (28, 1, 10)
    raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    assert found.test.images.tobytes() == raw and found.test.labels.tolist() == [i % 10 for i in range(12)]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "t10k-labels-idx1-ubyte").unlink(), "no t10k-labels-idx1-ubyte or .*gz"),
        (lambda f: write(f / "train-labels-idx1-ubyte", np.arange(29) % 10), "30 images and 29 labels"),
        (lambda f: write(f / "train-labels-idx1-ubyte", np.arange(30)), "the label 29; expected 0 to 9"),
        (lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bno"), "is not readable"),
        (lambda f: (f / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x05ab"), "not a whole IDX file"),
    ],
)
def test_damage_is_said_in_one_line(folder, damage, said):
    damage(folder)
    with pytest.raises(Refused, match=said):
        open_dataset(Data("mnist", path=str(folder)))


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="dataset-fashion-mnist is not installed")
def test_the_published_fashion_mnist_is_read():
    found = open_dataset(Data("fashion_mnist", path=str(DEBIAN)))
    assert (len(found.train), len(found.test)) == (60_000, 10_000)
    assert np.bincount(found.test.labels).tolist() == [1000] * 10
    assert found.mean[0] == pytest.approx(0.2860, abs=1e-4) and found.deviation[0] == pytest.approx(0.3530, abs=1e-4)
