"""The registry of data sets, one line each. Each is read by the function `read` of sweep/data/NAME.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A data set that an experiment can name."""

    title: str  # its name in the report
    about: str  # for docs/experiment.md and the JSON Schema
    wants: str = ""  # what data.path must be; empty: no path is needed
    tested: int = 0  # number of test images; 0: the data say
    listed: bool = False  # own images, so that a digest of their listing is part of the names of trainings


SOURCES = {
    "digits": Source("handwritten digits", "comes with the installation", tested=359),
    "cifar10": Source("CIFAR-10", "in all its forms", "its archive or folder, from "
                      "https://www.cs.toronto.edu/~kriz/cifar.html", tested=10_000),
    "cifar100": Source("CIFAR-100", "in all its forms", "its archive or folder, from "
                       "https://www.cs.toronto.edu/~kriz/cifar.html", tested=10_000),
    "mnist": Source("MNIST", "four IDX files", "a folder with the four IDX files of MNIST", tested=10_000),
    "fashion_mnist": Source("Fashion-MNIST", "four IDX files, as MNIST", "a folder with its four IDX files, such as "
                            "/usr/share/datasets/fashion-mnist of Debian's dataset-fashion-mnist", tested=10_000),
    "folder": Source("own images", "train/CLASS/*.jpg and val/CLASS/*.jpg", "a folder with train/CLASS/*.jpg and "
                     "val/CLASS/*.jpg", listed=True),
    "shards": Source("own images", "what `lottery data prepare` made", "a folder that lottery data prepare made",
                     listed=True),
    "synthetic": Source("synthetic images", "random pictures, for tests and benchmarks"),
}  # fmt: skip
