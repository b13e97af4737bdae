"""float16: the loss scale adapts, and is part of what a checkpoint holds."""

from __future__ import annotations

import numpy as np
import pytest

from sweep import files
from sweep.errors import Diverged
from tests.conftest import tiny
from tests.trainings import assert_equal_bits, epoch, start_at, trained

pytestmark = pytest.mark.tensorflow


def test_the_scale_is_halved_on_overflow_and_doubled_later_up_to_its_start():
    from sweep.training.loss_scale import LARGEST, RISE_AFTER, adapted

    pairs = [([1024.0, 5.0], False), ([512.0, RISE_AFTER - 1], True), ([512.0, 7.0], True), ([LARGEST, 9999.0], True)]
    after = [adapted(np.array(pair, np.float32), finite).numpy().tolist() for pair, finite in pairs]
    assert after == [[512.0, 0.0], [1024.0, 0.0], [512.0, 8.0], [LARGEST, 10000.0]]


@pytest.fixture
def overflowing(monkeypatch):
    """A scale at which the gradient of the first steps overflows."""
    from sweep.training import loss_scale

    monkeypatch.setattr(loss_scale, "LARGEST", 2.0**20)


def test_a_step_that_overflows_changes_nothing_but_the_scale(program, overflowing):
    run = program(tiny(precision="float16"))
    run.load(run.network.initial(0))
    before = run.state()
    run.run(epoch(run), 0, 1)
    after = run.state()
    assert after["scale"].tolist() == [2.0**19, 0.0]
    for name in before.keys() - {"scale", "sums"}:
        assert before[name].tobytes() == after[name].tobytes(), name


def test_a_training_that_overflows_goes_on_and_ends_like_one_that_does_not(program, tmp_path, monkeypatch):
    from sweep.training import loss_scale

    run = program(tiny(precision="float16", epochs=20))
    plain, _ = trained(run, start_at(run), tmp_path / "plain")
    assert run.loss_scale == 1024
    monkeypatch.setattr(loss_scale, "LARGEST", 2.0**20)
    outcome, _ = trained(run, start_at(run), tmp_path / "overflowing")
    assert 1 < run.loss_scale < 2**20
    losses = [files.read_metrics(tmp_path / name)[-1]["train_loss"] for name in ("plain", "overflowing")]
    assert max(losses) < 1.0 and abs(losses[0] - losses[1]) < 0.2, "a network that learned nothing has 1.39"
    assert outcome.test["top1"] == pytest.approx(plain.test["top1"], abs=0.25), "of 37 test images three are 0.08"


def test_stopped_while_the_scale_adapts_it_goes_on_to_the_same_bits(program, tmp_path, overflowing):
    run = program(tiny(precision="float16"))
    run.load(run.network.initial(0))
    steps = epoch(run)
    run.run(steps, 0, run.steps)
    whole = run.state()
    run.load(run.network.initial(0))
    run.run(steps, 0, 2)
    held = run.state()
    run.load(run.network.initial(1))  # another training in between
    run.restore(held)
    run.run(steps, 2, run.steps)
    assert_equal_bits(run.state().values(), whole.values())
    assert whole["scale"][0] < 2**20


def test_a_gradient_that_overflows_at_every_scale_ends_the_training(program, tmp_path, monkeypatch):
    from sweep.training import loop

    run = program(tiny(precision="float16"))
    monkeypatch.setattr(loop, "SMALLEST", 2.0**30)  # every scale is too small
    with pytest.raises(Diverged, match="overflows at every loss scale"):
        trained(run, start_at(run), tmp_path)
