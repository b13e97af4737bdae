"""Photographs, and shards of 500 of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.commands import lottery
from tests.data.shards.conftest import picture

SAMPLE = Path(__file__).parents[2] / "shared/data/imagenet-sample-500.tar"


def take(root: Path, count: int) -> Path:
    """Class folders, a fifth of them test images: real photographs where they are at hand, made up ones elsewhere."""
    loose = root / "loose"
    loose.mkdir()
    if SAMPLE.exists():
        subprocess.run(["tar", "xf", SAMPLE, "-C", loose], check=True)
    else:
        for i in range(count):
            smooth = np.asarray(picture(i).resize((480, 400), Image.Resampling.BICUBIC), np.float32)
            noise = np.random.default_rng(i).normal(0, 14, smooth.shape)  # as much detail as photographs have
            made = Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))
            made.save(loose / f"{i:03d}.JPEG", quality=92)
    for i, path in enumerate(sorted(loose.iterdir())[:count]):
        to = root / "source" / ("val" if i % 5 == 0 else "train") / f"class{i // 5 % 10}" / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        path.rename(to)
    return root / "source"


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    return take(tmp_path_factory.mktemp("photographs"), 500)


@pytest.fixture(scope="module")
def photograph_shards(photographs) -> Path:
    for form in ("jpeg", "raw"):
        lottery("data", "prepare", photographs, photographs.parent / form, "--format", form)
    return photographs.parent
