"""Masks on disk: one file each, named by the mask's value; made by whoever needs it first."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from models import Network, Weights, build
from sweep import files
from sweep.errors import Refused
from sweep.experiment import END, Point
from sweep.graph.home import Home
from sweep.graph.training import Mask, Training
from sweep.pruning import masks


@dataclass(frozen=True)
class Found:
    """A mask, and what it was made of."""

    network: Network
    mask: np.ndarray
    threshold: float | None  # None where each kernel has its own

    @property
    def density(self) -> float:
        """Share of the prunable weights that stays."""
        return float(self.mask.mean())


def network_of(attributes: dict[str, object]) -> Network:
    """The network a snapshot belongs to, from the snapshot's own attributes."""
    size, channels, classes, width = (attributes[key] for key in ("image_size", "channels", "classes", "width"))
    return build(str(attributes["network"]), image_size=size, channels=channels, classes=classes, width=width)  # type: ignore[arg-type]


def weights_at(home: Home, training: Training, at: Point) -> tuple[Network, Weights, dict[str, object]]:
    """The weights of a training at a point, with their network and the attributes of their file."""
    path = home.snapshot(training, at)
    named, attributes = files.read_arrays(path)
    try:
        network = network_of(attributes)
        return network, network.flat(named), attributes
    except (KeyError, ValueError) as error:
        raise Refused(f"{path}: not a snapshot ({error}); delete it and run again") from None


def final_weights(home: Home, training: Training) -> tuple[Network, Weights, dict[str, object]]:
    return weights_at(home, training, END)


def make_mask(home: Home, mask: Mask) -> Found:
    """The mask as found, from its file or, the first time, from the weights it is taken from; then arranged."""
    found = _made(home, mask.as_found)
    sizes = masks.kernel_sizes(found.network)
    seed, words = mask.of.seed, (mask.arrangement, mask.level)
    if mask.arrangement == "shuffled":
        return Found(found.network, masks.shuffled(found.mask, sizes, masks.stream(seed, *words)), found.threshold)
    if mask.arrangement == "random":
        return Found(found.network, masks.random(found.mask, masks.stream(seed, *words)), found.threshold)
    return found


def _made(home: Home, mask: Mask) -> Found:
    path = home.mask(mask)
    if path.exists() and not home.snapshot(mask.of, mask.at).exists():
        return read_mask(home, mask)  # a pool that travelled without its large files
    network, weights, attributes = weights_at(home, mask.of, mask.at)
    digest = hashlib.sha256(weights.kernels.tobytes()).hexdigest()
    if not path.exists():
        pruned = masks.prune(weights.kernels, network, mask.level, mask.allocation, mask.score)
        arrays: dict[str, np.ndarray] = {
            "mask": np.packbits(pruned.mask),
            "remaining": np.array(list(masks.remaining(pruned.mask, network).values()), np.int64),
        }
        if pruned.threshold is not None:
            arrays["threshold"] = np.array(pruned.threshold, np.float64)
        shape = {key: attributes[key] for key in ("network", "image_size", "channels", "classes", "width")}
        files.write_arrays(path, arrays, {**shape, "prunable": network.prunable, "weights": digest})
    return read_mask(home, mask, digest)


def read_mask(home: Home, mask: Mask, weights: str | None = None) -> Found:
    """The mask in its file; with a digest, only if it was taken from the weights that belong to it."""
    path = home.mask(mask)
    arrays, attributes = files.read_arrays(path)
    if weights not in (None, attributes.get("weights")):
        raise Refused(f"{path}: taken from other weights than {home.snapshot(mask.of, mask.at)}; delete it")
    network = network_of(attributes)
    threshold = arrays.get("threshold")
    return Found(
        network,
        np.unpackbits(arrays["mask"], count=network.prunable).astype(bool),
        None if threshold is None else float(threshold),
    )
