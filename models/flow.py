"""A network without nonlinearities, for SynFlow: activations and batch norm are the identity, biases are 0.

With all weights made positive, the outputs for an image of ones are the sum over all paths of the product of their
weights (Tanaka et al. 2020). ReLU6 would clip these sums and batch norm would rescale them. They are float64, because
over the fifty layers of MobileNetV2 they exceed the range of float32.
"""

from __future__ import annotations

from models.layers import Compute, Tensor
from models.outline import Activation


class Flow(Compute):
    """The interpreter of an architecture that skips norms, activations and biases, in the type of the batch."""

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        return x

    def biased(self, name: str, x: Tensor) -> Tensor:
        return x

    def relu(self, x: Tensor) -> Tensor:
        return x

    def dense(self, name: str, x: Tensor, units: int) -> Tensor:
        return x @ self.weights[f"{name}/kernel"]

    def pool(self, x: Tensor) -> Tensor:
        import tensorflow as tf

        return tf.reduce_mean(x, (1, 2))
