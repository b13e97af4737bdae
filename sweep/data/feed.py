"""The path of a split to the devices: copied once (sweep.data.resident), or batch by batch (`Files`, `Shards`)."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.data import Files, Images, Split, host
from sweep.data.decoded import Decoded
from sweep.data.resident import Resident, ResidentShards, residence
from sweep.data.shards import THREADS, Reader, Shards
from sweep.data.staging import in_memory, room_for, staged
from sweep.data.windows import AREA, MARGIN, SHAPE, central_windows, random_windows
from sweep.devices import Devices
from sweep.errors import Refused
from sweep.progress import console

Tensor = Any
Steps = tuple[np.ndarray, np.ndarray | None]  # the images of each step `[steps, batch]`, and the steps' seeds
# Batches made at a time, while the device works. A batch is three copies to a GPU (images, labels, windows), and each
# waits for the steps that are in the GPU's queue when it begins: so a batch takes a few steps after it is read.
AHEAD = 8


class Streamed:
    """A split whose image files are decoded on the CPU and sent to the devices batch by batch."""

    def __init__(self, split: Files, devices: Devices, size: int) -> None:
        self.split, self.devices, self.size = split, devices, size

    def batches(self, order: np.ndarray, seeds: np.ndarray | None) -> Iterator[Any]:
        """Yield batches `(images, labels)` in the given order: centre crops, or random crops drawn from `seeds`."""
        flat = order.reshape(-1)
        valid = np.maximum(flat, 0)  # -1 pads the last batch of an evaluation
        crop: Callable[..., Tensor] = central
        parts = [self.split.paths[valid], self.split.labels[valid]]
        if seeds is not None:
            # an image's crop depends on its step and its place in the batch, not on where training was resumed
            draws = np.repeat(seeds.astype(np.int64), order.shape[1], axis=0)
            draws[:, 1] += np.tile(np.arange(order.shape[1]), len(order))
            parts, crop = [*parts, draws], random_crop
        data = tf.data.Dataset.from_tensor_slices(tuple(parts)).map(
            lambda path, label, *seed: (crop(path, self.size, *seed), label), tf.data.AUTOTUNE
        )
        try:
            yield from self._handed_out(data, order.shape[1])
        except tf.errors.InvalidArgumentError as error:  # TensorFlow does not say which file is broken
            found = broken(self.split.paths)
            said = f"{found} is damaged or no image" if found else " ".join(str(error).split())[:200]
            raise Refused(f"data.path: {said}; take it out, or let lottery data prepare leave it out") from None

    def epochs(self, parts: Iterable[Steps]) -> Generator[Any]:
        """Yield the batches of one epoch after the other."""
        for order, seeds in parts:
            yield from self.batches(order, seeds)

    def example(self, rows: int) -> Any:
        """Return a black batch of `rows` images."""
        image = np.zeros((self.size, self.size, 3), np.uint8)
        data = tf.data.Dataset.from_tensors((image, self.split.labels[0])).repeat(rows)
        return next(iter(self._handed_out(data, rows)))

    def _handed_out(self, data: tf.data.Dataset, rows: int) -> Any:
        data = data.batch(rows, drop_remainder=True).prefetch(2)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return self.devices.strategy.experimental_distribute_dataset(data.with_options(options))


class Sharded:
    """A split of prepared images, read in threads while the device trains; the device cuts windows from them."""

    def __init__(self, split: Shards, devices: Devices, reader: Reader) -> None:
        self.split, self.devices, self.reader = split, devices, reader

    def batches(self, order: np.ndarray, seeds: np.ndarray | None) -> Iterator[Any]:
        """Yield batches `(images, labels, windows)` in the given order: central windows, or random ones by `seeds`."""
        return self.epochs([(order, seeds)])

    def epochs(self, parts: Iterable[Steps]) -> Generator[Any]:
        """Yield the batches of one epoch after the other; the first ones of the next are read before one ends."""
        steps = ((rows, None if seeds is None else seeds[i]) for order, seeds in parts for i, rows in enumerate(order))
        with ThreadPoolExecutor(THREADS) as pool, ThreadPoolExecutor(AHEAD) as ahead:
            begun = (ahead.submit(self._batch, *step, pool) for step in steps)
            waiting = deque(islice(begun, AHEAD))
            try:
                while waiting:
                    batch = waiting.popleft().result()  # already on the device
                    waiting.extend(islice(begun, 1))
                    yield batch
                    del batch  # else it stays on the device while the next one is waited for
            finally:  # nobody wants what is begun
                for executor in (ahead, pool):
                    executor.shutdown(wait=False, cancel_futures=True)

    def _batch(self, rows: np.ndarray, seed: np.ndarray | None, pool: ThreadPoolExecutor) -> Any:
        rows = np.maximum(rows, 0)  # -1 pads the last batch of an evaluation
        records = self.split.records[rows]
        heights, widths = records["height"].astype(np.float64), records["width"].astype(np.float64)
        windows = central_windows(heights, widths) if seed is None else random_windows(seed, heights, widths)

        gpu = self.devices.kind == "GPU"

        def read(own: slice) -> Tensor:
            images, out = host.shared((len(rows[own]), *self._square), gpu)
            self.reader.squares(rows[own], out, pool, gpu)
            return images

        return self._placed(read, records["label"].astype(np.int64), windows)

    def example(self, rows: int) -> Any:
        """Return a black batch of `rows` images."""
        ones = np.ones(rows)
        windows = central_windows(ones, ones)
        return self._placed(
            lambda own: tf.zeros((len(ones[own]), *self._square), tf.uint8), np.zeros(rows, np.int64), windows
        )

    @property
    def _square(self) -> tuple[int, int, int]:
        return self.split.prepared.size, self.split.prepared.size, 3

    def _placed(self, images: Callable[[slice], Tensor], labels: np.ndarray, windows: np.ndarray) -> Any:
        """Return a batch as tensors on the devices, split among the replicas; `images` returns those of one."""
        names = self.devices.strategy.extended.worker_devices
        each, left = divmod(len(labels), len(names))
        assert not left, "a batch is divisible by the number of replicas"
        owns = [slice(first, first + each) for first in range(0, len(labels), each)]
        found = [images(own) for own in owns]  # all of them before the first copy, which waits for its GPU

        def part(context: Any) -> Any:
            replica = context.replica_id_in_sync_group
            own = owns[replica]
            with tf.device(names[replica]):
                return tf.identity(found[replica]), tf.constant(labels[own]), tf.constant(windows[own])

        return self.devices.strategy.experimental_distribute_values_from_function(part)


def open_reader(split: Shards, cache: str) -> Reader:
    """Return a reader with a cache on the node's disk (pixels where they fit, else shards), or a plain one.

    A disk that is missing, full or read-only costs speed and no training.
    """
    place = "" if cache == "off" else cache or os.environ.get("SLURM_TMPDIR", "")
    if not place:
        return Reader(split)
    folder = Path(place).expanduser()
    try:
        if not cache and in_memory(folder):
            raise OSError(errno.ENODEV, "in memory, not on a disk")
        if split.prepared.format == "jpeg" and split.split in split.prepared.images:  # earlier versions wrote no counts
            try:
                return Decoded(split, folder)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        if room_for(split, folder):
            return Reader(staged(split, folder))
        why = "no room"
    except OSError as error:
        why = str(error.strerror)
    said = "data.cache" if cache else "$SLURM_TMPDIR"
    console.print(f"{said}: {place}: {why}; the {split.split} images are read where they are")
    return Reader(split)


Feed = Resident | Streamed | Sharded


def feed(split: Split, devices: Devices, size: int, cache: str = "", resident: str = "off") -> Feed:
    """Return the feed of a split; `cache` and `resident` as in an experiment's `data`."""
    if isinstance(split, Images):
        return Resident(split, devices)
    if isinstance(split, Shards):
        kept, reader = residence(split, devices, resident), open_reader(split, cache)
        return ResidentShards(split, devices, reader, kept == "divided") if kept else Sharded(split, devices, reader)
    assert isinstance(split, Files)
    return Streamed(split, devices, size)


