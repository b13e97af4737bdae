"""Images prepared once: the same bytes from every source and after every kill; nothing lost in silence."""

from __future__ import annotations

import io
import json
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweep.data import open_dataset, shards
from sweep.data.decoded import Decoded
from sweep.data.shards import Reader
from sweep.errors import Refused
from sweep.experiment import Data
from tests.conftest import need
from tests.slurm_cluster import until
from tests.sweeping import LOTTERY, lottery

SIZE = 32


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


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_number_of_processes_changes_nothing(jobs, source, raw, tmp_path):
    prepare(source, tmp_path / "dest", "--format", "raw", jobs=jobs)
    assert content(tmp_path / "dest") == content(raw)


def test_a_preparation_that_is_killed_again_and_again_ends_with_the_same_bytes(source, raw, tmp_path):
    words = ["data", "prepare", source, tmp_path / "dest", "--size", SIZE, "--shard-bytes", 40_000, "--format", "raw"]
    chance, kills = random.Random(0), 0
    while True:
        process = subprocess.Popen([*LOTTERY, *map(str, words)], stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(0.6 + chance.random() * 0.8)
            break
        except subprocess.TimeoutExpired:
            kills += 1
            subprocess.run(["kill", "-9", f"-{process.pid}"], check=False)
            process.wait()
            if kills >= 6:
                lottery(*words)
                break
    assert process.returncode in (0, -signal.SIGKILL)
    assert content(tmp_path / "dest") == content(raw)


def test_a_job_array_makes_the_same_shards_to_the_byte(slurm, source, raw, tmp_path):
    (tmp_path / "e.yaml").write_text("cluster: {nodes: 3, cpus_per_gpu: 1}\n")
    said = prepare(source, tmp_path / "dest", "--format", "raw", "--on", "slurm", "--cluster", tmp_path / "e.yaml")
    assert "3 parts" in said
    summary = tmp_path / "dest/slurm/logs/summary.out"
    until(lambda: summary.exists() and "72 images of 3 classes" in summary.read_text(), 120)
    assert content(tmp_path / "dest") == content(raw)


def test_spark_makes_the_same_shards_to_the_byte(source, raw, tmp_path):
    need([] if shutil.which("java") else ["java"], "Apache Spark")
    prepare(source, tmp_path / "dest", "--format", "raw", "--on", "spark")
    assert content(tmp_path / "dest") == content(raw)


# ---- what is wrong with images


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
    "no folder": ("nowhere", [], "no such folder"),
    "nothing in it": ("empty", [], "expected class folders"),
    "no size": ("source", ["--size", 0], "--size: received 0, expected pixels"),
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


# ---- reading


def batches(folder: Path, order: np.ndarray, seeds: np.ndarray | None, cache: str = "off") -> list[list[np.ndarray]]:
    from sweep.data.feed import Sharded
    from sweep.devices import prepare as devices

    split = shards.records_of(shards.open_prepared(folder), "train")
    return [[part.numpy() for part in batch] for batch in Sharded(split, devices(), cache).batches(order, seeds)]


ORDER = np.random.default_rng(3).permutation(60).reshape(6, 10).astype(np.int32)
SEEDS = np.arange(12, dtype=np.int64).reshape(6, 2)


@pytest.mark.parametrize("form", ["raw", "jpeg"])
def test_an_epoch_is_the_order_that_was_asked_for_also_from_its_middle_on(form, request):
    folder = request.getfixturevalue(form)
    whole, rest = batches(folder, ORDER, SEEDS), batches(folder, ORDER[4:], SEEDS[4:])
    assert len(whole) == 6
    for received, expected in zip(rest, whole[4:], strict=True):
        for one, other in zip(received, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    labels = shards.records_of(shards.open_prepared(folder), "train").labels
    np.testing.assert_array_equal(np.concatenate([batch[1] for batch in whole]), labels[ORDER.reshape(-1)])


def test_a_small_raw_set_is_trained_from_the_memory_of_the_device(raw):
    from sweep.data import Images

    found = open_dataset(Data("shards", path=str(raw), validation=6))
    assert isinstance(found.train, Images) and (len(found.train), len(found.validation), len(found.test)) == (54, 6, 12)
    large = open_dataset(Data("shards", path=str(raw), image_size=24))
    assert isinstance(large.train, shards.Shards) and large.image_size == 24


def test_pictures_are_decoded_once_for_all_readers_of_a_node(jpeg, tmp_path, monkeypatch):
    calls = []
    before = shards.decoded
    monkeypatch.setattr(shards, "decoded", lambda *words: calls.append(1) or before(*words))
    plain = batches(jpeg, ORDER, None)
    assert len(calls) == 60
    first = batches(jpeg, ORDER, None, str(tmp_path))
    second = batches(jpeg, ORDER[::-1], None, str(tmp_path))[::-1]  # another order: another ticket at another epoch
    assert len(calls) == 120
    for one, two, three in zip(plain, first, second, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[0], three[0])


def test_a_reader_that_died_before_an_image_was_whole_leaves_it_to_the_next(jpeg, tmp_path):
    split = shards.records_of(shards.open_prepared(jpeg), "train")
    reader = Decoded(split, tmp_path)
    reader._pixels[7] = 99  # written in part, and killed: the byte that says it is there was not set
    out = np.empty((SIZE, SIZE, 3), np.uint8)
    Decoded(split, tmp_path).pixels(7, out)
    expected = out.copy()
    Reader(split).pixels(7, expected)
    np.testing.assert_array_equal(out, expected)


def test_training_from_shards_goes_on_after_a_kill_to_the_same_bits(jpeg, tmp_path):
    (tmp_path / "e.yaml").write_text(
        f"model: {{name: resnet20, width: 0.25}}\n"
        f"data: {{name: shards, path: {jpeg}, image_size: 16, validation: 10, flip: true}}\n"
        "recipe: {epochs: 6, batch: 10, learning_rate: 0.01, checkpoint_minutes: 0.001}\nprune: {quantiles: [0.5]}\n"
    )
    words = ["train", tmp_path / "e.yaml", "--results"]
    lottery(*words, tmp_path / "straight")
    process = subprocess.Popen([*LOTTERY, *map(str, words), str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not [*tmp_path.glob("killed/*/dense/*/checkpoint.h5")] and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    lottery(*words, tmp_path / "killed")
    results = [next((tmp_path / name).glob("*/dense/*/result.json")) for name in ("straight", "killed")]
    first, second = (json.loads(path.read_text()) for path in results)
    assert first["test"] == second["test"] and first["validation"] == second["validation"]


# ---- speed

SAMPLE = Path(__file__).parents[2] / "shared/data/imagenet-sample-500.tar"


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
            picture(i).resize((480, 400), Image.Resampling.BICUBIC).save(loose / f"{i:03d}.JPEG", quality=92)
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
        words = ["-m", "tests.read_epochs", str(photograph_shards / "jpeg"), str(seed), "2", str(cache)]
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
    print(f"four readers, two epochs: {alone:.1f} CPU-seconds apart, {shared:.1f} together: {alone / shared:.1f} x")
    assert len(seen) == 1 and seen == seen_alone == together(tmp_path / "b", kill=True)[1]
    assert alone / shared >= 2.5


# ---- windows


def test_random_windows_lie_inside_and_have_the_area_and_shape_they_should():
    from sweep.data.windows import random_windows

    heights, widths = np.full(4000, 300.0), np.full(4000, 360.0)
    found = random_windows(np.array([1, 2]), heights, widths).astype(float)
    assert (
        found.min() >= 0 and (found[:, 0] + found[:, 2]).max() <= 1.0001 and (found[:, 1] + found[:, 3]).max() <= 1.0001
    )
    area, shape = found[:, 2] * found[:, 3], found[:, 3] * 360 / (found[:, 2] * 300)
    assert 0.079 < area.min() < 0.1 and 0.95 < area.max() <= 1.0 and shape.min() > 0.74 and shape.max() < 1.34
    np.testing.assert_array_equal(found, random_windows(np.array([1, 2]), heights, widths))
    assert not np.array_equal(found, random_windows(np.array([1, 3]), heights, widths))


def test_a_very_long_image_gets_the_largest_square_in_its_middle():
    from sweep.data.windows import random_windows

    window = random_windows(np.array([0, 0]), np.array([10.0]), np.array([1000.0]))
    np.testing.assert_allclose(window, [[0.0, 0.495, 1.0, 0.01]], rtol=1e-5)


def test_central_windows_show_seven_eighths_of_the_shorter_side():
    from sweep.data.windows import central_windows

    np.testing.assert_allclose(
        central_windows(np.array([200.0]), np.array([400.0]))[0], [0.0625, 0.28125, 0.875, 0.4375]
    )


@pytest.mark.parametrize("size", [16, 48])
def test_a_window_is_drawn_as_a_picture_program_draws_it(size):
    """Reduced and enlarged: Pillow's bilinear filter does the same."""
    from sweep.data import augment

    pixels = np.asarray(picture(3).resize((64, 64)))
    window = np.array([[0.1, 0.25, 0.7, 0.5]], np.float32)
    box = (0.25 * 64, 0.1 * 64, 0.75 * 64, 0.8 * 64)
    expected = np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box))
    received = augment.resampled(pixels[None], window, size)[0].numpy()
    inner = (slice(2, -2), slice(2, -2))  # at its edge Pillow does not look past the window
    assert np.abs(received[inner] - expected[inner]).max() < 1.5
