"""A fingerprint of the data that was read: all labels, a sample of the images, splits and normalisation.

Without it, two data sets of the same shape and name could be mixed in one pool. Up to SAMPLE images of each split are
read, evenly spaced, so that it takes seconds with ImageNet too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sweep.data import Dataset, Files, Images, Split
from sweep.experiment import Data, identity

SAMPLE = 256


def fingerprint(dataset: Dataset, data: Data) -> str:
    """Return 12 hexadecimal digits that identify labels, sampled images, normalisation and options of a data set."""
    digest = hashlib.sha256(repr((dataset.classes, dataset.image_size, dataset.channels)).encode())
    digest.update(repr((dataset.mean, dataset.deviation, sorted(identity(data).items()))).encode())
    for split in (dataset.train, dataset.validation, dataset.test):
        digest.update(np.ascontiguousarray(split.labels, np.int64).tobytes())
        content = _contents(split)
        for row in np.unique(np.linspace(0, len(split) - 1, SAMPLE).astype(int)) if len(split) else ():
            digest.update(content(int(row)))
    return digest.hexdigest()[:12]


def _contents(split: Split) -> Callable[[int], bytes]:
    """Return a function from an image's row to its pixels, or to the bytes of its file."""
    if isinstance(split, Images):
        return lambda row: split.images[row].tobytes()
    if isinstance(split, Files):
        return lambda row: Path(split.paths[row]).read_bytes()
    from sweep.data.shards import Reader, Shards

    assert isinstance(split, Shards)
    return Reader(split).encoded
