"""The cost of a pruned network: multiply-adds per image, and bytes to store it. numpy in, numpy out."""

from __future__ import annotations

from math import prod

import numpy as np

from models import Network


def multiply_adds(network: Network) -> np.ndarray:
    """Return the multiply-adds of every prunable weight for one image, `[prunable]`."""
    return np.repeat(_output_pixels(network), [variable.size for variable in network.of("kernel")])


def costs_of(mask: np.ndarray | None, network: Network) -> dict[str, float]:
    """Return what results say of the cost: share of the multiply-adds, and bytes; `mask` None: the dense network."""
    return {"macs": 1.0 if mask is None else macs_remaining(mask, network), "bytes": stored_bytes(mask, network)}


def macs_remaining(mask: np.ndarray, network: Network) -> float:
    """Return the share of the dense network's multiply-adds that a mask keeps; those of blur-pool stay."""
    kept = [int(part.sum()) for part in network.split("kernel", mask).values()]
    fixed = sum(layer.macs for layer in network.layers if not layer.parameters)
    return float((np.dot(_output_pixels(network), kept) + fixed) / network.macs)


def _output_pixels(network: Network) -> np.ndarray:
    """Return how often a weight of each kernel is used for one image, `[kernels]`: output pixels, 1 for the classifier.

    A weight of a depthwise kernel is multiplied with one input channel only, so groups are counted.
    """
    return np.array([layer.macs // prod(layer.kernel) for layer in network.layers if layer.parameters], np.int64)


def stored_bytes(mask: np.ndarray | None, network: Network) -> int:
    """Return the bytes of float32 weights: kept and never pruned ones, and with a mask one bit per prunable weight."""
    if mask is None:
        return 4 * network.parameters
    return 4 * (network.parameters - mask.size + int(mask.sum())) + -(-mask.size // 8)
