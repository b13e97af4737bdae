"""Weights on disk, with the network that they belong to."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from models import Network, Weights, build
from sweep import files
from sweep.errors import Refused, cut
from sweep.graph.training import Training

WEIGHTS = (".h5", ".npz", ".keras")  # formats that model.weights can be given in
SHAPE = ("image_size", "channels", "classes")


def attributes_of(network: Network, width: float) -> dict[str, Any]:
    """Return the attributes of a snapshot or mask file that say which network it belongs to."""
    blur = {"blur": True} if network.blurred else {}
    return {"network": network.name, "width": width, **blur, **{key: getattr(network, key) for key in SHAPE}}


def network_of(attributes: dict[str, Any]) -> Network:
    """Return the network that a snapshot or mask belongs to, from the attributes of its file."""
    name, width, *shape = (attributes[key] for key in ("network", "width", *SHAPE))
    blur = bool(attributes.get("blur", False))
    return build(str(name), width=width, blur=blur, **dict(zip(SHAPE, shape, strict=True)))


def adopted_weights(path: Path, network: Network, seed: int) -> Weights:
    """Return the weights in a file for a network that may have other classes.

    If it does, the classifier gets its initial weights of this seed. Raise Refused if anything else differs.
    """
    named = _arrays_in(path)
    try:
        return network.flat(network.adopted(named, network.named(network.initial(seed))))
    except ValueError as error:
        raise Refused(f"{path}: {error}; the file belongs to another network") from None


def initial_weights(training: Training, network: Network) -> Weights:
    """Return the initial weights of a training that starts from no other one: from model.weights, or random."""
    start, path = training.start, Path(training.model.weights).expanduser()
    if not start.given:
        return network.initial(start.seed or 0)
    if digest_of(path) != start.given:
        raise Refused(f"model.weights: {path} is not the file the sweep was planned with; put that back, or give the "
                      "experiment another name")  # fmt: skip
    try:
        return adopted_weights(path, network, start.seed or 0)
    except Refused as error:  # a file of the user's is not to be deleted
        said = str(error).removesuffix("; delete it and run again").removesuffix(", or delete it and run again")
        raise Refused(f"model.weights: {said}") from None


def digest_of(path: Path) -> str:
    """Return the digest of a weights file; raise Refused if it cannot be read."""
    try:
        if path.is_file() and path.suffix not in WEIGHTS:
            raise OSError(0, "no format of weights")
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise Refused(f"model.weights: {path}: {error.strerror}; expected a .h5, .npz or .keras file or the name of a "
                      "finished training") from None  # fmt: skip


def _arrays_in(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a weights file by name: a snapshot (.h5), or an export (.npz, .keras)."""
    if path.suffix == ".keras":
        import keras

        try:
            layers = keras.models.load_model(path, compile=False).layers
        except (ValueError, OSError, TypeError) as error:
            raise Refused(f"{path}: {cut(' '.join(str(error).split()))}; expected a Keras model") from None
        return {f"{layer.name}/{one.name}": np.asarray(one) for layer in layers for one in layer.weights}
    if path.suffix == ".npz":
        try:
            with np.load(path) as arrays:
                return {name: arrays[name] for name in arrays if "/" in name}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise Refused(f"{path}: {cut(str(error))}; expected an archive of arrays") from None
    return {name: array for name, array in files.read_arrays(path)[0].items() if "/" in name}


def read_memory(path: Path) -> dict[str, np.ndarray]:
    """Return the vectors in which an optimizer remembers steps before a checkpoint. Raise Refused if it has none."""
    memory = {name: array for name, array in files.read_arrays(path)[0].items() if "/" not in name}
    if not memory:
        raise Refused(f"{path}: no momentum in it, expected that of recipe.rewind_momentum; delete it and run again")
    return memory


def read_weights(path: Path) -> tuple[Network, Weights, dict[str, Any]]:
    """Return network, weights and attributes of a snapshot file."""
    named, attributes = files.read_arrays(path)
    try:
        network = network_of(attributes)
        return network, network.flat(named), attributes
    except (KeyError, ValueError) as error:
        raise Refused(f"{path}: not a snapshot ({error}); delete it and run again") from None
