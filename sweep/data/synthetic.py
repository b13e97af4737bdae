"""Synthetic images, half class pattern and half noise: for tests and benchmarks, at any size."""

from __future__ import annotations

import numpy as np

from sweep.data import Dataset, Images, in_memory
from sweep.experiment import Data


def read(data: Data) -> Dataset:
    stream = np.random.Generator(np.random.Philox([7, data.classes, data.image_size]))

    def half(count: int) -> np.ndarray:
        # integers: for 224 pixels, normal numbers would take half a minute and gigabytes
        return stream.integers(0, 128, (count, data.image_size, data.image_size, 3), np.uint8)

    patterns = half(data.classes)

    def split(count: int) -> Images:
        labels = np.arange(count, dtype=np.int32) % data.classes
        return Images(patterns[labels] + half(count), labels)

    return in_memory(data, [str(i) for i in range(data.classes)], split(data.images), split(data.images))
