"""The compiled program: what it evaluates, and that one serves many cells."""

from __future__ import annotations

import numpy as np
import pytest

from models import Weights
from sweep.errors import Refused
from tests.conftest import connected_mask, tiny
from tests.trainings import epoch, start_at, trained

pytestmark = pytest.mark.tensorflow

# ---- evaluation


def test_evaluation_counts_every_image_once_whatever_the_last_batch(program):
    import tensorflow as tf

    from sweep.data import augment

    run = program(tiny())
    weights = run.network.initial(0)
    run.load(weights)
    test = run.dataset.test  # 74 images
    images = augment.normalised(test.images, run.dataset.mean, run.dataset.deviation, tf.float32)
    logits = run.network.apply(Weights(*map(tf.constant, weights)), images, False)[0].numpy()
    top1 = (logits.argmax(1) == test.labels).mean()
    losses = -tf.nn.log_softmax(logits).numpy()[np.arange(len(test)), test.labels]
    found = run.evaluate(test)
    assert found["top1"] == pytest.approx(top1, abs=1e-9) and found["top5"] == 1.0  # 4 classes
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    few = test.take(np.arange(3))
    assert run.evaluate(few)["top1"] == pytest.approx((logits[:3].argmax(1) == few.labels).mean())


def test_a_network_that_answers_nan_is_right_about_nothing(program):
    run = program(tiny())
    weights = run.network.initial(0)
    run.load(weights._replace(others=np.full_like(weights.others, np.nan)))
    assert run.evaluate(run.dataset.test)["top1"] == 0.0


# ---- the program


def test_the_next_cell_is_loaded_and_not_compiled_again(program):
    run = program(tiny())
    ends = []
    for mask_seed in (1, 1, 2, 1):
        run.load(run.network.initial(0), connected_mask(run.network, seed=mask_seed))
        run.run(epoch(run), 0, run.steps)
        ends.append(run.weights().kernels.tobytes())
    assert ends[0] == ends[1] == ends[3] != ends[2]
    assert run._run.experimental_get_tracing_count() == 1


def test_progressive_resizing_trains_on_small_images_first_and_evaluates_on_whole_ones(devices, tmp_path, monkeypatch):
    from models import Network
    from sweep.data import open_dataset
    from sweep.training.program import Program

    seen, apply = [], Network.apply

    def watched(self, weights, images, training, *rest, **more):
        seen.append(("training" if training else "evaluation", images.shape[1]))
        return apply(self, weights, images, training, *rest, **more)

    monkeypatch.setattr(Network, "apply", watched)
    experiment = tiny(first_size=4, full_size_epoch=2)
    run = Program(experiment, open_dataset(experiment.data), devices)
    trained(run, start_at(run), tmp_path)
    assert list(dict.fromkeys(seen)) == [("training", 4), ("evaluation", 8), ("training", 8)]


def test_a_batch_larger_than_the_training_images_is_refused(program):
    with pytest.raises(Refused, match="at most the 64 training images"):
        program(tiny(batch=100))


def test_shaped_layers_without_xla_are_refused(program):
    with pytest.raises(Refused, match="received shaped, which needs XLA"):
        program(tiny(layers="shaped", xla="off"))


def test_xla_and_plain_compilation_agree(program):
    ends = []
    for xla in ("off", "on"):
        run = program(tiny(xla=xla, momentum=0.0, nesterov=False, epochs=1, schedule="constant", mixup=0.2, cutmix=1.0))
        run.load(run.network.initial(0), connected_mask(run.network))
        run.run(epoch(run), 0, 2)
        ends.append(run.weights().kernels)
    np.testing.assert_allclose(ends[0], ends[1], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_step_in_half_precision_is_that_of_full_precision(precision, program):
    """The loss it starts from, and where the step leads: a gradient not scaled back would lead elsewhere."""
    losses, moves = {}, {}
    for kind in ("float32", precision):
        run = program(tiny(precision=kind, momentum=0.0, nesterov=False))
        begin = run.network.initial(0)
        run.load(begin)
        run.clear_sums()
        run.run(epoch(run), 0, 1)
        losses[kind] = run.take_sums()[0]
        moves[kind] = run.weights().kernels - begin.kernels
    assert losses[precision] == pytest.approx(losses["float32"], rel=0.02)
    away = np.linalg.norm(moves[precision] - moves["float32"]) / np.linalg.norm(moves["float32"])
    assert 0 < away < 0.3
