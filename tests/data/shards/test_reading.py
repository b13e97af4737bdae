"""Reading shards: any order, from any place, shared by the trainings of a node."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sweep import files
from sweep.data import open_dataset, shards
from sweep.data.decoded import Decoded
from sweep.data.prepared import name_of
from sweep.data.shards import Reader
from sweep.data.staging import in_memory
from sweep.errors import Refused
from sweep.experiment import Data, Experiment
from tests.commands import lottery, python, started
from tests.conftest import tiny
from tests.data.shards.conftest import SIZE, on_a_disk
from tests.data.shards.readers import together
from tests.slurm_cluster import until
from tests.trainings import assert_equal_bits, assert_nothing_is_traced_later, start_at, trained, trained_in_pieces

pytestmark = pytest.mark.tensorflow


def batches(folder: Path, order: np.ndarray, seeds: np.ndarray | None, cache: str = "off") -> list[list[np.ndarray]]:
    from sweep.data.feed import Sharded, open_reader
    from sweep.devices import prepare as devices

    split = shards.records_of(shards.open_prepared(folder), "train")
    source = Sharded(split, devices(), open_reader(split, cache))
    return [[part.numpy() for part in batch] for batch in source.batches(order, seeds)]


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


def test_the_next_epoch_is_begun_before_one_ends(raw):
    from sweep.data.feed import AHEAD, Sharded
    from sweep.devices import prepare as devices

    split, begun = shards.records_of(shards.open_prepared(raw), "train"), []

    def epochs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number, order in enumerate((ORDER, ORDER[::-1], ORDER)):
            begun.append(number)
            yield order, SEEDS + number

    received = Sharded(split, devices(), Reader(split)).epochs(epochs())
    first = next(received)
    assert begun == [0, 1] and len(ORDER) < AHEAD < 2 * len(ORDER)
    expected = [batch for order, seeds in epochs() for batch in batches(raw, order, seeds)]
    for one, other in zip([first, *received], expected, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, same)


def test_a_small_raw_set_is_trained_from_the_memory_of_the_device(raw):
    from sweep.data import Images

    found = open_dataset(Data("shards", path=str(raw), validation=6, crop="padded"))
    assert isinstance(found.train, Images) and (len(found.train), len(found.validation), len(found.test)) == (54, 6, 12)
    large = open_dataset(Data("shards", path=str(raw), image_size=24))
    assert isinstance(large.train, shards.Shards) and large.image_size == 24
    with pytest.raises(Refused, match=r"data.crop: padded needs raw shards .* expected data.crop=resized"):
        open_dataset(Data("shards", path=str(raw), image_size=24, crop="padded"))


def test_pictures_are_decoded_once_for_all_readers_of_a_node(jpeg, tmp_path, monkeypatch):
    calls = []
    before = shards.decode
    monkeypatch.setattr(shards, "decode", lambda *words: calls.append(1) or before(*words))
    plain = batches(jpeg, ORDER, None)
    assert len(calls) == 60
    first = batches(jpeg, ORDER, None, str(tmp_path))
    second = batches(jpeg, ORDER[::-1], None, str(tmp_path))[::-1]  # another order: another ticket at another epoch
    assert len(calls) == 120
    for one, two, three in zip(plain, first, second, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[0], three[0])


def test_readers_of_a_node_each_see_every_image_of_each_epoch_once_also_where_one_is_killed(jpeg, tmp_path):
    seen = [zlib.crc32(image[3::32, 5::32].tobytes()) for batch in batches(jpeg, ORDER, None) for image in batch[0]]
    assert together(jpeg, tmp_path, epochs=2, kill=True, readers=2)[1] == {f"60 images {sum(seen)}"}


def test_images_that_were_prepared_anew_are_decoded_anew(jpeg, tmp_path):
    made = shards.open_prepared(jpeg)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", jpeg, copy], check=True)
    index = json.loads((copy / "train-00001.json").read_text())
    index["records"] = index["records"][1:]  # an image was lost then: every later one has another number
    del index["seal"]
    (copy / "train-00001.json").write_text(json.dumps(index))
    names = {name_of(shards.open_prepared(folder), "train") for folder in (made.root, copy)}
    assert len(names) == 2


def test_a_disk_without_room_for_the_pixels_is_found_out_at_once(jpeg, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    received = batches(jpeg, ORDER, SEEDS, str(tmp_path / "node"))  # copied as it is
    for one, other in zip(received, batches(jpeg, ORDER, SEEDS), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert not list((tmp_path / "node").glob("*.pixels")) and len(list((tmp_path / "node").glob("train-*/*.jpeg"))) > 1


@pytest.mark.parametrize("form", ["raw", "jpeg"])
@pytest.mark.parametrize("place", ["/proc/none", "/dev/full/here"])  # a folder cannot be made in either
def test_a_node_whose_disk_is_missing_reads_the_images_where_they_are_and_says_so(form, place, request, capsys):
    folder = request.getfixturevalue(form)
    received = batches(folder, ORDER, SEEDS, place)
    assert re.search(f"data.cache: {place}: (No such|Not a|no room).* are read where they are", capsys.readouterr().out)
    for one, other in zip(received, batches(folder, ORDER, SEEDS), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_the_disk_that_slurm_names_is_used_unless_it_is_memory(jpeg, tmp_path, monkeypatch, capsys):
    """What is written to a file in memory counts as memory of the job: 252 GB of pixels would end it."""
    if not on_a_disk(tmp_path) or on_a_disk(Path("/dev/shm")):
        pytest.skip("needs a disk and /dev/shm in memory")
    expected = batches(jpeg, ORDER, SEEDS)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        for folder, cached in ((tmp_path, True), (Path(memory), False)):
            monkeypatch.setenv("SLURM_TMPDIR", str(folder))
            for one, other in zip(batches(jpeg, ORDER, SEEDS, ""), expected, strict=True):
                np.testing.assert_array_equal(one[0], other[0])
            assert bool([*folder.glob("*.pixels")]) == cached
    said = f"$SLURM_TMPDIR: {memory}: in memory, not on a disk; the train images are read where they are"
    assert said in " ".join(capsys.readouterr().out.split())
    assert in_memory(tmp_path / "not" / "there") is False and in_memory(Path("/dev/shm/not/there")) is True


def test_a_reader_that_died_before_an_image_was_whole_leaves_it_to_the_next(jpeg, tmp_path):
    split = shards.records_of(shards.open_prepared(jpeg), "train")
    reader = Decoded(split, tmp_path)
    out = np.full((SIZE, SIZE, 3), 99, np.uint8)
    reader._pixels.write(7 * out.nbytes, out)  # written in part, and killed: its checksum was not set
    Decoded(split, tmp_path).pixels(7, out)
    expected = out.copy()
    Reader(split).pixels(7, expected)
    np.testing.assert_array_equal(out, expected)


def test_pixels_that_a_node_lost_are_decoded_again(jpeg, tmp_path):
    split = shards.records_of(shards.open_prepared(jpeg), "train")
    out, expected = (np.empty((SIZE, SIZE, 3), np.uint8) for _ in range(2))
    Decoded(split, tmp_path).pixels(7, expected)
    other = Decoded(split, tmp_path)
    place = split.records["row"][7]
    # the checksum was on the disk before the power went, a page of the pixels not
    other._pixels.write(place * out.nbytes + 100, np.zeros(2000, np.uint8))
    for _ in range(2):
        other.pixels(7, out)
        np.testing.assert_array_equal(out, expected)
        other._pixels.read(place * out.nbytes, out)
        np.testing.assert_array_equal(out, expected, "not mended for the others")


def test_raw_shards_are_copied_to_the_node_once_and_checked(raw, tmp_path):
    from sweep.data.staging import staged

    split = shards.records_of(shards.open_prepared(raw), "train")
    here = staged(split, tmp_path)
    (folder,) = tmp_path.iterdir()
    times = {path.name: path.stat().st_mtime_ns for path in folder.glob("train-*")}
    assert len(times) == 2 * split.prepared.counts["train"]
    staged(split, tmp_path)
    assert times == {path.name: path.stat().st_mtime_ns for path in folder.glob("train-*")}
    (folder / "train-00000.json").unlink()  # killed before it was whole
    (folder / "train-00000.raw").write_bytes(b"half")
    one, other = np.empty((2, SIZE, SIZE, 3), np.uint8)
    Reader(staged(split, tmp_path)).pixels(5, one)
    Reader(split).pixels(5, other)
    np.testing.assert_array_equal(one, other)
    assert here.prepared.root == folder
    for received, expected in zip(batches(raw, ORDER, SEEDS, str(tmp_path)), batches(raw, ORDER, SEEDS), strict=True):
        np.testing.assert_array_equal(received[0], expected[0])


def test_a_shard_that_is_damaged_is_not_taken_over(raw, tmp_path):
    from sweep.data.staging import staged

    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", raw, copy], check=True)
    with (copy / "train-00000.raw").open("r+b") as file:
        file.write(b"xx")
    with pytest.raises(Refused, match=r"train-00000.raw: its copy has another checksum"):
        staged(shards.records_of(shards.open_prepared(copy), "train"), tmp_path / "node")


def test_every_replica_gets_its_own_equal_part_of_the_batch(jpeg):
    script = (
        "import sys, zlib, numpy as np\n"
        "from pathlib import Path\n"
        "from sweep.data import shards\n"
        "from sweep.data.feed import Sharded\n"
        "from sweep.devices import prepare\n"
        "devices = prepare(int(sys.argv[2]))\n"
        "split = shards.records_of(shards.open_prepared(Path(sys.argv[1])), 'train')\n"
        "order, seeds = np.arange(60).reshape(5, 12), np.arange(10).reshape(5, 2)\n"
        "for batch in Sharded(split, devices, shards.Reader(split)).batches(order, seeds):\n"
        "    parts = [devices.strategy.experimental_local_results(part) for part in batch]\n"
        "    assert all(len(each) == 12 // devices.replicas for part in parts for each in part)\n"
        "    places = list(devices.strategy.extended.worker_devices)\n"
        "    assert all([each.device for each in part] == places for part in parts)\n"
        "    print([zlib.crc32(np.concatenate([each.numpy() for each in part]).tobytes()) for part in parts])\n"
    )
    said = [python("-c", script, jpeg, devices) for devices in (1, 4)]
    assert said[0].stdout == said[1].stdout and len(said[0].stdout.splitlines()) == 5


def test_memory_stays_flat_over_many_epochs(jpeg):
    """Of the process itself; pages of mapped files belong to the system."""
    script = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from sweep.data import shards\n"
        "from sweep.data.feed import Sharded\n"
        "from sweep.devices import prepare\n"
        "split = shards.records_of(shards.open_prepared(Path(sys.argv[1])), 'train')\n"
        "source = Sharded(split, prepare(), shards.Reader(split))\n"
        "for epoch in range(60):\n"
        "    order = np.random.default_rng(epoch).permutation(60).reshape(6, 10)\n"
        "    for batch in source.batches(order, np.ones((6, 2), np.int64) * epoch): pass\n"
        "    if epoch in (19, 59):\n"
        "        print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('RssAnon')))\n"
    )
    before, after = map(int, python("-c", script, jpeg).stdout.split())
    assert after - before < 8_000  # kB


@pytest.mark.parametrize("reader", ["raw shards", "pictures decoded before", "class folders"])
def test_stopped_after_any_step_training_goes_on_to_the_same_bits(reader, raw, jpeg, source, program, tmp_path):
    data = {
        "raw shards": Data("shards", path=str(raw)),
        "pictures decoded before": Data("shards", path=str(jpeg), cache=str(tmp_path / "node")),
        "class folders": Data("folder", path=str(source)),
    }[reader]
    run = program(dataclasses.replace(tiny(), data=dataclasses.replace(data, image_size=16, validation=6)))
    whole, weights = trained(run, start_at(run), tmp_path / "whole")
    pieces, end = trained_in_pieces(run, start_at(run), tmp_path / "pieces")
    assert_equal_bits(end, weights)
    assert pieces.test == whole.test and pieces.validation == whole.validation


@pytest.mark.drill
def test_training_from_jpeg_shards_goes_on_after_a_kill_to_the_same_bits(jpeg, tmp_path):
    (tmp_path / "e.yaml").write_text(
        f"model: {{name: resnet8, width: 0.25}}\n"
        f"data: {{name: shards, path: {jpeg}, image_size: 16, validation: 10, flip: true}}\n"
        "recipe: {epochs: 6, batch: 10, learning_rate: 0.01, checkpoint_minutes: 0.001}\nprune: {quantiles: [0.5]}\n"
    )
    words = ["train", tmp_path / "e.yaml", "--results"]
    lottery(*words, tmp_path / "straight")
    with started(*words, tmp_path / "killed") as process:
        until(lambda: [*tmp_path.glob("killed/trainings/*/checkpoint.h5")], 120)
        process.kill()
    lottery(*words, tmp_path / "killed")
    results = [next((tmp_path / name).glob("trainings/dense-*/result.json")) for name in ("straight", "killed")]
    first, second = (json.loads(path.read_text()) for path in results)
    assert first["test"] == second["test"] and first["validation"] == second["validation"]


def test_what_is_traced_ahead_is_what_training_calls(raw, program, tmp_path):
    assert_nothing_is_traced_later(program(from_shards(raw)), tmp_path)


def from_shards(folder: Path) -> Experiment:
    return dataclasses.replace(tiny(), data=Data("shards", path=str(folder), image_size=16, validation=6))


def test_a_slow_disk_is_said_and_changes_no_bit(raw, program, tmp_path, capsys):
    """A real one: bindfs hands out 20 kB a second."""
    run = program(from_shards(raw))
    _, weights = trained(run, start_at(run), tmp_path / "fast")
    with slow_disk(raw, tmp_path / "slow") as slow:
        run = program(from_shards(slow))
        _, end = trained(run, start_at(run), tmp_path / "trained", quiet=False)
    assert_equal_bits(end, weights)
    first, *_ = files.read_metrics(tmp_path / "trained")
    said = [line for line in capsys.readouterr().out.splitlines() if "waiting for images, which come" in line]
    assert [f"test: {first['data_wait_share']:.0%} of epoch 1 went into" in line for line in said] == [True]


@contextmanager
def slow_disk(folder: Path, place: Path) -> Iterator[Path]:
    """The folder, read at 20 kB a second."""
    place.mkdir()
    command = ["bindfs", "--read-rate=20k", "-o", "ro", folder, place]
    if not shutil.which("bindfs") or subprocess.run(command, check=False).returncode:
        pytest.skip("bindfs cannot mount a slow disk here")
    try:
        yield place
    finally:
        subprocess.run(["fusermount", "-u", "-z", place], check=True)
