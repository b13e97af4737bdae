"""Shards against files, and readers that share against readers apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.shards.conftest import picture
from tests.sweeping import lottery

SAMPLE = Path(__file__).parents[3] / "shared/data/imagenet-sample-500.tar"


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """400 training and 100 test images: real ones where they are at hand, made up ones of their size elsewhere."""
    root = tmp_path_factory.mktemp("photographs")
    loose = root / "loose"
    loose.mkdir()
    if SAMPLE.exists():
        subprocess.run(["tar", "xf", SAMPLE, "-C", loose], check=True)
    else:
        for i in range(500):
            smooth = np.asarray(picture(i).resize((480, 400), Image.Resampling.BICUBIC), np.float32)
            noise = np.random.default_rng(i).normal(0, 14, smooth.shape)  # as much detail as photographs have
            made = Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))
            made.save(loose / f"{i:03d}.JPEG", quality=92)
    for i, path in enumerate(sorted(loose.iterdir())):
        to = root / "source" / ("val" if i % 5 == 0 else "train") / f"class{i // 5 % 10}" / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        path.rename(to)
    return root / "source"


@pytest.fixture(scope="module")
def photograph_shards(photographs) -> Path:
    for form in ("jpeg", "raw"):
        lottery("data", "prepare", photographs, photographs.parent / form, "--format", form)
    return photographs.parent


@pytest.mark.alone
def test_shards_are_many_times_faster_than_files(photographs, photograph_shards):
    """Images per CPU-second, against every file decoded whole and resized."""
    from sweep.bench.feeding import plain_decoding

    files = plain_decoding([str(path) for path in sorted(photographs.glob("train/*/*"))], 224, 4.0)
    found = {}
    for form in ("jpeg", "raw"):
        words = ("bench", "input", photograph_shards / form, "--batch", 100, "--seconds", 4, "--json")
        found[form] = json.loads(lottery(*words).stdout)["images_per_cpu_second"] / files
    print(f"{files:.0f} images per CPU-second from files; jpeg {found['jpeg']:.1f} x, raw {found['raw']:.1f} x")
    assert found["jpeg"] >= 3 and found["raw"] >= 20


@pytest.mark.alone
def test_four_readers_of_a_node_share_what_one_decoded(photograph_shards, tmp_path):
    """Each sees every image of each of its epochs once, also where one of them is killed and begins anew."""

    def start(seed: int, cache: Path | str) -> subprocess.Popen[str]:
        words = ["-m", "tests.read_epochs", str(photograph_shards / "jpeg"), str(seed), "3", str(cache)]
        return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def together(cache: Path | str, kill: bool) -> tuple[float, set[str]]:
        readers = [start(seed, cache) for seed in range(4)]
        if kill:
            assert readers[0].stdout
            readers[0].stdout.readline()
            readers[0].kill()
            readers[0].wait()
            readers[0] = start(0, cache)
        lines = [line for reader in readers for line in reader.communicate()[0].splitlines()]
        epochs = {line.partition(": ")[2] for line in lines if line.startswith("epoch")}
        return sum(float(line.split()[1]) for line in lines if line.startswith("cpu")), epochs

    alone, seen_alone = together("off", kill=False)
    shared, seen = together(tmp_path / "a", kill=False)
    print(f"four readers, three epochs: {alone:.1f} CPU-seconds apart, {shared:.1f} together: {alone / shared:.1f} x")
    assert len(seen) == 1 and seen == seen_alone == together(tmp_path / "b", kill=True)[1]
    assert alone / shared >= 2.5


@pytest.mark.drill
def test_the_imagenet_experiment_trains_on_four_devices_at_its_real_size(photograph_shards, tmp_path):
    """Two steps of the whole network at 224 pixels; all else as the file says."""
    fields = {
        "data.name": "shards", "data.path": photograph_shards / "jpeg", "data.validation": 384, "recipe.batch": 8,
        "recipe.epochs": 1, "recipe.warmup_epochs": 0, "recipe.precision": "float32", "prune.rewind_epochs": "[0]",
        "prune.control_rewind_epochs": "[0]",
    }  # fmt: skip
    file = Path(__file__).parents[2] / "experiments/imagenet_mobilenet_v2.yaml"
    overrides = [f"{name}={value}" for name, value in fields.items()]
    lottery("train", file, *overrides, "--devices", 4, "--results", tmp_path)
    (metrics,) = tmp_path.glob("*/dense/seed-0/metrics.jsonl")
    (line,) = map(json.loads, metrics.read_text().splitlines())
    assert 0 < line["train_loss"] < 20 and "data_wait_share" in line
