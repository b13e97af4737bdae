"""A fingerprint of what was really read: all labels, a sample of the images, how they are split and normalised.

Two data sets of the same shape under the same name would otherwise meet in the pool unseen. Of images up to SAMPLE of
each split are looked at, spread evenly, so that it takes moments with ImageNet too; all labels count.
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
    """12 hexadecimal digits."""
    digest = hashlib.sha256(repr((dataset.classes, dataset.image_size, dataset.channels)).encode())
    digest.update(repr((dataset.mean, dataset.deviation, sorted(identity(data).items()))).encode())
    for split in (dataset.train, dataset.validation, dataset.test):
        digest.update(np.ascontiguousarray(split.labels, np.int64).tobytes())
        content = _contents(split)
        for row in np.unique(np.linspace(0, len(split) - 1, SAMPLE).astype(int)) if len(split) else ():
            digest.update(content(int(row)))
    return digest.hexdigest()[:12]


def _contents(split: Split) -> Callable[[int], bytes]:
    """Return a function that gives one image by its row: its pixels, or the bytes of its file."""
    if isinstance(split, Images):
        return lambda row: split.images[row].tobytes()
    if isinstance(split, Files):
        return lambda row: Path(split.paths[row]).read_bytes()
    from sweep.data.shards import Reader, Shards

    assert isinstance(split, Shards)
    return Reader(split).encoded
