"""The recipe as a pure function of (recipe, seed, epoch)."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.experiment import Recipe
from sweep.experiment.file import load
from sweep.training import schedule as recipes
from tests.synthetic import refusal

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def rates(steps: int = 2, **fields) -> list[float]:
    """The learning rate of every step of the whole run."""
    recipe = Recipe(**({"learning_rate": 1.0} | fields))
    return [float(r) for epoch in range(recipe.epochs) for r in recipes.learning_rates(recipe, epoch, steps)]


# ---- learning rates

SCHEDULES = {
    "constant": ({"schedule": "constant", "epochs": 2}, [1, 1, 1, 1]),
    "step": (
        {"schedule": "step", "epochs": 4, "milestones": (1, 3), "gamma": 0.5},
        [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25],
    ),
    "cosine": ({"schedule": "cosine", "epochs": 2}, [1, 0.5 + math.sqrt(0.5) / 2, 0.5, 0.5 - math.sqrt(0.5) / 2]),
    "linear": ({"schedule": "linear", "epochs": 3, "warmup_epochs": 1}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
    "exponential": ({"schedule": "exponential", "epochs": 3, "decay": 0.5}, [1, 1, 0.5, 0.5, 0.25, 0.25]),
    # ten half epochs: up through 0, 1/3 and 2/3 of the rise, down through 0, 1/7, … of the fall
    "one_cycle": (
        {"schedule": "one_cycle", "epochs": 5},
        [0.04, 0.28, 0.76] + [0.5 + 0.5 * math.cos(math.pi * i / 7) for i in range(7)],
    ),
    "linear scaling": (
        {"schedule": "constant", "epochs": 1, "batch": 1024, "reference_batch": 256, "learning_rate": 0.1},
        [0.4, 0.4],
    ),
    "warm-up": ({"schedule": "constant", "epochs": 3, "warmup_epochs": 2}, [0.25, 0.5, 0.75, 1, 1, 1]),
    "warm-up of half an epoch": ({"schedule": "constant", "epochs": 1, "warmup_epochs": 0.5}, [1, 1]),
    "warm-up, then the whole cosine": (
        {"schedule": "cosine", "epochs": 3, "warmup_epochs": 1},
        [0.5, 1, 1, 0.5 + math.sqrt(0.5) / 2, 0.5, 0.5 - math.sqrt(0.5) / 2],
    ),
    "warm-up to a scaled rate": (
        {"schedule": "constant", "epochs": 2, "warmup_epochs": 1, "batch": 512, "reference_batch": 256},
        [1, 2, 2, 2],
    ),
    "warm-up across a step": (
        {"schedule": "step", "epochs": 2, "warmup_epochs": 1.5, "milestones": (1,)},
        [1 / 3, 2 / 3, 0.1, 0.1],
    ),
}


@pytest.mark.parametrize(("fields", "expected"), SCHEDULES.values(), ids=SCHEDULES)
def test_the_learning_rate_of_each_step_is_the_one_computed_by_hand(fields, expected):
    assert rates(**fields) == pytest.approx(expected, rel=1e-6)


def test_every_schedule_has_a_case_computed_by_hand():
    assert {fields["schedule"] for fields, _ in SCHEDULES.values()} == set(recipes.SCHEDULES)


def test_the_published_resnet20_recipe_divides_by_ten_at_epochs_91_and_136():
    recipe = load(EXPERIMENTS / "cifar10_resnet20.yaml").recipe
    rates = {epoch: recipes.learning_rates(recipe, epoch, steps=390) for epoch in (0, 90, 91, 135, 136, 181)}
    assert all(len(set(of_epoch.tolist())) == 1 for of_epoch in rates.values())
    assert {epoch: float(of_epoch[0]) for epoch, of_epoch in rates.items()} == pytest.approx(
        {0: 0.1, 90: 0.1, 91: 0.01, 135: 0.01, 136: 0.001, 181: 0.001}
    )


def test_the_imagenet_recipe_warms_up_to_four_times_its_rate_for_256_images():
    recipe = load(EXPERIMENTS / "imagenet_mobilenet_v2.yaml").recipe
    assert recipes.peak_rate(recipe, recipe.batch) == pytest.approx(0.4)
    assert recipes.learning_rates(recipe, 4, steps=10)[-1] == pytest.approx(0.4)
    assert recipes.learning_rates(recipe, 0, steps=10)[0] == pytest.approx(0.4 / 50)


# ---- order

images_and_batch = st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(st.integers(0, 2**31), st.integers(0, 500), images_and_batch)
def test_an_epoch_shows_no_image_twice_and_leaves_out_only_the_uneven_rest(seed, epoch, sizes):
    images, batch = sizes
    order = recipes.order(seed, epoch, images, batch)
    assert (order.dtype, order.shape) == (np.int32, (images // batch, batch))
    seen = order.ravel().tolist()
    assert len(set(seen)) == len(seen) == images - images % batch
    assert set(seen) <= set(range(images))


@given(st.integers(0, 2**31), st.integers(1, 9), images_and_batch)
def test_where_the_rest_is_carried_over_batches_go_through_one_permutation_after_the_other(seed, epochs, sizes):
    images, batch = sizes
    orders = [recipes.order(seed, epoch, images, batch, carried=True) for epoch in range(epochs)]
    assert {one.shape for one in orders} == {(math.ceil(images / batch), batch)}
    row = np.concatenate(orders).ravel()
    for number in range(len(row) // images):  # the permutations that are trained when the rest is left out
        one = row[number * images : (number + 1) * images]
        assert sorted(one) == list(range(images))
        assert one.tolist() == recipes.order(seed, number, images, 1).ravel().tolist()


def test_the_published_resnet20_takes_391_steps_an_epoch_where_no_image_is_left_out():
    steps = {rest: recipes.steps_of(Recipe(rest=rest), images=50_000) for rest in ("dropped", "carried")}
    assert steps == {"dropped": 390, "carried": 391}


def test_an_epoch_that_divides_evenly_is_a_permutation_of_all_images():
    order = recipes.order(seed=3, epoch=2, images=60, batch=12).ravel()
    assert sorted(order) == list(range(60)) != order.tolist()


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else():
    first = recipes.order(1, 7, 50, 10)
    np.random.seed(99)  # global random numbers must not matter
    recipes.order(1, 6, 50, 10)
    np.testing.assert_array_equal(recipes.order(1, 7, 50, 10), first)
    others = [recipes.order(*key, 50, 10).tolist() for key in ((1, 8), (2, 7), (7, 1))]
    assert first.tolist() not in others


def test_the_image_left_out_changes_from_epoch_to_epoch():
    left_out = [({*range(11)} - {*recipes.order(0, epoch, 11, 10).ravel().tolist()}).pop() for epoch in range(10)]
    assert len(set(left_out)) > 3


# ---- a whole epoch

FULL = Recipe(epochs=6, batch=8, warmup_epochs=1, mixup=0.4, cutmix=1.0, first_size=16, full_size_epoch=4)


def epoch(number: int, recipe: Recipe = FULL, seed: int = 5) -> dict:
    return dataclasses.asdict(recipes.epoch_of(recipe, seed, number, images=100, image_size=32))


def test_a_ticket_from_epoch_k_sees_the_epochs_of_the_dense_run_from_k_on():
    dense = [epoch(number) for number in range(6)]
    ticket = [epoch(number) for number in range(3, 6)]
    for of_dense, of_ticket in zip(dense[3:], ticket, strict=True):
        for name, value in of_ticket.items():
            np.testing.assert_array_equal(value, of_dense[name], err_msg=name)


@pytest.mark.parametrize("name", ["order", "learning_rates", "seeds", "mixing"])
def test_no_two_epochs_are_alike(name):
    assert len({epoch(number)[name].tobytes() for number in range(6)}) == 6


@pytest.mark.parametrize("name", ["order", "seeds", "mixing"])
def test_another_seed_gives_other_randomness(name):
    assert not np.array_equal(epoch(2)[name], epoch(2, seed=6)[name])


def test_another_seed_gives_the_same_learning_rates():
    np.testing.assert_array_equal(epoch(2)["learning_rates"], epoch(2, seed=6)["learning_rates"])


def test_an_epoch_has_one_row_per_step():
    one = recipes.epoch_of(FULL, 0, 0, images=100, image_size=32)
    shapes = one.order.shape, one.learning_rates.shape, one.seeds.shape, one.mixing.shape
    assert shapes == ((12, 8), (12,), (12, 2), (12, 2))
    assert (one.learning_rates.dtype, one.seeds.dtype, one.mixing.dtype) == (np.float32, np.int32, np.float32)


def test_no_two_steps_of_a_run_share_their_random_seed():
    pairs = np.concatenate([epoch(number)["seeds"] for number in range(6)])
    assert len({tuple(pair) for pair in pairs.tolist()}) == 6 * 12


def test_order_seeds_and_mixing_do_not_depend_on_the_schedule():
    other = dataclasses.replace(FULL, schedule="constant", learning_rate=0.5, epochs=60)
    for name in ("order", "seeds", "mixing"):
        np.testing.assert_array_equal(epoch(2, other)[name], epoch(2)[name])


# ---- mixing


def shares(mixup: float, cutmix: float) -> tuple[np.ndarray, np.ndarray]:
    mixing = recipes.mixing(Recipe(mixup=mixup, cutmix=cutmix), seed=0, epoch=0, steps=400)
    assert np.all((mixing >= 0) & (mixing <= 1))
    return mixing[:, 0], mixing[:, 1]


def test_without_mixup_and_cutmix_every_image_stays_itself():
    assert all(np.all(part == 1) for part in shares(0.0, 0.0))


def test_mixup_alone_touches_every_step_and_leaves_cutmix_off():
    mixup, cutmix = shares(1.0, 0.0)
    assert np.all(mixup < 1) and np.all(cutmix == 1)
    assert mixup.mean() == pytest.approx(0.5, abs=0.05)  # Beta(1, 1) is uniform


def test_cutmix_alone_touches_every_step_and_leaves_mixup_off():
    mixup, cutmix = shares(0.0, 1.0)
    assert np.all(mixup == 1) and np.all(cutmix < 1)


def test_with_both_a_coin_gives_each_step_exactly_one():
    mixup, cutmix = shares(1.0, 1.0)
    assert np.all((mixup < 1) != (cutmix < 1))
    assert (mixup < 1).mean() == pytest.approx(0.5, abs=0.1)


def test_of_mixed_steps_a_share_gets_cutmix_and_of_all_steps_a_share_is_mixed():
    recipe = Recipe(mixup=0.2, cutmix=1.0, cutmix_share=0.3, mixing_share=0.8)
    mixup, cutmix = recipes.mixing(recipe, seed=0, epoch=0, steps=4000).T
    assert ((mixup < 1) | (cutmix < 1)).mean() == pytest.approx(0.8, abs=0.03)
    assert (cutmix < 1).mean() == pytest.approx(0.8 * 0.3, abs=0.03)
    assert not ((mixup < 1) & (cutmix < 1)).any()


def test_a_small_alpha_mixes_little_and_a_large_one_about_half():
    def distance_from_half(alpha: float) -> float:
        return float(np.abs(shares(alpha, 0.0)[0] - 0.5).mean())

    assert distance_from_half(0.1) > 0.4 > 0.1 > distance_from_half(50.0)


# ---- progressive resizing


def test_images_grow_linearly_in_steps_of_four_pixels_up_to_the_full_size():
    recipe = Recipe(epochs=8, first_size=16, full_size_epoch=4)
    assert [recipes.size_at(recipe, epoch, 32) for epoch in range(6)] == [16, 20, 24, 28, 32, 32]


def test_sizes_between_are_rounded_to_four_pixels():
    recipe = Recipe(epochs=8, first_size=16, full_size_epoch=3)
    assert [recipes.size_at(recipe, epoch, 32) for epoch in range(4)] == [16, 20, 28, 32]


def test_large_images_grow_in_few_sizes():
    recipe = Recipe(epochs=30, first_size=128, full_size_epoch=20)
    assert sorted({recipes.size_at(recipe, epoch, 224) for epoch in range(30)}) == [140, 168, 196, 224]


def test_images_have_their_full_size_where_resizing_is_off():
    assert [recipes.size_at(Recipe(), epoch, 30) for epoch in (0, 29)] == [30, 30]


def test_images_are_never_larger_than_the_full_size():
    assert recipes.size_at(Recipe(epochs=8, first_size=64, full_size_epoch=4), 0, 32) == 32


# ---- points of the methods


POINTS = {
    "after the end": (
        "[snip@999999999it]",
        "prune.methods: received snip@999999999it, expected end or a point",
    ),
    "at the end": (
        "[magnitude@40it]",
        "prune.methods: received magnitude@40it, expected end or a point",
    ),
    "one step, two names": ("[lamp@1ep, lamp@10it]", "lamp@1ep and lamp@10it score the same step, 10; expected one"),
}


@pytest.mark.parametrize(("methods", "message"), POINTS.values(), ids=POINTS)
def test_a_method_that_scores_after_the_end_or_the_same_step_twice_is_refused(methods, message, tmp_path):
    (tmp_path / "small.yaml").write_text("recipe: {epochs: 4, batch: 8}\nprune: {quantiles: [0.5]}\n")
    experiment = load(tmp_path / "small.yaml", [f"prune.methods={methods}"])
    assert message in refusal(lambda: recipes.check_points(experiment, images=80))


def test_a_method_may_score_the_last_step_but_one_and_the_end(tmp_path):
    (tmp_path / "small.yaml").write_text("recipe: {epochs: 4, batch: 8}\nprune: {quantiles: [0.5]}\n")
    methods = "prune.methods=[magnitude@39it, magnitude, magnitude/erk, lamp, snip, snip@2ep]"
    recipes.check_points(load(tmp_path / "small.yaml", [methods]), images=80)
