"""The masks of one dense run on disk: thresholds, bit-packed masks, counts per kernel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from models import Network, Weights, build
from sweep import masks, store
from sweep.errors import Refused
from sweep.masks import Level
from sweep.plan import levels
from sweep.store import Store


@dataclass(frozen=True)
class MaskFile:
    """All masks of one seed, by level."""

    network: Network
    masks: dict[str, np.ndarray]  # by str(level)
    thresholds: dict[str, float | None]  # None where each kernel has its own

    def density(self, level: Level) -> float:
        """Share of the prunable weights that stays."""
        return float(self.masks[str(level)].mean())


def network_of(attributes: dict[str, object]) -> Network:
    """The network a snapshot belongs to, from the snapshot's own attributes."""
    size, channels, classes, width = (attributes[key] for key in ("image_size", "channels", "classes", "width"))
    return build(str(attributes["network"]), image_size=size, channels=channels, classes=classes, width=width)  # type: ignore[arg-type]


def final_weights(home: Store, seed: int) -> tuple[Network, Weights, dict[str, object]]:
    """The weights at the end of the dense run, with their network and the attributes of their file."""
    path = home.snapshot(seed, None)
    named, attributes = store.read_arrays(path)
    try:
        network = network_of(attributes)
        return network, network.flat(named), attributes
    except (KeyError, ValueError) as error:
        raise Refused(f"{path}: not a snapshot ({error}); delete it and run again") from None


def make_masks(home: Store, seed: int) -> MaskFile:
    """Masks of every level from the final weights of the dense run, written once."""
    path = home.masks(seed)
    network, weights, attributes = final_weights(home, seed)
    kernels = weights.kernels
    digest = hashlib.sha256(kernels.tobytes()).hexdigest()
    if path.exists():
        return read_masks(home, seed, digest)
    prune = home.experiment.prune
    arrays: dict[str, np.ndarray] = {}
    for level in levels(prune):
        pruned = masks.prune(kernels, network, level, prune.scope)
        arrays[f"{level}/mask"] = np.packbits(pruned.mask)
        if pruned.threshold is not None:
            arrays[f"{level}/threshold"] = np.array(pruned.threshold, np.float64)
        arrays[f"{level}/kept"] = np.array(list(masks.kept(pruned.mask, network).values()), np.int64)
    shape = {key: attributes[key] for key in ("network", "image_size", "channels", "classes", "width")}
    store.write_arrays(path, arrays, {**shape, "prunable": network.prunable, "final_weights": digest})
    return read_masks(home, seed, digest)


def read_masks(home: Store, seed: int, final_weights: str | None = None) -> MaskFile:
    """The masks of one seed; with a digest, only if they were taken from the weights it belongs to."""
    path = home.masks(seed)
    arrays, attributes = store.read_arrays(path)
    if final_weights not in (None, attributes["final_weights"]):
        raise Refused(f"{path}: taken from other final weights than {home.snapshot(seed, None)}; delete it")
    network = network_of(attributes)
    found = {name.split("/")[0] for name in arrays}
    for level in levels(home.experiment.prune):
        if str(level) not in found:
            raise Refused(f"{path}: has no level {level}; delete it and run again")
    unpacked = {level: np.unpackbits(arrays[f"{level}/mask"], count=network.prunable).astype(bool) for level in found}
    thresholds = {level: arrays.get(f"{level}/threshold") for level in found}
    return MaskFile(network, unpacked, {level: None if t is None else float(t) for level, t in thresholds.items()})
