"""How a split reaches the devices: once for all (`Images`), or batch by batch (`Files`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.data import Files, Images, Split
from sweep.devices import Devices

Tensor = Any
CROP_AREA = (0.08, 1.0)  # of a random resized crop, as in most ImageNet recipes
CROP_SHAPE = (3 / 4, 4 / 3)
MARGIN = 0.875  # of the shorter side: what a test crop shows of an image


class Resident:
    """A split as uint8 in the memory of every device; a batch is a gather inside the compiled step."""

    def __init__(self, split: Images, devices: Devices) -> None:
        self.count = len(split)
        with devices.strategy.scope():
            # labels of 64 bits: TensorFlow keeps 32-bit integers in the host's memory, not the GPU's
            self.images, self.labels = (
                tf.Variable(array, trainable=False, **PER_REPLICA)
                for array in (split.images, split.labels.astype(np.int64))
            )

    def batches(self, order: np.ndarray, seeds: np.ndarray | None) -> Iterator[None]:
        """Nothing to bring: the compiled step gathers by index."""
        while True:
            yield None


class Streamed:
    """A split decoded on the CPU and handed to the devices one batch after the other."""

    def __init__(self, split: Files, devices: Devices, size: int) -> None:
        self.split, self.devices, self.size = split, devices, size
        self.count = len(split)

    def batches(self, order: np.ndarray, seeds: np.ndarray | None) -> Iterator[Any]:
        """Batches `(images, labels)` in the given order; with seeds, cropped at random from them."""
        flat = order.reshape(-1)
        valid = np.maximum(flat, 0)  # -1 pads the last batch of an evaluation
        paths, labels = self.split.paths[valid], self.split.labels[valid]
        if seeds is None:
            data = tf.data.Dataset.from_tensor_slices((paths, labels)).map(
                lambda path, label: (central(path, self.size), label), tf.data.AUTOTUNE
            )
        else:
            # an image's crop depends on its step and its place in the batch, not on where this sitting began
            draws = np.repeat(seeds.astype(np.int64), order.shape[1], axis=0)
            draws[:, 1] += np.tile(np.arange(order.shape[1]), len(order))
            data = tf.data.Dataset.from_tensor_slices((paths, labels, draws)).map(
                lambda path, label, seed: (random_crop(path, seed, self.size), label), tf.data.AUTOTUNE
            )
        data = data.batch(order.shape[1], drop_remainder=True).prefetch(2)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        yield from self.devices.strategy.experimental_distribute_dataset(data.with_options(options))


# Every replica keeps its own copy and computes the same new value, so that no copy has to travel; the replicas stay
# equal to the bit because what they compute it from was summed over all of them.
PER_REPLICA = {
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
}


def feed(split: Split, devices: Devices, size: int) -> Resident | Streamed:
    return Resident(split, devices) if isinstance(split, Images) else Streamed(split, devices, size)


def central(path: Tensor, size: int) -> Tensor:
    """The middle of the image, its shorter side cut to MARGIN, at `size` pixels."""
    content = tf.io.read_file(path)
    image = tf.io.decode_image(content, channels=3, expand_animations=False)
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    side = tf.cast(tf.cast(tf.minimum(height, width), tf.float32) * MARGIN, tf.int32)
    return _sized(image[(height - side) // 2 :, (width - side) // 2 :][:side, :side], size)


def random_crop(path: Tensor, seed: Tensor, size: int) -> Tensor:
    """A window of random area and shape, at `size` pixels."""
    content = tf.io.read_file(path)
    image = tf.io.decode_image(content, channels=3, expand_animations=False)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros((0, 0, 4)),
        seed,
        area_range=CROP_AREA,
        aspect_ratio_range=CROP_SHAPE,
        use_image_if_no_bounding_boxes=True,
    )
    return _sized(tf.slice(image, begin, extent), size)


def _sized(image: Tensor, size: int) -> Tensor:
    resized = tf.image.resize(tf.cast(image, tf.float32), (size, size))
    return tf.cast(tf.clip_by_value(tf.round(resized), 0.0, 255.0), tf.uint8)
