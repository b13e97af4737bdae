"""The largest kernels of a training step and the time without one, read from a trace of TensorFlow's profiler."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import tensorflow as tf

from sweep.bench.roofline import Rates
from sweep.bench.step import timed
from sweep.data import open_dataset
from sweep.devices import Devices
from sweep.experiment import Experiment
from sweep.training.program import Program

WARM = 2  # measurements before the trace: compiling, and the first reading of files
TRACE = "trace.json.gz"
COPIES = ("MemcpyH2D", "MemcpyD2H")


@dataclass(frozen=True)
class Kernel:
    """The work of one kernel of a GPU, or of one operator on a CPU, in a training step."""

    name: str
    calls: float  # per step
    milliseconds: float  # per step
    share: float  # of the time of all kernels
    gigabytes: float | None  # read and written per step; None where the trace does not say
    memory_share: float | None  # gigabytes per second ÷ the memory's rate


@dataclass(frozen=True)
class Profile:
    """What the devices do in a training step."""

    kernels: list[Kernel]  # the largest first
    idle_ms: float | None  # per step, in which no kernel ran on the first GPU; None on a CPU


@dataclass(frozen=True)
class _Event:
    name: str
    device: str
    line: str  # stream or thread
    begin: float  # microseconds
    duration: float  # microseconds, without the events inside it
    bytes: int


def profile(experiment: Experiment, devices: Devices, steps: int, rates: Rates, folder: Path) -> Profile:
    """Train `steps` steps of an experiment's network under the profiler.

    The folder gets TensorFlow's trace, which TensorBoard reads, and TRACE, which Perfetto and Chrome read.
    """
    program = Program(experiment, open_dataset(experiment.data).for_training_only(), devices)
    program.load(program.network.initial(0))
    epoch = program.epoch(0)
    steps = min(steps, len(epoch.order))
    for _ in range(WARM):
        timed(program, epoch, steps)
    folder.mkdir(parents=True, exist_ok=True)
    tf.profiler.experimental.start(str(folder))
    timed(program, epoch, steps)
    tf.profiler.experimental.stop()
    newest = max(folder.glob("plugins/profile/*/*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    events = list(events_in(newest.read_bytes()))
    _write_trace(events, folder / TRACE)
    return Profile(kernels_of(events, steps, rates), idle_of(events, steps) if devices.kind == "GPU" else None)


def idle_of(events: list[_Event], steps: int) -> float:
    """Return the milliseconds per step in which the first GPU ran no kernel, between its first and last one.

    Copies from and to the host are no kernels.
    """
    first = min((event.device for event in events), default="")
    ran = [one for one in events if one.device == first and one.name not in COPIES]
    spans = sorted((one.begin, one.begin + one.duration) for one in ran)
    ends = accumulate((end for _, end in spans), max)
    return 1e-3 / steps * sum(max(0.0, begin - end) for (begin, _), end in zip(spans[1:], ends, strict=False))


def kernels_of(events: list[_Event], steps: int, rates: Rates) -> list[Kernel]:
    """Return the kernels that the events are calls of, by their time per step."""
    calls: dict[str, list[_Event]] = defaultdict(list)
    for event in events:
        calls[event.name].append(event)
    total = sum(event.duration for event in events) or 1.0
    out = []
    for name, each in calls.items():
        spent, moved = sum(event.duration for event in each), sum(event.bytes for event in each)
        rate = moved / (1e-6 * spent) / rates.bytes if moved and spent else None
        gigabytes = moved / steps / 1e9 if moved else None
        out.append(Kernel(name, len(each) / steps, 1e-3 * spent / steps, spent / total, gigabytes, rate))
    return sorted(out, key=lambda kernel: -kernel.milliseconds)


def events_in(content: bytes) -> Iterator[_Event]:
    """Yield the kernels of all GPUs in a trace; if there is no GPU, the operators on the CPU."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    space = XSpace.FromString(content)
    gpus = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    for plane in gpus or [plane for plane in space.planes if plane.name == "/host:CPU"]:
        stats = {key: one.name for key, one in plane.stat_metadata.items()}
        for line in plane.lines:
            # other lines of a GPU repeat its kernels, by operator or by step
            if not gpus or line.name.startswith("Stream"):
                yield from _on_line(plane, line, stats, operators=not gpus)


def _on_line(plane: Any, line: Any, stats: dict[int, str], operators: bool) -> Iterator[_Event]:
    """Yield the events of one stream or thread, each with its own time: less that of events inside it."""
    events = sorted(line.events, key=lambda one: (one.offset_ps, -one.duration_ps))
    own = [event.duration_ps for event in events]
    around: list[int] = []  # the events that contain the present one
    for number, event in enumerate(events):
        while around and events[around[-1]].offset_ps + events[around[-1]].duration_ps <= event.offset_ps:
            around.pop()
        if around:
            own[around[-1]] -= event.duration_ps
        around.append(number)
    for event, spent in zip(events, own, strict=True):
        described = plane.event_metadata[event.metadata_id]
        if operators and not described.display_name:  # only operators of TensorFlow have one, their type
            continue
        found = [*event.stats, *described.stats]
        moved = sum(
            stat.int64_value or stat.uint64_value for stat in found if stats[stat.metadata_id] == "bytes_accessed"
        )
        name = described.display_name if operators else described.name
        yield _Event(
            name,
            plane.name,
            line.name or f"thread {line.id}",
            1e-3 * line.timestamp_ns + 1e-6 * event.offset_ps,
            1e-6 * spent,
            moved,
        )


def _write_trace(events: list[_Event], path: Path) -> None:
    """Write the events in the format of chrome://tracing."""
    lines = {name: number for number, name in enumerate(dict.fromkeys(event.line for event in events))}
    named = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": n, "args": {"name": name}} for name, n in lines.items()
    ]
    drawn = [
        {"ph": "X", "name": one.name, "pid": 0, "tid": lines[one.line], "ts": one.begin, "dur": one.duration}
        for one in events
    ]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": named + drawn}).encode(), mtime=0))
