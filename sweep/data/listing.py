"""The identity of a user's own images in the pool: a digest of their names, sizes and labels.

CIFAR-10 is known by its name; a folder is not, and trainings on two folders must not share a name in the pool. Labels
are part of the paths in a folder (the class is the folder's name) and are in the index of shards.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from sweep.data import place_of
from sweep.data.prepared import name_of, open_prepared
from sweep.experiment import Data


def listing(data: Data) -> str:
    """Return 12 hexadecimal digits that identify the images of a folder or of shards."""
    root = place_of(data)
    if data.name == "shards":
        prepared = open_prepared(root)
        lines = [name_of(prepared, split) for split in ("train", "test")]
    else:
        files = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        lines = sorted(f"{path.relative_to(root)} {path.stat().st_size}" for path in files)  # train/CLASS/name size
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
