"""Small pictures in class folders, and shards of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweep.data import shards
from sweep.data.shards import Reader
from tests.commands import lottery

SIZE = 32


def on_a_disk(path: Path) -> bool:
    """Whether the kernel calls the file system of this path another one than memory."""
    said = subprocess.run(["stat", "--file-system", "--format=%T", path], capture_output=True, text=True, check=True)
    return said.stdout.strip() not in ("tmpfs", "ramfs")


def picture(seed: int) -> Image.Image:
    """Smooth, as photographs are, of a shape of its own."""
    stream = np.random.default_rng(seed)
    height, width = stream.integers(40, 90, 2)
    small = stream.integers(0, 256, (6, 6, 3)).astype(np.uint8)
    return Image.fromarray(small).resize((int(width), int(height)), Image.Resampling.BICUBIC)


def save(path: Path, made: Image.Image, form: str = "JPEG") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save(path, form, quality=95)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Class folders: 3 classes of 20 training and 4 test images."""
    root = tmp_path_factory.mktemp("source")
    for label, name in enumerate(("ant", "bee", "cat")):
        for split, count in (("train", 20), ("val", 4)):
            for i in range(count):
                save(root / split / name / f"{name}_{i}.JPEG", picture(1000 * label + 10 * i + (split == "val")))
    return root


def prepare(source: Path, dest: Path, *words: object, shard_bytes: int = 40_000, jobs: int = 2, check: int = 0) -> str:
    every = ("--size", SIZE, "--shard-bytes", shard_bytes, "--jobs", jobs)
    return lottery("data", "prepare", source, dest, *every, *words, check=check).stdout


@pytest.fixture(scope="module")
def raw(source, tmp_path_factory) -> Path:
    dest = tmp_path_factory.mktemp("prepared") / "raw"
    prepare(source, dest, "--format", "raw")
    return dest


@pytest.fixture(scope="module")
def jpeg(source, tmp_path_factory) -> Path:
    dest = tmp_path_factory.mktemp("prepared") / "jpeg"
    prepare(source, dest, shard_bytes=7_000)
    return dest


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def images_of(folder: Path, split: str) -> dict[str, tuple[np.ndarray, int]]:
    """Every image by its name, with its label."""
    made, out = shards.open_prepared(folder), {}
    records = shards.records_of(made, split)
    reader = Reader(records)
    names = [r[5] for n in range(made.counts[split]) for r in shards.read_index(made, split, n)["records"]]
    for row, name in enumerate(names):
        pixels = np.empty((SIZE, SIZE, 3), np.uint8)
        reader.pixels(row, pixels)
        out[name] = pixels, int(records.labels[row])
    return out


def squared(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.LANCZOS))
