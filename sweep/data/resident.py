"""Splits in the memory of the devices: the compiled step gathers a batch by index, and nothing is read meanwhile.

Small images (CIFAR-10) are always there. Shards are, as the squares they are stored as, where they fit
(`data.resident`): whole on every device, or else divided among the devices. Windows are drawn on the host as for
streamed shards, so both ways train on the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.data import Images, host
from sweep.data.shards import THREADS, Reader, Shards
from sweep.data.windows import central_windows, random_windows
from sweep.devices import Devices
from sweep.errors import Refused
from sweep.progress import Work

Tensor = Any
# Every replica keeps its own copy and computes the same new value, so that no copy is sent. The replicas stay equal to
# the bit, because the gradients they compute it from were summed over all of them.
PER_REPLICA = {
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
}
PIECE = 512  # images that are read and sent to a device at a time
ROOM = 0.75  # share of a GPU's memory that images may take; the rest is for training
WORD = 8  # bytes that are summed as one whole number: int64 is what all kinds of reduction can sum


class Resident:
    """A split of small images, whole on every device."""

    divided = False

    def __init__(self, split: Images, devices: Devices) -> None:
        self.replicas = devices.replicas
        with devices.strategy.scope():
            # int64 labels: TensorFlow keeps int32 in the host's memory, not the GPU's
            self.images, self.labels = (
                tf.Variable(array, trainable=False, **PER_REPLICA)
                for array in (split.images, split.labels.astype(np.int64))
            )

    def windows(self, order: np.ndarray, seeds: np.ndarray) -> np.ndarray | None:
        """Return the windows of an epoch's images, `[steps, batch, 4]`; None: the images are taken whole."""
        return None

    def taken(self, rows: Tensor, windows: Tensor | None) -> tuple[Any, Tensor | None]:
        """Return images, labels (and windows), and at which indices of them this replica's part of the batch is.

        `rows` `[batch]` are those of all replicas. Without indices the part consists of the images themselves.
        """
        return (self.images.read_value(), self.labels.read_value()), self._own(rows)

    def _own(self, values: Tensor) -> Tensor:
        """Return this replica's part of values for the whole batch."""
        each = values.shape[0] // self.replicas
        first = tf.distribute.get_replica_context().replica_id_in_sync_group * each
        return tf.slice(values, [first] + [0] * (len(values.shape) - 1), [each, *values.shape[1:]])

    def batches(self, order: np.ndarray, seeds: np.ndarray | None) -> Iterator[None]:
        """Return None for every step: the compiled step gathers its batch by index."""
        return repeat(None)

    def example(self, rows: int) -> None:
        """Return None, as `batches` does."""


