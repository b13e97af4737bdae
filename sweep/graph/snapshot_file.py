"""Weights on disk, and the network that their file says they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models import Network, Weights, build
from sweep import files
from sweep.errors import Refused

SHAPE = ("image_size", "channels", "classes")


def attributes_of(network: Network, width: float) -> dict[str, Any]:
    """Return the attributes of a snapshot or a mask that say which network it belongs to."""
    return {"network": network.name, "width": width, **{key: getattr(network, key) for key in SHAPE}}


def network_of(attributes: dict[str, Any]) -> Network:
    """Return the network that a snapshot or a mask belongs to."""
    name, width, *shape = (attributes[key] for key in ("network", "width", *SHAPE))
    return build(str(name), width=width, **dict(zip(SHAPE, shape, strict=True)))


def adopted_weights(path: Path, network: Network, seed: int) -> Weights:
    """Return the weights in a file laid on a network that may have another number of classes.

    Where it does, the classifier keeps its own initial weights of this seed. Raise Refused where anything else differs.
    """
    named, _ = files.read_arrays(path)
    try:
        return network.flat(network.adopted(named, network.named(network.initial(seed))))
    except ValueError as error:
        raise Refused(f"{path}: {error}; the file belongs to another network") from None


def read_weights(path: Path) -> tuple[Network, Weights, dict[str, Any]]:
    """Return a checkpoint's network, weights and attributes."""
    named, attributes = files.read_arrays(path)
    try:
        network = network_of(attributes)
        return network, network.flat(named), attributes
    except (KeyError, ValueError) as error:
        raise Refused(f"{path}: not a snapshot ({error}); delete it and run again") from None
