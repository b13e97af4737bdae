"""The readers that benchmarks/readers.py compares: this project's, tf.data, Grain and NVIDIA DALI.

A reader is a generator of batches `(images, labels, windows)` on the device, in the order of `Case.order`: squares of
uint8 pixels `[batch, size, size, 3]`, and where to cut a random resized crop from each of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep.data import host
from sweep.data.jpeg import decode
from sweep.data.prepared import Prepared, open_prepared
from sweep.data.shards import THREADS, Reader, Shards, records_of
from sweep.data.windows import AREA, SHAPE, random_windows
from sweep.training.schedule import order

IMAGES = 2_000_000  # read at most, over as many epochs as that takes
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Case:
    """What every reader is asked for."""

    jpeg: Path  # two folders of `lottery data prepare`, of the same images
    raw: Path
    scratch: Path  # for the node's cache and the ArrayRecord
    batch: int
    crop: int  # pixels of a side of the network's input

    def split(self, form: str = "jpeg") -> Shards:
        return records_of(open_prepared(getattr(self, form)), "train")

    @property
    def order(self) -> np.ndarray:
        """Return the images of each step `[steps, batch]`: one permutation of all images after the other."""
        images = len(self.split())
        return np.concatenate([order(0, epoch, images, self.batch) for epoch in range(IMAGES // images + 1)])

    def described(self, split: Shards, rows: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return labels and windows of one step, as `sweep.data.feed.Sharded` makes them."""
        records = split.records[rows]
        heights, widths = records["height"].astype(np.float64), records["width"].astype(np.float64)
        return records["label"].astype(np.int64), random_windows(np.array([0, step]), heights, widths)


Batches = Iterator[tuple[Any, ...]]


def ours(form: str, cached: bool, case: Case) -> Batches:
    from sweep.data.feed import Sharded, open_reader
    from sweep.devices import prepare

    steps = case.order
    seeds = np.stack([np.zeros(len(steps), np.int64), np.arange(len(steps))], 1)
    reader = open_reader(case.split(form), str(case.scratch) if cached else "off")
    if cached:
        count, size = len(case.split(form)), case.split(form).prepared.size
        out: np.ndarray = np.empty((case.batch, size, size, 3), np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            for first in range(0, count, case.batch):  # decodes every image once
                rows = np.arange(first, min(first + case.batch, count))
                reader.squares(rows, out[: len(rows)], pool)
    yield from Sharded(case.split(form), prepare(), reader).batches(steps, seeds)


def tf_data(case: Case) -> Batches:
    """Decoding in TensorFlow's threads; only the bytes of a record are read from the shard in Python."""
    import tensorflow as tf

    split, steps = case.split(), case.order
    size, reader = split.prepared.size, Reader(split)

    def encoded(rows: np.ndarray) -> np.ndarray:
        return np.array([reader.encoded(int(row)) for row in rows], object)

    def pixels(content: Any) -> Any:
        # the accurate transform: without it the pixels are other ones
        image = tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")
        square = tf.reduce_all(tf.shape(image)[:2] == size)
        return tf.ensure_shape(tf.cond(square, lambda: image, lambda: scaled(image)), (size, size, 3))

    def scaled(image: Any) -> Any:
        resized = tf.image.resize(image, (size, size), antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)

    data = tf.data.Dataset.from_tensor_slices(steps)
    data = data.map(lambda rows: tf.numpy_function(encoded, [rows], tf.string)).prefetch(2).unbatch()
    data = data.map(pixels, CORES, deterministic=True).batch(case.batch, drop_remainder=True).prefetch(2)
    if tf.config.list_physical_devices("GPU"):
        data = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2))
    yield from labelled(case, split, data)


class Ordered:
    """The records of an ArrayRecord in the order of training, for Grain."""

    def __init__(self, path: Path, steps: np.ndarray) -> None:
        from grain.sources import ArrayRecordDataSource

        self.records, self.rows = ArrayRecordDataSource([str(path)]), steps.reshape(-1)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> bytes:
        return self.records[int(self.rows[place])]


@dataclass(frozen=True)
class Square:
    size: int

    def __call__(self, content: bytes) -> np.ndarray:
        decode(content, out := np.empty((self.size, self.size, 3), np.uint8))
        return out


