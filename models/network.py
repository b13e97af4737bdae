"""A network: its description, and its weights as three flat vectors.

All kernels are in one vector, all other trainable numbers in a second, all moving statistics in a third. A mask is then
one boolean per entry of the first, an optimizer step is a handful of operations instead of hundreds, and the gradients
of all layers cross between GPUs in one all-reduce. Arrays by name and shape are views of these vectors.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from models.outline import Initializer, Layer, Outline, Role, Variable

ROLES: tuple[Role, Role, Role] = ("kernel", "other", "statistic")


class Weights(NamedTuple):
    """The numbers of a network, one flat vector per role: numpy arrays, or tensors inside a compiled step."""

    kernels: Any
    others: Any
    statistics: Any


@dataclass(frozen=True)
class Network:
    """A network for one image shape and number of classes.

    >>> from models import build
    >>> net = build("mobilenet_v2", image_size=224, channels=3, classes=1000)
    >>> net.parameters, net.prunable
    (3538984, 3469760)
    """

    name: str
    image_size: int
    channels: int
    classes: int
    architecture: Callable[[Any, Any], Any]
    variables: tuple[Variable, ...]
    layers: tuple[Layer, ...]

    def of(self, role: Role) -> tuple[Variable, ...]:
        """Return the variables of one role, in the order of its flat vector."""
        return tuple(v for v in self.variables if v.role == role)

    def size(self, role: Role) -> int:
        return sum(v.size for v in self.of(role))

    @property
    def prunable(self) -> int:
        """Return the number of weights that a mask covers: the kernels of convolutions and of the classifier."""
        return self.size("kernel")

    @property
    def parameters(self) -> int:
        return sum(v.size for v in self.variables)

    @property
    def blurred(self) -> bool:
        """Whether inputs of convolutions are blurred (models.blur)."""
        return any(layer.kind == "blur" for layer in self.layers)

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    def initial(self, seed: int) -> Weights:
        """Return random initial weights. Each variable has its own random stream: adding one changes no other."""
        named = {}
        for v in self.variables:
            named[v.name] = np.full(v.shape, v.start, np.float32)
            if v.deviation:
                stream = np.random.Generator(np.random.Philox([seed, zlib.crc32(v.name.encode())]))
                draw = truncated_normal if v.truncated else np.random.Generator.normal
                named[v.name] = draw(stream, 0.0, v.deviation, v.shape).astype(np.float32)
        return self.flat(named)

    def flat(self, named: Mapping[str, np.ndarray]) -> Weights:
        """Return arrays by name as flat vectors; raise ValueError if a name is missing or a shape does not fit."""
        for v in self.variables:
            if v.name not in named:
                raise ValueError(f"{self.name}: no array named {v.name!r}")
            if tuple(named[v.name].shape) != v.shape:
                raise ValueError(f"{self.name}: {v.name} has shape {tuple(named[v.name].shape)}, expected {v.shape}")
        none = np.zeros(0, np.float32)  # a network without batch norm has no statistics
        return Weights(
            *(
                np.concatenate([none, *(np.ravel(named[v.name]) for v in self.of(role))], dtype=np.float32)
                for role in ROLES
            )
        )

    def adopted(self, named: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `named`, the arrays of another network, with this network's `own` classifier if the classes differ.

        Raise ValueError if an array is missing, is not part of this network, or has another shape.
        """
        classifier = {f"{layer.name}/{part}" for layer in self.layers if layer.kind == "dense"
                      for part in ("kernel", "bias")}  # fmt: skip
        out = {}
        for name in sorted({*own, *named}):
            has, wants = (arrays[name].shape if name in arrays else "none" for arrays in (named, own))
            other_classes = name in classifier and (name not in named or has[:-1] == wants[:-1])
            if has != wants and not other_classes:
                raise ValueError(f"{self.name}: {name} has shape {has}, expected {wants}")
            out[name] = named[name] if has == wants else own[name]
        return out

    def named(self, weights: Weights) -> dict[str, np.ndarray]:
        """Return flat vectors as arrays by name (views, no copies)."""
        out: dict[str, np.ndarray] = {}
        for role, vector in zip(ROLES, weights, strict=True):
            out |= self.split(role, vector)
        return out

    def split(self, role: Role, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return the flat vector of one role (weights or a mask) as arrays by name."""
        if vector.shape != (self.size(role),):
            raise ValueError(f"{self.name}: {role} vector of {vector.shape}, expected ({self.size(role)},)")
        out, offset = {}, 0
        for v in self.of(role):
            out[v.name] = vector[offset : offset + v.size].reshape(v.shape)
            offset += v.size
        return out

    def apply(
        self,
        weights: Weights,
        images: Any,
        training: bool,
        norm_momentum: float = 0.9,
        shaped: bool = False,
        groups: int = 1,
    ) -> tuple[Any, Any]:
        """Return the logits (float32) and the updated vector of moving statistics, computed in the type of `images`.

        `shaped`: the layers for GPUs (models.shaped). `groups`: equal parts of the batch, each normalised separately.
        """
        import tensorflow as tf

        from models.layers import Compute
        from models.shaped import Shaped

        net = (Shaped if shaped else Compute)(self._tensors(weights), training, groups)
        logits = self.architecture(net, net.images(images))
        if not training or not self.of("statistic"):
            return logits, weights.statistics
        found = tf.concat([net.found[v.name] for v in self.of("statistic")], 0)
        return logits, norm_momentum * weights.statistics + (1 - norm_momentum) * found

    def flow(self, kernels: Any) -> Any:
        """Return the sum of the outputs for an image of ones without nonlinearities (models.flow), for SynFlow."""
        import tensorflow as tf

        from models.flow import Flow

        net = Flow(self._tensors(Weights(kernels, None, None)), training=False)
        ones = tf.ones((1, self.image_size, self.image_size, self.channels), kernels.dtype)
        return tf.reduce_sum(self.architecture(net, net.images(ones)))

    def _tensors(self, weights: Weights) -> dict[str, Any]:
        """Return flat tensors as tensors by name."""
        import tensorflow as tf

        out: dict[str, Any] = {}
        for role, vector in zip(ROLES, weights, strict=True):
            variables = self.of(role) if vector is not None else ()
            parts = tf.split(vector, [v.size for v in variables]) if variables else []
            for v, part in zip(variables, parts, strict=True):
                out[v.name] = tf.reshape(part, v.shape)
        return out


def truncated_normal(stream: np.random.Generator, mean: float, deviation: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of a normal distribution cut off two deviations from its mean, then widened to `deviation`."""
    drawn = stream.normal(size=shape)
    while (far := np.abs(drawn) > 2).any():
        drawn[far] = stream.normal(size=far.sum())
    return mean + deviation / 0.8796256610342398 * drawn  # what cutting off leaves of a deviation of 1


def outline(
    name: str, architecture: Callable[[Any, Any], Any], image_size: int, channels: int, classes: int,
    initializer: Initializer = "he",
) -> Network:  # fmt: skip
    """Return the network that `architecture` describes for square images of this size."""
    notes = Outline(initializer)
    architecture(notes, (image_size, image_size, channels))
    return Network(name, image_size, channels, classes, architecture, tuple(notes.variables), tuple(notes.layers))
