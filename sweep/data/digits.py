"""Handwritten digits, 1797 images of 8 × 8 pixels, which come with scikit-learn: no download."""

from __future__ import annotations

import numpy as np

from sweep.data import Dataset, Images, in_memory
from sweep.experiment import Data


def read(data: Data) -> Dataset:
    from sklearn.datasets import load_digits

    source = load_digits()
    images = np.round(source.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    labels = source.target.astype(np.int32)
    # the images are sorted by writer: every fifth image for testing puts each writer in both splits
    testing = np.arange(len(labels)) % 5 == 4
    train, test = (Images(images[part], labels[part]) for part in (~testing, testing))
    return in_memory(data, "0123456789", train, test)
