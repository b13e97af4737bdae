"""Shards on real disks: many of them, cut off or gone while they are read, and read where they lie in memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sweep.data import disk, shards
from sweep.data.decoded import Decoded
from sweep.data.disk import Pieces
from sweep.data.shards import Reader
from sweep.errors import Refused
from sweep.experiment import Data
from sweep.progress import Work
from tests.commands import python
from tests.data.shards.conftest import SIZE, on_a_disk, prepare
from tests.slurm_cluster import until

pytestmark = pytest.mark.slow


def split_of(folder: Path) -> shards.Shards:
    return shards.records_of(shards.open_prepared(folder), "train")


def test_there_may_be_more_shards_than_files_that_may_be_open(source, raw, tmp_path):
    """ImageNet has 1,700 shards, and many systems let a process open 1,024 files."""
    prepare(source, tmp_path / "many", "--format", "raw", shard_bytes=3 * SIZE**2)
    script = (
        "import os, resource, sys, zlib, numpy as np\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from pathlib import Path\n"
        "from sweep.data import shards\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 48))\n"
        "split = shards.records_of(shards.open_prepared(Path(sys.argv[1])), 'train')\n"
        "reader = shards.Reader(split)\n"
        "with ThreadPoolExecutor(shards.THREADS) as pool:\n"
        "    for epoch in range(3):\n"
        "        order = np.random.default_rng(epoch).permutation(60)\n"
        "        images = np.empty((60, *2 * [split.prepared.size], 3), np.uint8)\n"
        "        reader.squares(order, images, pool)\n"
        "        print(zlib.crc32(images[np.argsort(order)].tobytes()))\n"
        "print(split.prepared.counts['train'], len(os.listdir('/proc/self/fd')) < 32)\n"
    )
    *sums, last = python("-c", script, tmp_path / "many").stdout.splitlines()
    assert last == "60 True"
    images = {name: np.zeros((60, SIZE, SIZE, 3), np.uint8) for name in ("few", "many")}
    with ThreadPoolExecutor(shards.THREADS) as pool:
        Reader(split_of(raw)).squares(np.arange(60), images["few"], pool)
        Reader(split_of(tmp_path / "many")).squares(np.arange(60), images["many"], pool)
    np.testing.assert_array_equal(images["few"], images["many"])
    assert sums == [str(zlib.crc32(images["few"].tobytes()))] * 3


@pytest.mark.parametrize("form", ["raw", "jpeg"])
def test_a_shard_that_is_cut_off_while_it_is_read_is_named(form, source, tmp_path):
    prepare(source, tmp_path / "shards", "--format", form)
    reader, out = Reader(split_of(tmp_path / "shards")), np.empty((SIZE, SIZE, 3), np.uint8)
    reader.pixels(0, out)
    path = reader.shards.prepared.shard("train", 0)
    os.truncate(path, int(reader.shards.records["length"][0]) + 10)
    reader.pixels(0, out)
    with pytest.raises(Refused, match=rf"{path}: ends at byte \d+, \d+ bytes before the end of an image"):
        reader.pixels(1, out)


def test_a_disk_that_goes_away_is_an_error_with_the_name_of_the_file(raw, tmp_path):
    """A real one: bindfs is killed, as a network's file system goes."""
    (tmp_path / "disk").mkdir()
    command = ["bindfs", "-f", "-o", "ro", raw, tmp_path / "disk"]
    if not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as served:
        try:
            until(lambda: (tmp_path / "disk/prepared.json").exists() or served.poll() is not None, 60)
            if served.poll() is not None:
                pytest.skip("bindfs cannot mount here")
            reader = Reader(split_of(tmp_path / "disk"))
            reader._shard(0)  # open, nothing read
            served.send_signal(signal.SIGKILL)
            served.wait()
            with pytest.raises(OSError, match="not connected") as caught:
                reader.pixels(0, np.empty((SIZE, SIZE, 3), np.uint8))
            assert caught.value.filename == str(tmp_path / "disk/train-00000.raw")
        finally:
            subprocess.run(["fusermount", "-u", "-z", tmp_path / "disk"], check=True)


def test_a_cache_that_was_cut_off_is_named(jpeg, tmp_path):
    reader, out = Decoded(split_of(jpeg), tmp_path), np.empty((SIZE, SIZE, 3), np.uint8)
    reader.pixels(9, out)
    (pixels,) = tmp_path.glob("*.pixels")
    os.truncate(pixels, 5)
    with pytest.raises(Refused, match=f"{pixels}: ends at byte"):
        reader.pixels(9, out)


def test_a_file_is_closed_when_nobody_has_it(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(10)))
    pieces, out = Pieces(tmp_path / "file"), np.empty(4, np.uint8)
    assert is_open(tmp_path / "file")
    pieces.read(3, out)
    assert out.tolist() == [3, 4, 5, 6]
    del pieces
    assert not is_open(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        Pieces(tmp_path / "none")


def is_open(path: Path) -> bool:
    return any(one.is_symlink() and one.readlink() == path for one in Path("/proc/self/fd").iterdir())


@pytest.mark.tensorflow
@pytest.mark.parametrize("form", ["raw", "jpeg"])
def test_a_batch_is_handed_over_where_it_was_read(form, request, monkeypatch):
    """Without a copy: a GPU waits for the 50 ms that `tf.constant` takes for 50 MB."""
    from sweep.data import host
    from sweep.data.feed import Sharded
    from sweep.devices import prepare as devices

    split, made, before = split_of(request.getfixturevalue(form)), [], host.shared
    monkeypatch.setattr(host, "shared", lambda *given: made.append(before(*given)) or made[-1])
    (batch,) = Sharded(split, devices(), Reader(split)).batches(np.arange(12)[None], None)
    ((_, images),) = made
    images[5, 6, 7] += 1
    np.testing.assert_array_equal(batch[0].numpy(), images)


def from_disk() -> int:
    """Return how many bytes this process has had read from disks."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def test_files_that_are_forgotten_are_read_from_the_disk_again(tmp_path):
    if not on_a_disk(tmp_path):
        pytest.skip("needs a disk")
    size, before = 1 << 22, from_disk()
    (tmp_path / "file").write_bytes(bytes(size))
    pieces, out = Pieces(tmp_path / "file"), np.empty(size, np.uint8)
    pieces.read(0, out)
    assert from_disk() == before, "it is in the cache"
    disk.forget([tmp_path / "file"])
    pieces.read(0, out)
    assert from_disk() >= before + size


@pytest.mark.tensorflow
def test_a_bench_of_a_cold_disk_forgets_what_is_read(raw, jpeg, source, tmp_path):
    from sweep.bench.feeding import measure
    from sweep.devices import prepare as devices

    with Work("reading", 1, quiet=True) as work, pytest.MonkeyPatch.context() as patch:
        forgotten: list[Path] = []
        patch.setattr(disk, "forget", forgotten.extend)
        for folder, cache, wanted in ((raw, "off", raw.glob("train-*.raw")), (jpeg, tmp_path, None)):
            data = Data("shards", path=str(folder), image_size=16, cache=str(cache))
            assert measure(data, devices(), 20, 0.01, 1e4, work, cold=True).images_per_second > 0
            assert set(forgotten) == set(wanted or tmp_path.glob("train-*.pixels")) and forgotten
            forgotten.clear()
        with pytest.raises(Refused, match="expected a folder that lottery data prepare made, with --cold"):
            measure(Data("folder", path=str(source), image_size=16), devices(), 20, 0.01, 1e4, work, cold=True)
