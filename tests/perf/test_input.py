"""Shards against files, and readers that share against readers apart."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from PIL import Image

from tests.commands import lottery
from tests.data.shards.readers import together
from tests.photographs import photograph_shards, photographs  # noqa: F401 - fixtures

pytestmark = [pytest.mark.perf, pytest.mark.tensorflow]


def test_shards_against_files(photographs, photograph_shards, figure):  # noqa: F811
    """Images per CPU-second, against every file decoded whole and resized."""
    files = plain_decoding([str(path) for path in sorted(photographs.glob("train/*/*"))], 224, 4.0)
    for form, least in (("jpeg", 3), ("raw", 20)):
        words = ("bench", "input", photograph_shards / form, "--batch", 100, "--seconds", 4, "--json")
        found = json.loads(lottery(*words).stdout)["images_per_cpu_second"]
        figure(f"{form} shards against files ({files:.0f} images per CPU-second)", found / files, "x", at_least=least)


def test_four_readers_of_a_node(photograph_shards, tmp_path, figure):  # noqa: F811
    alone, _ = together(photograph_shards / "jpeg", "off", epochs=3)
    shared, _ = together(photograph_shards / "jpeg", tmp_path, epochs=3)
    figure("four readers of a node that share, CPU against apart", alone / shared, "x", at_least=2.5)


def plain_decoding(paths: list[str], size: int, seconds: float) -> float:
    """Images per CPU-second of what is compared with: every file opened, decoded whole and resized."""
    images, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        path = paths[images % len(paths)]
        np.asarray(Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
        images += 1
    return images / (time.process_time() - began)
