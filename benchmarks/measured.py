"""What is measured of a reader, for benchmarks/readers.py and fed.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WARM = 3  # batches taken before each measurement: what was made ready while others were measured
REST = 0.5  # seconds in which a reader fills its buffers before the next one is measured


@dataclass(frozen=True)
class Measured:
    """One reader in one turn; None: not known without a GPU, or not asked."""

    images_per_second: float
    cpu_seconds: float  # for 1,000 images
    cores: float  # in use
    resident_mib: float | None = None  # memory of the process and its children
    gpu_busy: float | None = None  # share of time
    gpu_mib: float | None = None
    disk_mb: float | None = None
    difference: float | None = None  # mean difference of the pixels to Pillow's, of 255
    data_wait: float | None = None  # share of the time that the training step waited


def family() -> list[Any]:
    import psutil

    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def cpu_seconds() -> float:
    """Return the processor time of this process and its children so far."""
    return sum(one.cpu_times().user + one.cpu_times().system for one in family())
