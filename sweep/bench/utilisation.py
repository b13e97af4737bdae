"""How busy a measurement kept the GPU, as the driver's own counters say (NVML, by nvidia-smi)."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Self

from sweep.hardware import gpu_name


class Utilisation:
    """Share of the time in which the GPU had work, in percent; None without a GPU."""

    def __init__(self) -> None:
        self.percent: float | None = None
        self._watch: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if gpu_name():
            first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
            asked = f"nvidia-smi -i {first} --query-gpu=utilization.gpu --format=csv,noheader,nounits -lms 200"
            self._watch = subprocess.Popen(asked.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch:
            self._watch.terminate()
            seen = [float(line) for line in self._watch.communicate()[0].split("\n") if line.strip().isdigit()]
            # the first sample tells of the time before
            self.percent = sum(seen[1:]) / len(seen[1:]) if len(seen) > 1 else None