def grain(processes: bool, case: Case) -> Batches:
    """Grain reads and hands out; pictures are decoded by the decoder of this project, in threads or in processes."""
    import grain
    import tensorflow as tf

    split = case.split()
    data = grain.MapDataset.source(Ordered(array_record(case), case.order)).map(Square(split.prepared.size))
    data = data.batch(case.batch, drop_remainder=True)
    if processes:
        options = grain.MultiprocessingOptions(num_workers=CORES, per_worker_buffer_size=1)
        batches = data.to_iter_dataset(grain.ReadOptions(1, 1)).mp_prefetch(options)
    else:
        batches = data.to_iter_dataset(grain.ReadOptions(CORES, CORES))
    device = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

    def placed(images: np.ndarray) -> Any:
        tensor, out = host.shared(images.shape)
        out[...] = images
        with tf.device(device):
            return tf.identity(tensor)

    yield from labelled(case, split, (placed(images) for images in batches))


def array_record(case: Case) -> Path:
    """Return the ArrayRecord with the training pictures of the jpeg shards, written if it is not there."""
    from array_record.python.array_record_module import ArrayRecordWriter

    path = case.scratch / "train.array_record"
    if not path.exists():
        split = case.split()
        reader = Reader(split)
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")  # for reading in any order
        for row in range(len(split)):
            writer.write(reader.encoded(row))
        writer.close()
    return path


def dali(cropped: bool, case: Case) -> Batches:
    """NVIDIA DALI, on the GPU if there is one; `cropped`: it decodes a random crop alone and resizes it."""
    import nvidia.dali as library
    import nvidia.dali.types as types
    import tensorflow as tf
    from nvidia.dali import fn

    split, steps = case.split(), case.order
    size, reader, gpu = split.prepared.size, Reader(split), bool(tf.config.list_physical_devices("GPU"))

    def encoded() -> Iterator[list[np.ndarray]]:
        for rows in steps:
            yield [np.frombuffer(reader.encoded(int(row)), np.uint8) for row in rows]

    @library.pipeline_def(
        batch_size=case.batch, num_threads=CORES, device_id=0 if gpu else None, enable_conditionals=True
    )
    def pipeline() -> Any:
        content = fn.external_source(source=encoded(), batch=True, dtype=types.UINT8, ndim=1)
        options: dict[str, Any] = {"device": "mixed" if gpu else "cpu", "adjust_orientation": False}
        if cropped:
            area, shape = list(AREA), list(SHAPE)
            images = fn.decoders.image_random_crop(content, random_area=area, random_aspect_ratio=shape, **options)
            return fn.resize(images, size=(case.crop, case.crop), interp_type=types.INTERP_LINEAR)
        images = fn.decoders.image(content, jpeg_fancy_upsampling=True, **options)
        shape = fn.peek_image_shape(content)
        if (shape[0] == size) & (shape[1] == size):  # resizing a square to itself costs more than decoding it
            square = images
        else:
            square = fn.resize(images, size=(size, size), interp_type=types.INTERP_LINEAR)
        return square

    built = pipeline()
    built.build()

    def images() -> Iterator[Any]:
        while True:
            (batch,) = built.run()  # done, as far as the host is concerned: no stream is named
            yield tf.experimental.dlpack.from_dlpack(batch.as_tensor().__dlpack__())

    yield from labelled(case, split, images())


def labelled(case: Case, split: Shards, images: Any) -> Batches:
    """Yield batches of images with labels and windows."""
    import tensorflow as tf

    for step, (rows, batch) in enumerate(zip(case.order, images, strict=False)):
        yield batch, *(tf.constant(part) for part in case.described(split, rows, step))


@dataclass(frozen=True)
class Way:
    """A reader: its batches, the module it needs with its packages on PyPI, the files that it reads."""

    batches: Callable[[Case], Batches]
    needs: tuple[str, str] = ("", "")
    files: Callable[[Case], list[Path]] = lambda case: shards(case.split().prepared)
    cropped: bool = False  # the images are crops already


def shards(prepared: Prepared) -> list[Path]:
    return [prepared.shard("train", number) for number in range(prepared.counts["train"])]


GRAIN = ("grain", "grain array_record")
DALI = ("nvidia.dali", "nvidia-dali-cuda120 or nvidia-dali-cuda130")
WAYS = {
    "ours, raw shards": Way(
        lambda case: ours("raw", False, case), files=lambda case: shards(case.split("raw").prepared)
    ),
    "ours, jpeg shards": Way(lambda case: ours("jpeg", False, case)),
    "ours, jpeg decoded before": Way(
        lambda case: ours("jpeg", True, case), files=lambda case: list(case.scratch.glob("train-*.pixels"))
    ),
    "tf.data": Way(tf_data),
    "Grain, threads": Way(lambda case: grain(False, case), GRAIN, lambda case: [array_record(case)]),
    "Grain, processes": Way(lambda case: grain(True, case), GRAIN, lambda case: [array_record(case)]),
    "DALI": Way(lambda case: dali(False, case), DALI),
    "DALI, crop alone": Way(lambda case: dali(True, case), DALI, cropped=True),
}
