"""Fashion-MNIST (Xiao et al. 2017): grey images of clothes in the format of MNIST."""

from __future__ import annotations

from sweep.data import Dataset, mnist
from sweep.experiment import Data

CLASSES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def read(data: Data) -> Dataset:
    return mnist.read(data, CLASSES)
