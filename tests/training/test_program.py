"""The compiled program: one serves many cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sweep.errors import Refused
from sweep.experiment import Model
from tests.conftest import connected_mask, smaller, tiny
from tests.trainings import epoch, start_at, trained

pytestmark = pytest.mark.tensorflow


def test_the_next_training_is_loaded_and_not_compiled_again(program):
    run = program(smaller())
    ends = []
    for mask_seed in (1, 1, 2, 1):
        run.load(run.network.initial(0), connected_mask(run.network, seed=mask_seed))
        run.run(epoch(run), 0, run.steps)
        ends.append(run.weights().kernels.tobytes())
    assert ends[0] == ends[1] == ends[3] != ends[2]
    assert run._run.experimental_get_tracing_count() == 1


def test_a_program_has_the_initializer_and_the_blur_pool_of_its_model(program):
    network = program(replace(tiny(), model=Model("resnet8", 0.5, initializer="lecun", blur=True))).network
    assert network.blurred
    assert network.named(network.initial(0))["classifier/kernel"].std() == pytest.approx(0.01, rel=0.2)


def test_progressive_resizing_trains_on_small_images_first_and_evaluates_on_whole_ones(program, tmp_path, monkeypatch):
    from models import Network

    seen, apply = [], Network.apply

    def watched(self, weights, images, training, *rest, **more):
        seen.append(("training" if training else "evaluation", images.shape[1]))
        return apply(self, weights, images, training, *rest, **more)

    monkeypatch.setattr(Network, "apply", watched)
    run = program(smaller(first_size=4, full_size_epoch=2))
    trained(run, start_at(run), tmp_path)
    assert list(dict.fromkeys(seen)) == [("training", 4), ("evaluation", 8), ("training", 8)]


def test_a_batch_larger_than_the_training_images_is_refused(program):
    with pytest.raises(Refused, match="at most the 64 training images"):
        program(smaller(batch=100))


def test_shaped_layers_without_xla_are_refused(program):
    with pytest.raises(Refused, match="received shaped, which needs XLA"):
        program(smaller(layers="shaped", xla="off"))


def test_xla_and_plain_compilation_agree(program):
    ends = []
    for xla in ("off", "on"):
        run = program(
            smaller(xla=xla, momentum=0.0, nesterov=False, epochs=1, schedule="constant", mixup=0.2, cutmix=1.0)
        )
        run.load(run.network.initial(0), connected_mask(run.network))
        run.run(epoch(run), 0, 2)
        ends.append(run.weights().kernels)
    np.testing.assert_allclose(ends[0], ends[1], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_step_in_half_precision_is_that_of_full_precision(precision, program):
    """The loss it starts from, and where the step leads: a gradient not scaled back would lead elsewhere."""
    losses, moves = {}, {}
    for kind in ("float32", precision):
        run = program(smaller(precision=kind, momentum=0.0, nesterov=False))
        begin = run.network.initial(0)
        run.load(begin)
        run.clear_sums()
        run.run(epoch(run), 0, 1)
        losses[kind] = run.take_sums()[0]
        moves[kind] = run.weights().kernels - begin.kernels
    assert losses[precision] == pytest.approx(losses["float32"], rel=0.02)
    away = np.linalg.norm(moves[precision] - moves["float32"]) / np.linalg.norm(moves["float32"])
    assert 0 < away < 0.3