class ResidentShards(Resident):
    """A split of prepared images in the memory of the devices; a step cuts windows from them.

    If it is `divided`, replica r has the images r·n to (r + 1)·n − 1. For a batch every replica writes its images into
    an array of zeros, and the sum over the replicas is the batch.
    """

    def __init__(self, split: Shards, devices: Devices, reader: Reader, divided: bool) -> None:
        self.split, self.divided, self.replicas = split, divided, devices.replicas
        size, records = split.prepared.size, split.records
        self.heights, self.widths = (records[name].astype(np.float64) for name in ("height", "width"))
        self.each = -(-len(split) // devices.replicas) if divided else len(split)
        with devices.strategy.scope():
            self.images = tf.Variable(
                lambda: tf.zeros((self.each, size, size, 3), tf.uint8), trainable=False, **PER_REPLICA
            )
            self.labels, self.central = (
                tf.Variable(array, trainable=False, **PER_REPLICA)
                for array in (records["label"].astype(np.int64), central_windows(self.heights, self.widths))
            )
        self._fill(devices.strategy.experimental_local_results(self.images), reader)

    def _fill(self, copies: tuple[Any, ...], reader: Reader) -> None:
        count, gpu = len(self.split), "GPU" in copies[0].device
        with ThreadPoolExecutor(THREADS) as pool, Work(f"{self.split.split} images to the device", count) as work:
            for first in range(0, count, PIECE):
                last = min(first + PIECE, count)
                images, out = host.shared((last - first, *self.images.shape[1:]))
                reader.squares(np.arange(first, last), out, pool, gpu)  # while the piece before is copied
                tf.test.experimental.sync_devices()  # else pieces that wait to be copied fill the host's memory
                for replica, copy in enumerate(copies):
                    begin = replica * self.each if self.divided else 0  # the first image of this replica
                    own = slice(max(first, begin), min(last, begin + self.each))
                    if own.start < own.stop:
                        write = write_slice if "GPU" in copy.device else write_rows
                        with tf.device("/CPU:0"):  # else the piece goes through the first GPU
                            part = images[own.start - first : own.stop - first]
                        write(copy, own.start - begin, part)
                work.at(last)

    def windows(self, order: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        heights, widths = self.heights[order], self.widths[order]
        return np.stack([random_windows(*step) for step in zip(seeds, heights, widths, strict=True)])

    def taken(self, rows: Tensor, windows: Tensor | None) -> tuple[Any, Tensor | None]:
        rows = tf.maximum(rows, 0)  # -1 pads the last batch of an evaluation
        own = self._own(rows)
        labels = tf.gather(self.labels.read_value(), own)
        cut = tf.gather(self.central.read_value(), own) if windows is None else self._own(windows)
        if not self.divided:
            return (self._read(own), labels, cut), None
        context = tf.distribute.get_replica_context()
        here = rows - context.replica_id_in_sync_group * self.each
        found = self._read(tf.clip_by_value(here, 0, self.each - 1))
        words = context.all_reduce(tf.distribute.ReduceOp.SUM, in_words(found, (here >= 0) & (here < self.each)))
        return (from_words(self._own(words), self.images.shape[1:]), labels, cut), None

    def _read(self, rows: Tensor) -> Tensor:
        """Return images of this replica; TensorFlow would copy all of them if the whole variable were read."""
        return tf.raw_ops.ResourceGather(resource=self.images.handle, indices=rows, dtype=tf.uint8)


def write_slice(variable: Any, first: int, images: Tensor) -> None:
    """Write images to a variable from its row `first` on; on a CPU this takes 1 s for 39 MB."""
    end = [first + len(images)]
    with tf.device(variable.device):
        tf.raw_ops.ResourceStridedSliceAssign(ref=variable.handle, begin=[first], end=end, strides=[1], value=images)


def write_rows(variable: Any, first: int, images: Tensor) -> None:
    """Do the same as `write_slice`; on a GPU TensorFlow would copy the whole variable to the host and back."""
    variable.scatter_update(tf.IndexedSlices(images, np.arange(first, first + len(images))))


@tf.function(autograph=False, jit_compile=True)
def in_words(images: Tensor, here: Tensor) -> Tensor:
    """Return images as whole numbers `[images, …]`, and 0 for those that are not `here`."""
    pixels = tf.reshape(tf.where(here[:, None, None, None], images, tf.zeros_like(images)), (images.shape[0], -1))
    pixels = tf.pad(pixels, [[0, 0], [0, -pixels.shape[1] % WORD]])
    return tf.bitcast(tf.reshape(pixels, (images.shape[0], -1, WORD)), tf.int64)


@tf.function(autograph=False, jit_compile=True)
def from_words(words: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the images of this shape that `in_words` wrote as whole numbers."""
    pixels = tf.reshape(tf.bitcast(words, tf.uint8), (words.shape[0], -1))
    return tf.reshape(pixels[:, : np.prod(shape)], (words.shape[0], *shape))


def residence(split: Shards, devices: Devices, asked: str) -> str:
    """Return "whole" or "divided" if the shards are kept in the memory of the devices, or "" if they are streamed.

    They must fit beside what this process keeps there already. On a CPU memory is the disk's cache anyway: they are
    kept if asked for.
    """
    if asked == "off" or (asked == "auto" and not devices.memory):
        return ""
    prepared = split.prepared
    wanted = len(split) * prepared.size**2 * 3
    room = max(0.0, ROOM * devices.memory / devices.sharing - devices.used) if devices.memory else wanted
    if wanted <= room:
        return "whole"
    if wanted <= room * devices.replicas:
        return "divided"
    if asked == "on":
        raise Refused(f"data.resident: on needs {wanted / 1e9:,.0f} GB for the {split.split} images, and there "
                      f"are {room * devices.replicas / 1e9:,.0f} GB for them; expected auto, off, a smaller --size of "
                      "lottery data prepare or more --devices")  # fmt: skip
    return ""
