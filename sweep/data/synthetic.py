"""Made-up images with a weak pattern per class: for tests and speed measurements, at any size."""

from __future__ import annotations

import numpy as np

from sweep.data import Dataset, Images, in_memory
from sweep.experiment import Data


def read(data: Data) -> Dataset:
    stream = np.random.Generator(np.random.Philox([7, data.classes, data.image_size]))
    shape = (data.image_size, data.image_size, 3)
    patterns = stream.normal(0.0, 30.0, (data.classes, *shape)).astype(np.float32)

    def split(count: int) -> Images:
        labels = np.arange(count, dtype=np.int32) % data.classes
        noise = stream.normal(128.0, 40.0, (count, *shape)).astype(np.float32)
        return Images(np.clip(noise + patterns[labels], 0, 255).astype(np.uint8), labels)

    return in_memory("synthetic", data, data.classes, split(data.images), split(data.images))
