"""Masks on disk: one file each, named by the mask's value, made by the first process that needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from models import Network, Weights
from sweep import files
from sweep.errors import Refused
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.runs import Runs, run_of
from sweep.graph.snapshot_file import attributes_of, initial_weights, network_of, read_weights
from sweep.graph.training import Mask, Training
from sweep.pruning import masks
from sweep.pruning.allocations import count_pruned
from sweep.pruning.cost import multiply_adds
from sweep.pruning.scores import SCORES, Gradients, Seen


@dataclass(frozen=True)
class Found:
    """A mask with its network and threshold."""

    network: Network
    mask: np.ndarray
    threshold: float | None  # on |θ|; None if no single threshold made the mask
    new: np.ndarray | None = None  # weights of a classifier with other classes, which are not pruned

    @property
    def density(self) -> float:
        """Return the share of the prunable weights that is kept."""
        return float(self.mask.mean())

    def on(self, network: Network) -> Found:
        """Return the mask for a network that may have other classes: then the classifier is not pruned.

        Raise Refused if anything else differs.
        """
        own = network.split("kernel", np.ones(network.prunable, bool))

        def laid(mask: np.ndarray) -> np.ndarray:
            named = network.adopted(self.network.split("kernel", mask), own)
            return np.concatenate([named[name].ravel() for name in own])

        try:
            return Found(network, laid(self.mask), self.threshold, laid(np.zeros_like(self.mask)))
        except ValueError as error:
            raise Refused(f"{error}; the mask belongs to another network") from None


class Scorer(Protocol):
    """What making a mask needs besides files: a program, if there is no snapshot yet, and gradients from a device."""

    def program(self, training: Training) -> Any: ...

    def gradients(self, training: Training, weights: Weights) -> Gradients: ...


def make_mask(home: Home, mask: Mask, scorer: Scorer | None = None, network: Network | None = None) -> Found:
    """Return a mask, read from its file or made the first time it is needed, and arranged for a control.

    With `network`, return it for that network, which may have other classes.
    """
    found = _made(home, mask.as_made, scorer)
    return _arranged(found.on(network) if network else found, mask)


def _arranged(found: Found, mask: Mask) -> Found:
    """Return the mask with positions drawn anew if it belongs to a control `shuffled` or `random`."""
    stream = masks.stream(mask.of.seed, mask.arrangement, mask.level)
    if mask.arrangement == "shuffled":
        return replace(found, mask=masks.shuffled(found.mask, masks.kernel_sizes(found.network), stream))
    if mask.arrangement == "random":
        drawn, old = found.mask.copy(), np.ones_like(found.mask) if found.new is None else ~found.new
        costs = multiply_adds(found.network)[old] if mask.level.budget == "macs" else None
        drawn[old] = masks.random(found.mask[old], stream, costs)
        return replace(found, mask=drawn)
    return found


def can_make(home: Home, mask: Mask) -> bool:
    """Whether the mask can be made from files alone, without gradients."""
    if home.mask(mask.as_made).exists():
        return True
    return not SCORES[mask.method.score].gradients and home.snapshot(mask.of, mask.method.at).exists()


def _made(home: Home, mask: Mask, scorer: Scorer | None) -> Found:
    path, source = home.mask(mask), home.snapshot(mask.of, mask.method.at)
    if path.exists() and (mask.at_start or not source.exists()):
        # found at initialization, or the pool was copied without its large files
        return read_own_mask(home, mask)
    if mask.at_start and scorer:
        network = scorer.program(mask.of).network
        weights = initial_weights(mask.of, network)
    else:
        network, weights, _ = read_weights(source)
    digest = run_of(weights)
    if not path.exists():
        pruned = _pruned(home, mask, network, weights, scorer)
        arrays: dict[str, np.ndarray] = {
            "mask": np.packbits(pruned.mask),
            "remaining": np.array(list(masks.remaining(pruned.mask, network).values()), np.int64),
        }
        if pruned.threshold is not None:
            arrays["threshold"] = np.array(pruned.threshold, np.float64)
        attributes = attributes_of(network, mask.of.model.width) | {"prunable": network.prunable, "weights": digest}
        # scores from gradients differ slightly between GPUs: ticket and controls use the mask that was written first
        files.write_arrays(path, arrays, attributes, first=True)
    return read_mask(home, mask, digest)


def _pruned(home: Home, mask: Mask, network: Network, weights: Weights, scorer: Scorer | None) -> masks.Pruned:
    method, seed = mask.method, mask.of.seed
    if SCORES[method.score].gradients and scorer is None:
        raise Refused(f"{method}: needs gradients, so it is made by the first training that wants it (lottery sweep)")
    gradients = scorer.gradients(mask.of, weights) if SCORES[method.score].gradients and scorer else None
    seen = Seen(weights.kernels, masks.kernel_sizes(network), gradients, masks.stream(seed, "score"))
    within = make_mask(home, mask.within).mask if mask.within else None
    shapes, inverted = masks.kernel_shapes(network), mask.arrangement == "inverted"
    costs = multiply_adds(network) if mask.level.budget == "macs" else None
    return masks.prune(seen, shapes, mask.level, method.score, method.allocation, within, inverted, costs)


def read_own_mask(home: Home, mask: Mask) -> Found:
    """Return the mask in its file, arranged; raise Refused if it was found in another run than the one in the pool."""
    weights = Runs(home.pool).there(mask.of.name) if mask.method.at == END else None
    return _arranged(read_mask(home, mask.as_made, weights), mask)


def read_mask(home: Home, mask: Mask, weights: str | None = None) -> Found:
    """Return the mask in its file; raise Refused if it is damaged, or not found in weights with this digest."""
    path = home.mask(mask)
    arrays, attributes = files.read_arrays(path)
    if weights not in (None, attributes.get("weights")):
        raise Refused(f"{path}: taken from other weights than {home.snapshot(mask.of, mask.method.at)}; delete it")
    try:
        network, packed = network_of(attributes), arrays["mask"]
    except (KeyError, ValueError) as error:
        raise Refused(f"{path}: not a mask ({error}); delete it and run again") from None
    threshold = arrays.get("threshold")
    found = np.unpackbits(packed, count=network.prunable).astype(bool)
    kept, right = list(masks.remaining(found, network).values()), right_count(mask, masks.kernel_sizes(network))
    if right not in (None, sum(kept)):
        raise Refused(f"{path}: {sum(kept)} of {network.prunable} weights kept, expected {right} at {mask.level}; "
                      "delete it and run again")  # fmt: skip
    if kept != list(arrays.get("remaining", kept)):
        raise Refused(f"{path}: other counts of its kernels than its own record of them; delete it and run again")
    return Found(network, found, None if threshold is None else float(threshold))


def right_count(mask: Mask, sizes: Sequence[int]) -> int | None:
    """Return how many weights a mask must keep of kernels of these sizes, or None if its level does not fix that."""
    allocation, by_weights = mask.method.allocation, mask.level.kind == "quantile" and mask.level.budget == "weights"
    if not by_weights or allocation not in ("global", "erk", "uniform"):
        return None
    if allocation == "uniform":
        return sum(size - count_pruned(mask.level.value, size) for size in sizes)
    return sum(sizes) - count_pruned(mask.level.value, sum(sizes))
