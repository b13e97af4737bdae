"""The prediction whether a GPU's cores read images from disk as fast as the GPU trains on them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sweep.data import place_of
from sweep.data.folder import test_images
from sweep.data.prepared import Prepared, open_prepared
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home
from sweep.graph.speeds import alike_in, measured
from sweep.work.find import SHIPPED

# images of 224 px that one core reads in a second, measured with 500 of ImageNet's (docs/data.md)
READ = {"class folders": 165.0, "jpeg shards": 989.0, "raw shards": 11_700.0}
SMALL = 2 << 30  # bytes of images that every GPU has room for
ENOUGH = 0.02  # share of the time that a GPU may wait


@dataclass(frozen=True)
class Reading:
    """The speed of a training, from a measurement, and of the cores that would read its images."""

    form: str  # form of the images on disk: a key of READ
    cores: float  # cores for one GPU
    rate: float  # images per second that the GPU trains on
    hardware: str
    pixels: int = 0  # bytes of all images on a device (data.resident); 0 if they cannot be kept there

    @property
    def wait(self) -> float:
        """Return the share of its time that the GPU waits for images, from 0 to 1."""
        return max(0.0, 1 - self.cores * READ[self.form] / self.rate)

    def __str__(self) -> str:
        return (
            f"{self.cores:g} cores read about {self.cores * READ[self.form]:,.0f} images/s from {self.form}, "
            f"{self.hardware} takes {self.rate:,.0f}: it would wait {self.wait:.0%} of the time"
            + (f" unless the images ({self.pixels / 1e9:.3g} GB) fit into its memory" if self.pixels else "")
        )

    @property
    def remedy(self) -> str:
        """Return the number of cores per GPU that each form of images needs, in words."""
        needed = ", ".join(f"{form} {self.rate / speed:.2g}" for form, speed in READ.items())
        return f"cores needed for a GPU: {needed} (cluster.cpus_per_gpu, or lottery data prepare --format raw)"


def reading_of(home: Home) -> Reading | None:
    """Return how fast a GPU's cores would read its images.

    None if nothing is read, because every GPU has room for the images, or if no speed is on record.
    """
    experiment, data, prepared = home.experiment, home.experiment.data, _prepared(home.experiment)
    alike = alike_in([*measured(SHIPPED), *measured(home.pool)], experiment)
    if data.resident == "on" or not alike or not (prepared or data.name == "folder"):
        return None
    form = f"{prepared.format} shards" if prepared else "class folders"
    pixels = sum(prepared.images.values()) * prepared.size**2 * 3 if prepared and data.resident == "auto" else 0
    if 0 < pixels < SMALL:
        return None
    cores = experiment.cluster.cpus_per_gpu
    return Reading(form, cores, alike[-1].images_per_second, alike[-1].hardware, pixels)


def images_of(experiment: Experiment, split: str = "train") -> int:
    """Return the number of images of a split, 0 if it is not known before the data are read.

    It is known of prepared shards and, for the split "test", of data sets of fixed size and of class folders.
    """
    prepared, held_out = _prepared(experiment), experiment.data.validation if split == "train" else 0
    if prepared:
        return max(0, prepared.images.get(split, 0) - held_out)
    if split == "test" and experiment.data.name == "folder":
        with suppress(Refused):  # reported by the check of the data
            return test_images(experiment.data)
    return SOURCES[experiment.data.name].tested if split == "test" else 0


def _prepared(experiment: Experiment) -> Prepared | None:
    try:
        return open_prepared(place_of(experiment.data)) if experiment.data.name == "shards" else None
    except Refused:  # reported by the check of the data
        return None
