"""How busy GPUs are, by the driver's own counters (NVML): the share of the time in which one had work, anybody's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pynvml


@contextmanager
def watched(gpus: Sequence[str]) -> Iterator[Callable[[], float | None]]:
    """Gives what says how busy they were since it was last asked, from 0 to 1; None where the driver does not tell.

    The driver keeps some seconds of its samples: of a longer time it is the end that is told.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        yield lambda: None
        return
    seen = dict.fromkeys(gpus, 0)  # when the last sample was taken, by the driver's clock

    def busy() -> float | None:
        shares = [share for gpu in gpus if (share := _since(gpu, seen)) is not None]
        return sum(shares) / len(shares) if shares else None

    try:
        busy()  # what was before
        yield busy
    finally:
        pynvml.nvmlShutdown()


def _since(gpu: str, seen: dict[str, int]) -> float | None:
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        _, samples = pynvml.nvmlDeviceGetSamples(device, pynvml.NVML_GPU_UTILIZATION_SAMPLES, seen[gpu])
    except pynvml.NVMLError:  # nothing new, or a GPU that is not counted: part of one, or known by another name
        return None
    new = [(sample.timeStamp, sample.sampleValue.uiVal) for sample in samples if sample.timeStamp > seen[gpu]]
    seen[gpu] = max([when for when, _ in new], default=seen[gpu])
    return sum(percent for _, percent in new) / len(new) / 100 if new else None
