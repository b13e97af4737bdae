"""The method while it trains: what DESIGN calls its invariants, on one device."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from models import Weights
from sweep import files as store
from sweep.errors import Diverged, Interrupted, Refused
from sweep.experiment import Data
from sweep.training.start import Start
from tests.conftest import connected_mask, smaller, tiny
from tests.trainings import (
    assert_equal_bits,
    assert_nothing_is_traced_later,
    epoch,
    start_at,
    stop_at_once,
    trained,
    trained_in_pieces,
)

pytestmark = pytest.mark.tensorflow

# ---- the mask


def test_step_0_of_a_ticket_is_mask_times_snapshot_bit_for_bit(program):
    run = program(smaller())
    mask = connected_mask(run.network)
    snapshot = run.network.initial(3)
    run.load(snapshot, mask)
    expected = snapshot.kernels.copy()
    expected[~mask] = 0.0
    assert_equal_bits(run.weights(), Weights(expected, snapshot.others, snapshot.statistics))


OPTIMIZERS = {
    "sgd": {"momentum": 0.0, "nesterov": False},
    "momentum": {"nesterov": False},
    "nesterov with decay": {"weight_decay": 1e-2},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
    "clipping": {"clip_norm": 0.1},
    "average": {"ema": 0.9},
    "float16": {"precision": "float16"},
    "everything": {"ema": 0.9, "clip_norm": 1.0, "mixup": 0.2, "cutmix": 1.0, "label_smoothing": 0.1},
}


@pytest.mark.parametrize("recipe", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_pruned_weights_are_exactly_zero_and_the_others_move(recipe, program):
    run = program(smaller(**recipe))
    mask = connected_mask(run.network)
    begin = run.network.initial(0)
    run.load(begin, mask)
    for last in range(run.steps):  # after every single step
        run.run(epoch(run), last, last + 1)
        for weights in (run.weights(), run.evaluation.weights()):
            assert not weights.kernels[~mask].view(np.uint32).any(), "some pruned weight is not +0.0"
    moved = run.weights().kernels[mask] != begin.kernels[mask]
    assert moved.mean() > 0.99


def test_the_mask_is_held_by_the_step_and_not_by_chance(program):
    """The same test on a program without masks must fail."""
    run = program(smaller(), use_mask=False)
    mask = connected_mask(run.network)
    begin = run.network.initial(0)
    run.load(begin._replace(kernels=np.where(mask, begin.kernels, np.float32(0))))
    run.run(epoch(run), 0, 1)
    assert run.weights().kernels[~mask].any()


def test_batch_norm_and_biases_are_trained_and_never_masked(program):
    run = program(smaller())
    run.load(run.network.initial(0), connected_mask(run.network, 0.3))
    before = run.weights()
    run.run(epoch(run), 0, run.steps)
    after = run.weights()
    assert (after.others != before.others).mean() > 0.95
    assert (after.statistics != before.statistics).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("decayed", ["kernels", "all"])
def test_weight_decay_acts_on_kernels_or_on_all_that_is_trained(program, decayed, optimizer):
    ends = []
    for decay in (0.0, 0.5):
        which = decayed if decay else "kernels"  # without decay one program serves both
        run = program(smaller(weight_decay=decay, momentum=0.0, nesterov=False, decayed=which, optimizer=optimizer))
        weights = run.network.initial(0)
        run.load(weights)
        run.run(epoch(run), 0, 1)
        ends.append(run.weights())
    plain, shrunk = ends
    less = epoch(run).learning_rates[0] * 0.5
    np.testing.assert_allclose(shrunk.kernels, plain.kernels - less * weights.kernels, rtol=1e-4, atol=1e-6)
    others = plain.others - less * weights.others if decayed == "all" else plain.others
    np.testing.assert_allclose(shrunk.others, others, rtol=1e-5 if decayed == "all" else 0, atol=0)


def test_clipping_measures_the_surviving_weights_only():
    from sweep.training.optimizer import clipped, masked

    gradient = masked(np.array([3.0, 100.0], np.float32), np.array([True, False]))
    kernels, others = clipped((gradient, np.array([4.0], np.float32)), 1.0)
    np.testing.assert_allclose([*kernels, *others], [0.6, 0.0, 0.8], rtol=1e-6)


def test_a_masked_gradient_is_plus_zero_even_where_it_was_nan():
    from sweep.training.optimizer import masked

    out = masked(np.array([-1.0, np.nan, 2.0], np.float32), np.array([False, False, True])).numpy()
    assert out.tolist() == [0.0, 0.0, 2.0] and not np.signbit(out).any()


# ---- the schedule, the data, the rewind


def keeping(run, states: dict[int, dict]):
    """Keeps everything that training changes, at every step."""
    from sweep.training.loop import Watch

    every = frozenset(range(1 + run.recipe.epochs * run.steps))
    return Watch(every, lambda step: states.setdefault(step, run.state()))


def test_from_any_step_inside_an_epoch_the_schedule_goes_on_as_it_would_have(program, tmp_path):
    """Rate, order and augmentation of step s are those of the dense run at step s: same state, same end."""
    run = program(smaller())
    states: dict[int, dict] = {}
    _, dense = trained(run, start_at(run), tmp_path / "dense", watch=keeping(run, states))
    assert sorted(states) == list(range(3 * run.steps + 1))
    for step in (1, run.steps - 1, run.steps + 2):
        run.restore(states[step])
        for at in range(step, 3 * run.steps):
            run.run(epoch(run, at // run.steps), at % run.steps, at % run.steps + 1)
        assert_equal_bits(run.weights(), dense)


def test_a_ticket_that_begins_inside_an_epoch_trains_the_rest_of_it(program, tmp_path):
    run = program(smaller())
    begin = run.steps + 1
    outcome, weights = trained(run, Start(run.network.initial(5), begin, 0), tmp_path)
    assert outcome.epochs == (3 * run.steps - begin) / run.steps  # to the last digit: it stands in results.csv
    assert [line["epoch"] for line in store.read_metrics(tmp_path)] == [2, 3]
    run.load(run.network.initial(5))
    run.run(epoch(run, 1), 1, run.steps)
    loss, _ = run.take_sums()
    assert store.read_metrics(tmp_path)[0]["train_loss"] == pytest.approx(loss / ((run.steps - 1) * run.recipe.batch))
    run.run(epoch(run, 2), 0, run.steps)
    assert_equal_bits(run.weights(), weights)


def test_where_the_rest_of_an_epoch_is_carried_over_it_is_trained_and_counted(program, tmp_path):
    run = program(smaller(rest="carried", batch=20, epochs=2))  # 64 images: 3.2 batches
    trained(run, start_at(run), tmp_path / "whole")
    assert run.steps == 4 and epoch(run).order.shape == (4, 20)
    run.load(run.network.initial(0))
    for number in (0, 1):
        run.clear_sums()
        run.run(epoch(run, number), 0, run.steps)
        assert store.read_metrics(tmp_path / "whole")[number]["train_loss"] == pytest.approx(run.take_sums()[0] / 80)


def test_a_checkpoint_is_not_continued_on_other_images(program, tmp_path):
    run = program(smaller())
    trained(run, dataclasses.replace(start_at(run), data="111"), tmp_path)
    with pytest.raises(Refused, match=r"checkpoint.h5: begun on other images \(fingerprint 111, these have 222\)"):
        trained(run, dataclasses.replace(start_at(run), data="222"), tmp_path)


def test_rewinding_with_all_weights_and_the_dense_momentum_reproduces_the_dense_run(program, tmp_path):
    run = program(smaller())
    kept = {}
    _, dense = trained(run, start_at(run), tmp_path / "dense", watch=keeping(run, kept))
    run.load(run.network.initial(9), np.ones(run.network.prunable, bool))
    run.restore(kept[run.steps])
    for number in (1, 2):
        run.run(epoch(run, number), 0, run.steps)
    assert_equal_bits(run.weights(), dense)


def test_a_schedule_restarted_at_zero_would_be_noticed(program, tmp_path):
    run = program(smaller())
    kept = {}
    _, dense = trained(run, start_at(run), tmp_path, watch=keeping(run, kept))
    run.restore(kept[run.steps])
    for number in (0, 1):
        run.run(epoch(run, number), 0, run.steps)
    assert run.weights().kernels.tobytes() != dense.kernels.tobytes()


def test_a_ticket_trains_from_its_rewind_epoch_to_the_end_with_no_momentum(program, tmp_path):
    run = program(smaller())
    snapshot = run.network.initial(5)
    outcome, weights = trained(run, Start(snapshot, run.steps, 0), tmp_path)
    lines = store.read_metrics(tmp_path)
    assert outcome.epochs == 2 and [line["epoch"] for line in lines] == [2, 3]
    run.load(snapshot)
    assert not any(v.any() for name, v in run.state().items() if name.startswith("slot"))
    for number in (1, 2):
        run.run(epoch(run, number), 0, run.steps)
    assert_equal_bits(run.weights(), weights)


def test_the_metrics_carry_the_learning_rate_of_the_dense_schedule(program, tmp_path):
    run = program(smaller())
    trained(run, start_at(run), tmp_path / "dense")
    trained(run, Start(run.network.initial(5), run.steps, 0), tmp_path / "ticket")
    rates = [[line["learning_rate"] for line in store.read_metrics(tmp_path / name)] for name in ("dense", "ticket")]
    assert rates[0][1:] == rates[1]


def test_another_seed_sees_another_order_and_ends_elsewhere(program, tmp_path):
    run = program(smaller())
    weights = run.network.initial(0)
    ends = [trained(run, Start(weights, 0, seed), tmp_path / str(seed))[1].kernels for seed in (0, 1)]
    assert ends[0].tobytes() != ends[1].tobytes()


# ---- killed and continued


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Two classes of small pictures in ImageNet's layout: 24 for training, 6 for the test."""
    from PIL import Image

    stream, root = np.random.default_rng(0), tmp_path_factory.mktemp("pictures")
    for split, count in (("train", 12), ("val", 3)):
        for label in ("cat", "dog"):
            (root / split / label).mkdir(parents=True)
            for i in range(count):
                pixels = stream.integers(0, 256, (24 + i, 20, 3), np.uint8)
                Image.fromarray(pixels).save(root / split / label / f"{i}.png")
    return root


