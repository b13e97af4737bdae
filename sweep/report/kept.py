"""The number of weights that every mask keeps in every kernel, stored with the report; masks themselves are large."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.mask_file import read_own_mask
from sweep.graph.training import Mask
from sweep.pruning import masks

NAME = "kept.json"


@dataclass(frozen=True)
class Kept:
    weights: dict[str, int] = field(default_factory=dict)  # number of weights, by kernel
    kept: dict[str, dict[str, int]] = field(default_factory=dict)  # number of kept weights, by mask and kernel


def masks_of(home: Home) -> list[Mask]:
    """Return the masks that an experiment asks for, each once, in the order of the plan."""
    return list(dict.fromkeys(training.mask.as_made for training in home.graph if training.mask))


def kept(home: Home) -> Kept:
    """Return how many weights masks keep in every kernel: from their files or, if these are gone, an earlier report."""
    noted = _counted_before(home.report / NAME)
    found = Kept(noted["weights"])
    for mask in masks_of(home):
        if home.mask(mask).exists():
            read = read_own_mask(home, mask)
            left = masks.remaining(read.mask, read.network)
            found.weights.update(zip(left, map(int, masks.kernel_sizes(read.network)), strict=True))
            found.kept[mask.name] = {kernel: int(count) for kernel, count in left.items()}
        elif mask.name in noted["kept"]:
            found.kept[mask.name] = noted["kept"][mask.name]
    return found


def _counted_before(path: Path) -> dict[str, dict[str, Any]]:
    noted = files.read_json_if_there(path, {"weights": {}, "kept": {}}) or {"weights": {}, "kept": {}}
    weights = dict.fromkeys(noted["weights"], files.COUNT)
    files.checked(noted["weights"], weights, path, "weights")
    for name, counts in noted["kept"].items():
        files.checked(counts, dict.fromkeys(weights, int), path, f"kept.{name}")
        if not counts.keys() <= weights.keys():
            raise Refused(f"{path}: kept.{name} has kernels that weights has not; delete it and run again")
    return noted


def write_kept(found: Kept, folder: Path) -> list[Path]:
    if not found.kept:
        return []
    path = folder / NAME
    files.write_text(path, json.dumps(asdict(found), indent=0) + "\n")
    return [path]
