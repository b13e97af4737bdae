"""What a mask costs, and what a finished sweep costs when it is run again."""

from __future__ import annotations

import json
import time
from statistics import median

import pytest

from tests.commands import lottery

pytestmark = [pytest.mark.perf, pytest.mark.tensorflow]


def test_the_cost_of_a_mask(figure):
    """Interleaved in one run; the median of several."""
    costs = []
    for _ in range(3):
        words = ("bench", "step", "--mask", "--size", 16, "--rounds", 15, "--steps", 4, "--json")
        masked, unmasked = json.loads(lottery(*words).stdout)
        costs.append(100 * (masked["step_ms"] / unmasked["step_ms"] - 1))
    figure("a mask in the step", median(costs), "%", at_most=2)


def test_a_sweep_that_is_done(undisturbed, tiny_file, figure):
    began = time.monotonic()
    lottery("sweep", tiny_file, "--results", undisturbed)
    figure("a sweep that is done, run again", time.monotonic() - began, "s", at_most=15)