def streamed(pictures: Path, **recipe):
    data = Data("folder", str(pictures), image_size=8, validation=4, flip=True)
    return dataclasses.replace(smaller(batch=5, **recipe), data=data)


def test_streamed_pictures_come_in_the_order_of_the_epoch_and_the_rest_is_left_out(program, pictures, tmp_path):
    run = program(streamed(pictures))
    assert (len(run.dataset.train), len(run.dataset.validation), len(run.dataset.test), run.steps) == (20, 4, 6, 4)
    plan = epoch(run)
    labels = [np.asarray(labels).tolist() for _, labels in run.feed(run.dataset.train).batches(plan.order, plan.seeds)]
    assert labels == run.dataset.train.labels[plan.order].tolist()
    trained(run, start_at(run), tmp_path)
    assert all(0 < line["data_wait_share"] < 1 for line in store.read_metrics(tmp_path))


@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_what_is_traced_ahead_is_what_training_calls(kind, program, pictures, tmp_path):
    assert_nothing_is_traced_later(
        program(smaller(gamma=0.3) if kind == "resident" else streamed(pictures, gamma=0.3)), tmp_path
    )


@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_stopped_after_any_step_and_continued_it_ends_with_the_same_bits(kind, program, pictures, tmp_path):
    resident = kind == "resident"
    run = program(smaller(ema=0.5, policy="trivial") if resident else streamed(pictures, ema=0.5, policy="rand"))
    mask = connected_mask(run.network)
    whole, weights = trained(run, start_at(run, mask=mask), tmp_path / "whole")
    folder = tmp_path / "pieces"
    pieces, end = trained_in_pieces(run, start_at(run, mask=mask), folder)
    assert_equal_bits(end, weights)
    assert pieces.test == whole.test and pieces.validation == whole.validation
    timeless = [
        [
            {k: v for k, v in line.items() if "second" not in k and "step_ms" not in k and k != "data_wait_share"}
            for line in lines
        ]
        for lines in (store.read_metrics(folder), store.read_metrics(tmp_path / "whole"))
    ]
    assert timeless[0] == timeless[1]


