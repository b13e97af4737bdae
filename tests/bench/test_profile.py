"""Where the time of a training step goes, read from a trace."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.commands import lottery

tf = pytest.importorskip("tensorflow", exc_type=ImportError)  # make quick shuts it out
pytestmark = pytest.mark.tensorflow


def trace(plane: str, lines: dict[str, list[tuple[str, int, int]]], moved: int = 0) -> bytes:
    """A trace with one plane: by line, the name, begin and duration of events in microseconds; bytes of each."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    space = XSpace()
    one = space.planes.add(name=plane)
    one.stat_metadata[7].name = "bytes_accessed"
    for name, events in lines.items():
        line = one.lines.add(name=name)
        for kernel, begin, duration in events:
            key = 1 + sum(map(ord, kernel))
            one.event_metadata[key].name = kernel
            event = line.events.add(metadata_id=key, offset_ps=begin * 10**6, duration_ps=duration * 10**6)
            if moved:
                event.stats.add(metadata_id=7, int64_value=moved)
    return space.SerializeToString()


def test_kernels_are_those_of_the_streams_with_time_bytes_and_share_of_the_memorys_rate():
    from sweep.bench.profile import events_in, kernels_of
    from sweep.bench.roofline import Rates

    streams = {"Stream #7": [("gemm", 0, 30), ("copy", 30, 10), ("gemm", 40, 30)], "XLA Ops": [("gemm", 0, 70)]}
    events = list(events_in(trace("/device:GPU:0", streams, moved=3_000_000)))
    gemm, copy = kernels_of(events, steps=2, rates=Rates(1.0, bytes=1e12))
    assert (gemm.name, gemm.calls, gemm.milliseconds) == ("gemm", 1, pytest.approx(0.03))
    assert gemm.share == pytest.approx(60 / 70) and gemm.gigabytes == pytest.approx(0.003)
    assert gemm.memory_share == pytest.approx(0.1) and copy.memory_share == pytest.approx(0.3)


def test_a_gpu_is_idle_while_neither_of_its_streams_runs_a_kernel():
    from sweep.bench.profile import events_in, idle_of

    streams = {
        "Stream #1": [("gemm", 100, 30), ("gemm", 150, 10), ("MemcpyD2H", 400, 10)],
        "Stream #2": [("add", 120, 20), ("MemcpyH2D", 140, 10), ("add", 170, 5)],
    }
    assert idle_of(list(events_in(trace("/device:GPU:0", streams))), steps=4) == pytest.approx(1e-3 * (10 + 10) / 4)


def test_an_event_has_only_the_time_that_no_event_inside_it_has():
    from sweep.bench.profile import events_in

    inside = {"Stream #1": [("whole", 0, 100), ("part", 10, 30), ("smaller", 20, 5), ("part", 50, 20)]}
    own = [(event.name, event.duration) for event in events_in(trace("/device:GPU:0", inside))]
    assert own == [("whole", 50), ("part", 25), ("smaller", 5), ("part", 20)]


def test_the_command_shows_the_operators_of_a_step_and_leaves_a_trace(tmp_path):
    words = ("dry_run", "model.name=resnet8", "--steps", 1, "--to", tmp_path / "profile")
    found = json.loads(lottery("profile", *words, "--results", tmp_path / "results", "--json").stdout)
    kernels = found["kernels"]
    assert any("Conv2D" in kernel["name"] for kernel in kernels[:10]) and found["idle_ms"] is None
    assert sum(kernel["share"] for kernel in kernels) == pytest.approx(1)
    drawn = json.loads(gzip.decompress((tmp_path / "profile" / "trace.json.gz").read_bytes()))["traceEvents"]
    assert len(drawn) > len(kernels) and [*(tmp_path / "profile").rglob("*.xplane.pb")]
    assert "--steps 0: expected 1 or more" in lottery("profile", "dry_run", "--steps", 0, check=2).stderr
