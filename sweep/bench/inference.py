"""The inference time of an exported network on this machine: dense, sparse and int8, on one thread and on all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from sweep.export import lite
from sweep.export.operators import SPARSE, operators
from sweep.export.subject import Precision, Subject, Wanted

VARIANTS: dict[str, tuple[Precision, bool]] = {
    "dense float32": ("float32", False),
    "sparse float32": ("float32", True),
    "sparse float16": ("float16", True),
    "dense int8": ("int8", False),
}


@dataclass(frozen=True)
class Line:
    """The measurement of one variant with a number of threads, at batch size 1."""

    variant: str
    threads: int
    milliseconds: float  # median per image
    spread: float  # half of the interquartile range, milliseconds
    bytes: int
    memory: int  # bytes that loading and running the file adds to a process
    sparse_operators: int | None  # number of operators that ran sparse; None: not known for int8


def measured(subject: Subject, samples: np.ndarray, runs: int = 50) -> Iterator[Line]:
    """Yield the measurements of all variants, interleaved, so that a busy moment affects all of them."""
    network, shape = subject.network, samples.shape[1:]
    models = {
        name: lite.converted(subject, Wanted(precision, sparse, False, False, samples))
        for name, (precision, sparse) in VARIANTS.items()
    }
    image = subject.normalised(samples[:1])
    cores = len(os.sched_getaffinity(0))
    ready = {(name, n): lite.interpreter(model, n) for name, model in models.items() for n in sorted({1, cores})}
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in ready}
    for one in ready.values():
        one.set_tensor(one.get_input_details()[0]["index"], image)
        one.invoke()
    for _ in range(runs):
        for key, one in ready.items():
            began = time.perf_counter()
            one.invoke()
            seconds[key].append(time.perf_counter() - began)
    for (name, threads), found in seconds.items():
        low, high = np.percentile(found, [25, 75])
        ran = operators(models[name], (1, *shape), (1, network.classes)) if VARIANTS[name][0] != "int8" else None
        yield Line(
            name, threads, 1e3 * median(found), 5e2 * float(high - low), len(models[name]), memory_of(models[name]),
            None if ran is None else sum(count for one, count in ran.items() if SPARSE in one),
        )  # fmt: skip


def memory_of(model: bytes) -> int:
    """Return by how many bytes a new process grows when it loads a file and runs it once."""
    script = (
        "import sys, psutil\n"
        "from ai_edge_litert.interpreter import Interpreter\n"
        "before = psutil.Process().memory_info().rss\n"
        "one = Interpreter(model_path=sys.argv[1], num_threads=1); one.allocate_tensors(); one.invoke()\n"
        "print(psutil.Process().memory_info().rss - before)\n"
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(model)
        said = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    return int(said.stdout.split()[-1])