def test_a_checkpoint_of_another_beginning_is_not_continued(program, tmp_path):
    run = program(smaller())
    with pytest.MonkeyPatch.context() as patch:
        from sweep.training import loop as training

        patch.setattr(training, "stoppable", stop_at_once)
        with pytest.raises(Interrupted):
            trained(run, start_at(run), tmp_path)
    with pytest.raises(Refused, match="begun from other weights"):
        trained(run, start_at(run, seed=1), tmp_path)
    assert (tmp_path / "checkpoint.h5").exists()


def test_checkpoints_are_written_by_the_clock_too(program, tmp_path, monkeypatch):
    run = program(smaller(checkpoint_minutes=1e-9))
    written = []
    real = store.write_arrays
    monkeypatch.setattr(store, "write_arrays", lambda *a: written.append(a[2]["step"]) or real(*a))
    trained(run, start_at(run), tmp_path)
    assert set(written) > {0}


def test_a_loss_that_is_no_number_stops_the_training_and_says_where(program, tmp_path):
    run = program(smaller(learning_rate=1e30))
    with pytest.raises(Diverged, match=r"^loss is (nan|inf) in epoch 1$"):
        trained(run, start_at(run), tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_training_ends_when_the_validation_accuracy_reaches_the_target(program, tmp_path):
    run = program(tiny(stop_at=0.01))
    outcome, _ = trained(run, start_at(run), tmp_path)
    assert outcome.epochs == 1 and len(store.read_metrics(tmp_path)) == 1


def test_the_average_is_evaluated_and_kept_as_final(program):
    run = program(smaller(ema=0.9))
    begin = run.network.initial(0)
    run.load(begin)
    run.run(epoch(run), 0, 1)
    expected = 0.9 * begin.kernels + 0.1 * run.weights().kernels
    np.testing.assert_allclose(run.evaluation.weights().kernels, expected, rtol=1e-5, atol=1e-7)


def test_an_average_without_bias_is_the_mean_of_the_weights_so_far_until_its_decay_is_reached(program):
    run, total = program(smaller(ema=0.6, ema_unbiased=True)), 0.0
    run.load(run.network.initial(0))
    for step in range(2):  # decays 0 and 1/2: the plain mean of both, without the initial weights
        run.run(epoch(run), step, step + 1)
        total = total + run.weights().kernels
    np.testing.assert_allclose(run.evaluation.weights().kernels, total / 2, rtol=1e-5, atol=1e-7)
    before = run.evaluation.weights().kernels
    run.run(epoch(run), 2, 3)  # 2/3 would be more than the 0.6 asked for
    expected = 0.6 * before + 0.4 * run.weights().kernels
    np.testing.assert_allclose(run.evaluation.weights().kernels, expected, rtol=1e-5, atol=1e-7)
    run.load(run.weights(), memory=run.memory())  # rewound with the optimizer's memory: the average begins anew
    run.run(epoch(run), 3, 4)
    np.testing.assert_allclose(run.evaluation.weights().kernels, run.weights().kernels, rtol=1e-6, atol=1e-8)


def test_erased_images_train_otherwise(program):
    ends = []
    for share in (0.0, 0.5):
        run = program(smaller(erasing=share))
        run.load(run.network.initial(0))
        run.run(epoch(run), 0, 2)
        ends.append(run.weights().kernels)
    assert not np.array_equal(*ends)


def test_metrics_carry_what_a_watcher_needs(program, tmp_path):
    run = program(smaller())
    trained(run, start_at(run), tmp_path)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    wanted = {"epoch", "train_loss", "train_top1", "validation_top1", "validation_top5", "validation_loss"}
    assert wanted | {"images_per_second", "data_wait_share", "step_ms", "learning_rate", "seconds"} <= set(line)
    assert 0 < line["step_ms_p50"] <= line["step_ms_p95"] <= line["step_ms_max"]


def test_streamed_steps_are_handed_over_without_waiting_for_the_device_between_them(program, pictures, monkeypatch):
    from sweep.training.steps import stream

    run, given, all_given = program(streamed(pictures)), [], threading.Event()
    run.load(run.network.initial(0))
    steps, at = epoch(run), range(run.steps)
    monkeypatch.setattr(run, "run", lambda *step: given.append(step[1]) or (len(given) == len(at) and all_given.set()))
    monkeypatch.setattr(run, "take_sums", lambda: all_given.wait(60) or pytest.fail("the loop waits"))  # a slow device
    monkeypatch.setattr("sweep.training.steps.time", SimpleNamespace(monotonic=itertools.count().__next__))
    batches = run.feed(run.dataset.train).batches(steps.order, steps.seeds)
    last, idle = stream(run, steps, at, batches)
    assert (last, given) == (len(at), [*at]) and len(at) > 2
    assert idle <= 1  # while the device has steps to compute, nobody waits for images: once at most the clock went on


def test_a_loss_that_rises_epoch_after_epoch_is_warned_of(program, tmp_path, monkeypatch, capsys):
    run = program(smaller(epochs=5))
    lines = [{"epoch": k + 1, "train_loss": loss} for k, loss in enumerate((1.0, 1.2, 1.5, 1.7, 1.9))]
    monkeypatch.setattr(store, "read_metrics", lambda folder: lines)
    trained(run, start_at(run), tmp_path, quiet=False)
    assert "the training loss has risen for 4 epochs, from 1.000 to 1.900" in capsys.readouterr().out
    lines[3]["train_loss"] = 1.4
    trained(run, start_at(run), tmp_path / "other", quiet=False)
    assert "risen" not in capsys.readouterr().out


# ---- what is counted


def test_top_5_hits_of_training_images_are_those_of_the_logits_and_counted_with_many_classes_alone(program, tmp_path):
    import tensorflow as tf

    from sweep.data import augment

    def many(classes: int):
        plain = tiny()
        data = dataclasses.replace(plain.data, classes=classes, pad=0, flip=False)
        return program(dataclasses.replace(plain, data=data))

    run, begin = many(12), many(12).network.initial(0)
    run.load(begin)
    plan, train = epoch(run), run.dataset.train
    run.run(plan, 0, 1)
    images = augment.normalised(
        tf.constant(train.images[plan.order[0]]), run.dataset.mean, run.dataset.deviation, "float32"
    )
    logits = run.network.apply(Weights(*map(tf.constant, begin)), images, True)[0].numpy()
    largest, labels = np.argsort(-logits, 1)[:, :5], train.labels[plan.order[0]]
    expected = [(largest[:, :k] == labels[:, None]).any(1).sum() for k in (1, 5)]
    assert list(run.take_sums()[1:]) == expected and expected[0] < expected[1] < len(labels)
    trained(run, start_at(run), tmp_path)
    assert all(line["train_top1"] <= line["train_top5"] <= 1 for line in store.read_metrics(tmp_path))
    before = {name: value[:2] if name == "sums" else value for name, value in run.state().items()}
    run.restore(before)  # of an earlier version
    assert np.isnan(run.take_sums()[2]), "not known in this epoch"
    assert len(many(10).take_sums()) == 2
