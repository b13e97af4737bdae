"""The load of GPUs by the driver's counters (NVML), whichever process causes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import mean

import pynvml

# key in metrics.jsonl: kind of the driver's samples, and the factor to the unit in the key
SAMPLED = {
    "gpu_busy_share": (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1e-2),  # share of time with work
    "gpu_clock_mhz": (pynvml.NVML_PROCESSOR_CLK_SAMPLES, 1.0),  # clock of the multiprocessors
    "gpu_power_watts": (pynvml.NVML_TOTAL_POWER_SAMPLES, 1e-3),
}


@contextmanager
def watched(gpus: Sequence[str]) -> Iterator[Callable[[], dict[str, float]]]:
    """Yield a function that returns means over the GPUs since its last call, by name; unknown values are left out.

    The driver keeps samples of some seconds: after a longer time only its end is counted.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        yield dict
        return
    seen = {(gpu, name): 0 for gpu in gpus for name in SAMPLED}  # time of the last sample, by the driver's clock

    def load() -> dict[str, float]:
        found = {name: [value for gpu in gpus if (value := _since(gpu, name, seen)) is not None] for name in SAMPLED}
        found["gpu_memory_gib"] = [used for gpu in gpus if (used := _memory(gpu)) is not None]
        return {name: mean(values) for name, values in found.items() if values}

    try:
        load()  # discards earlier samples
        yield load
    finally:
        pynvml.nvmlShutdown()


def _since(gpu: str, name: str, seen: dict[tuple[str, str], int]) -> float | None:
    """Return the mean of the samples that are newer than `seen`, or None if there are none."""
    (kind, unit), last = SAMPLED[name], seen[gpu, name]
    try:
        found = pynvml.nvmlDeviceGetSamples(pynvml.nvmlDeviceGetHandleByUUID(gpu), kind, last)[1]
    except pynvml.NVMLError:  # no new samples, or no counter, as for a part of a GPU
        return None
    new = [(sample.timeStamp, sample.sampleValue.uiVal) for sample in found if sample.timeStamp > last]
    seen[gpu, name] = max([when for when, _ in new], default=last)
    return unit * mean(value for _, value in new) if new else None


def _memory(gpu: str) -> float | None:
    """Return the memory in use on the GPU in GiB, or None if the driver does not report it."""
    try:
        return float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu)).used) / 2**30
    except pynvml.NVMLError:
        return None
