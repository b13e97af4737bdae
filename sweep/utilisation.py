"""What GPUs do, by the driver's own counters (NVML), whoever's work it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import mean

import pynvml

# name in metrics.jsonl: which samples of the driver, and what one of their units is
SAMPLED = {
    "gpu_busy_share": (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1e-2),  # of the time in which the GPU had work
    "gpu_clock_mhz": (pynvml.NVML_PROCESSOR_CLK_SAMPLES, 1.0),  # of its multiprocessors
    "gpu_power_watts": (pynvml.NVML_TOTAL_POWER_SAMPLES, 1e-3),
}


@contextmanager
def watched(gpus: Sequence[str]) -> Iterator[Callable[[], dict[str, float]]]:
    """Yield a function that returns means over the GPUs and the time since it was last called; without what is unknown.

    The driver keeps some seconds of its samples: of a longer time the end is told.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        yield dict
        return
    seen = {(gpu, name): 0 for gpu in gpus for name in SAMPLED}  # when the last sample was taken, by the driver's clock

    def load() -> dict[str, float]:
        found = {name: [value for gpu in gpus if (value := _since(gpu, name, seen)) is not None] for name in SAMPLED}
        found["gpu_memory_gib"] = [used for gpu in gpus if (used := _memory(gpu)) is not None]
        return {name: mean(values) for name, values in found.items() if values}

    try:
        load()  # what was before
        yield load
    finally:
        pynvml.nvmlShutdown()


def _since(gpu: str, name: str, seen: dict[tuple[str, str], int]) -> float | None:
    """Return the mean of the samples that are new since `seen`; None where the driver has none."""
    (kind, unit), last = SAMPLED[name], seen[gpu, name]
    try:
        found = pynvml.nvmlDeviceGetSamples(pynvml.nvmlDeviceGetHandleByUUID(gpu), kind, last)[1]
    except pynvml.NVMLError:  # nothing new, or a GPU that is not counted: part of one, or known by another name
        return None
    new = [(sample.timeStamp, sample.sampleValue.uiVal) for sample in found if sample.timeStamp > last]
    seen[gpu, name] = max([when for when, _ in new], default=last)
    return unit * mean(value for _, value in new) if new else None


def _memory(gpu: str) -> float | None:
    """Return the GPU's memory in use, in GiB; None where the driver does not tell."""
    try:
        return float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu)).used) / 2**30
    except pynvml.NVMLError:
        return None
