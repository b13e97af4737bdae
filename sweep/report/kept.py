"""What every mask leaves of every kernel: masks are large and stay with the pool, counts travel with the report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sweep import files
from sweep.graph.home import Home
from sweep.graph.mask_file import read_mask
from sweep.graph.training import Mask, Training
from sweep.pruning import masks

NAME = "kept.json"


@dataclass(frozen=True)
class Kept:
    weights: dict[str, int] = field(default_factory=dict)  # of every kernel
    kept: dict[str, dict[str, int]] = field(default_factory=dict)  # of every kernel, by the training that has the mask


def carriers(home: Home) -> dict[Mask, Training]:
    """Of every mask of the sweep, the first training that has it."""
    out: dict[Mask, Training] = {}
    for training in home.graph:
        if training.mask:
            out.setdefault(training.mask.as_made, training)
    return out


def kept(home: Home) -> Kept:
    """By the masks that are there; by what an earlier report wrote down where they are not."""
    path = home.report / NAME
    found = Kept(**json.loads(path.read_text())) if path.exists() else Kept()
    for mask, training in carriers(home).items():
        if home.mask(mask).exists():
            read = read_mask(home, mask)
            left = masks.remaining(read.mask, read.network)
            found.weights.update(zip(left, map(int, masks.kernel_sizes(read.network)), strict=True))
            found.kept[training.slug] = {kernel: int(count) for kernel, count in left.items()}
    return found


def write_kept(found: Kept, folder: Path) -> list[Path]:
    if not found.kept:
        return []
    path = folder / NAME
    files.write_text(path, json.dumps(asdict(found), indent=0) + "\n")
    return [path]
