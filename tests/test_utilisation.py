"""How busy a GPU is, as its driver tells; where no driver is, nothing is told and nothing fails."""

from __future__ import annotations

import time

import pytest

from sweep.hardware import gpu_ids
from sweep.utilisation import watched


def test_without_a_gpu_nothing_is_told():
    for gpus in ([], ["GPU-that-is-not-here"]):
        with watched(gpus) as load:
            assert load() == {}


@pytest.mark.tensorflow
@pytest.mark.skipif(not gpu_ids(), reason="there is no GPU")
def test_a_gpu_that_multiplies_is_busy():
    import tensorflow as tf

    with watched(gpu_ids()[:1]) as load:
        ends, x = time.monotonic() + 3, tf.random.normal([4096, 4096])
        while time.monotonic() < ends:
            x = tf.linalg.l2_normalize(x @ x)
        float(x[0, 0])
        found = load()
    assert 0.5 < found["gpu_busy_share"] <= 1 and found["gpu_memory_gib"] > 0.05
    assert found["gpu_clock_mhz"] > 100 and found["gpu_power_watts"] > 10