def broken(paths: Iterable[str]) -> str:
    """Return the path of the first image that cannot be decoded, or ""."""
    for path in paths:
        try:
            _decoded(path)
        except tf.errors.InvalidArgumentError:
            return str(path)
    return ""


def central(path: Tensor, size: int) -> Tensor:
    """Return the centre square, MARGIN × the shorter side, of the image at `path`, as `[size, size, 3]`."""
    image = _decoded(path)
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    side = tf.cast(tf.cast(tf.minimum(height, width), tf.float32) * MARGIN, tf.int32)
    return _sized(image[(height - side) // 2 :, (width - side) // 2 :][:side, :side], size)


def random_crop(path: Tensor, size: int, seed: Tensor) -> Tensor:
    """Return a window of random area and aspect ratio of the image at `path`, as `[size, size, 3]`."""
    image = _decoded(path)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image), tf.zeros((0, 0, 4)), seed, area_range=AREA, aspect_ratio_range=SHAPE,
        use_image_if_no_bounding_boxes=True,
    )  # fmt: skip
    return _sized(tf.slice(image, begin, extent), size)


def _decoded(path: Tensor) -> Tensor:
    return tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)


def _sized(image: Tensor, size: int) -> Tensor:
    resized = tf.image.resize(tf.cast(image, tf.float32), (size, size))
    return tf.cast(tf.clip_by_value(tf.round(resized), 0.0, 255.0), tf.uint8)
