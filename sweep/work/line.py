"""Instability (Frankle et al. 2020): the error along the straight line between two trainings from one point.

    instability = max over α of error(α θ₁ + (1 − α) θ₂) − (error(θ₁) + error(θ₂)) / 2

on the test split, at 30 points including the ends. All weights are interpolated, and batch norm's moving statistics
too. Below 2 percentage points the two are linearly connected: the point is stable.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from models import Weights
from sweep import files
from sweep.hardware import circumstances
from sweep.work.inputs import Inputs

POINTS = 30


def run_line(inputs: Inputs, before_writing: Callable[[], None]) -> None:
    """Evaluate the points of the line and write its result."""
    program, (one, other) = inputs.program, inputs.weights
    found = []
    for share in np.linspace(0.0, 1.0, POINTS, dtype=np.float32):
        mixed = Weights(*(a + share * (b - a) for a, b in zip(one, other, strict=True)))
        program.evaluation.load(mixed)
        found.append(program.evaluation.metrics(program.dataset.test))
    errors = [1.0 - each["top1"] for each in found]
    worst = int(np.argmax(errors))
    result = {
        "training": inputs.training.name,
        "test": found[worst],  # at the worst point of the line
        "validation": {},
        "instability": instability(errors),
        "errors": errors,
        "epochs": 0,
        "steps_per_epoch": program.steps,
        "seconds": 0.0,
        "devices": program.devices.replicas,
        "fingerprint": program.fingerprint,
        "runs": inputs.runs,
        **circumstances(),
    }
    before_writing()
    files.write_json(inputs.folder / "result.json", result)


def instability(errors: list[float]) -> float:
    """Return the instability of the test errors along a line.

    >>> round(instability([0.1, 0.5, 0.2]), 3)
    0.35
    """
    return max(errors) - (errors[0] + errors[-1]) / 2
