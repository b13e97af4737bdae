"""The plan: which cells a sweep has, in which order, under which names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sweep.experiment_file import load
from sweep.masks import Level
from sweep.plan import Cell, cells, epochs_of, levels
from sweep.store import Store
from tests import made_up

EXPERIMENTS = Path(__file__).parent.parent / "experiments"

SHIPPED = {  # quantiles × rewind epochs × seeds of the tickets, then of each control
    "cifar10_mobilenet_v2": {"ticket": 7 * 5 * 3, **dict.fromkeys(("fresh", "shuffled", "random", "finetune"), 2 * 3)},
    "cifar10_resnet20": {"ticket": 13 * 5 * 3, "fresh": 3 * 3, "shuffled": 3 * 3, "finetune": 3 * 3},
    "dry_run": {"ticket": 3 * 2, "fresh": 1, "shuffled": 1},
    "imagenet_mobilenet_v2": {"ticket": 12 * 9, "fresh": 2, "shuffled": 2},
}
EPOCHS = {  # of all cells together: T - k of each
    "cifar10_mobilenet_v2": 3 * (7 * (30 + 29 + 28 + 25 + 20) + 2 * 30 + 3 * 2 * 28),
    "cifar10_resnet20": 3 * (13 * (182 + 180 + 172 + 152 + 122) + 3 * 182 + 2 * 3 * 172),
    "dry_run": 3 * (18 + 15) + 18 + 18,
    "imagenet_mobilenet_v2": 12 * sum(range(50, 91, 5)) + 2 * 90 + 2 * 85,
}


def planned(**prune) -> list[Cell]:
    return cells(made_up.experiment(**prune))


def of_kind(kind: str, plan: list[Cell]) -> set[tuple[str, int]]:
    return {(str(cell.level), cell.rewind_epoch) for cell in plan if cell.kind == kind}


# ---- which cells


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_experiments_have_the_cells_one_counts_by_hand(name):
    plan = cells(load(EXPERIMENTS / f"{name}.yaml"))
    assert Counter(cell.kind for cell in plan) == SHIPPED[name]


@pytest.mark.parametrize("name", EPOCHS)
def test_the_shipped_experiments_train_the_epochs_one_counts_by_hand(name):
    experiment = load(EXPERIMENTS / f"{name}.yaml")
    assert sum(epochs_of(cell, experiment) for cell in cells(experiment)) == EPOCHS[name]


def test_every_level_meets_every_rewind_epoch_once():
    plan = planned(quantiles=(0.5, 0.9), rewind_epochs=(0, 1, 3))
    assert of_kind("ticket", plan) == {(q, k) for q in ("q0.5", "q0.9") for k in (0, 1, 3)}
    assert len(plan) == 6


def test_every_seed_has_the_whole_grid():
    plan = cells(made_up.experiment(seeds=(0, 3), controls=("fresh", "random")))
    by_seed = {seed: {(c.kind, c.level, c.rewind_epoch) for c in plan if c.seed == seed} for seed in (0, 3)}
    assert by_seed[0] == by_seed[3]
    assert len(plan) == 2 * len(by_seed[0]) == 2 * (4 + 2 + 4)


def test_without_levels_there_are_no_cells():
    assert planned(quantiles=(), controls=("fresh", "shuffled")) == []


def test_controls_cover_the_whole_grid_unless_they_have_their_own():
    plan = planned(controls=("shuffled",))
    assert of_kind("shuffled", plan) == of_kind("ticket", plan)


@pytest.mark.parametrize("kind", ["shuffled", "random", "finetune"])
def test_controls_keep_to_their_own_grid(kind):
    plan = planned(
        quantiles=(0.5, 0.8, 0.9),
        rewind_epochs=(0, 1, 2),
        controls=(kind,),
        control_quantiles=(0.5, 0.9),
        control_rewind_epochs=(1, 2),
    )
    assert of_kind(kind, plan) == {("q0.5", 1), ("q0.5", 2), ("q0.9", 1), ("q0.9", 2)}
    assert len(of_kind("ticket", plan)) == 9


def test_a_fresh_initialization_is_trained_from_epoch_0_only():
    plan = planned(rewind_epochs=(1, 2), controls=("fresh",), control_rewind_epochs=(2,))
    assert of_kind("fresh", plan) == {("q0.5", 0), ("q0.9", 0)}
    assert len(plan) == 4 + 2


def test_thresholds_are_levels_beside_the_quantiles():
    plan = planned(quantiles=(0.5,), thresholds=(0.01, 2.0), rewind_epochs=(0,), controls=("random",))
    assert of_kind("ticket", plan) == of_kind("random", plan) == {("q0.5", 0), ("t0.01", 0), ("t2.0", 0)}
    assert levels(made_up.experiment(quantiles=(0.5,), thresholds=(0.01,)).prune) == [
        Level("quantile", 0.5),
        Level("threshold", 0.01),
    ]


def test_control_quantiles_leave_thresholds_to_the_tickets():
    plan = planned(thresholds=(0.01,), rewind_epochs=(0,), controls=("random",), control_quantiles=(0.9,))
    assert of_kind("random", plan) == {("q0.9", 0)}
    assert ("t0.01", 0) in of_kind("ticket", plan)


# ---- in which order


@pytest.mark.parametrize("name", SHIPPED)
def test_the_longest_cells_come_first(name):
    experiment = load(EXPERIMENTS / f"{name}.yaml")
    epochs = [epochs_of(cell, experiment) for cell in cells(experiment)]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > epochs[-1]


def test_the_longest_cells_come_first_whatever_the_order_in_the_file():
    assert [c.rewind_epoch for c in planned(quantiles=(0.5,), rewind_epochs=(2, 0, 3, 1))] == [0, 1, 2, 3]


def test_a_cell_rewound_to_epoch_k_trains_what_is_left():
    experiment = made_up.experiment()  # of 4 epochs
    assert [epochs_of(Cell("ticket", Level("quantile", 0.5), k, 0), experiment) for k in (0, 1, 3)] == [4, 3, 1]


# ---- under which names


def test_the_names_of_cells_never_change():
    """They name results that exist."""
    plan = cells(made_up.experiment(quantiles=(0.5,), thresholds=(0.01,), controls=("fresh", "finetune"), seeds=(7,)))
    assert [cell.slug for cell in plan] == [
        "ticket-q0.5-k0-seed7",
        "ticket-t0.01-k0-seed7",
        "fresh-q0.5-k0-seed7",
        "fresh-t0.01-k0-seed7",
        "finetune-q0.5-k0-seed7",
        "finetune-t0.01-k0-seed7",
        "ticket-q0.5-k2-seed7",
        "ticket-t0.01-k2-seed7",
        "finetune-q0.5-k2-seed7",
        "finetune-t0.01-k2-seed7",
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_no_two_cells_share_a_path(name):
    home = Store(Path("results"), load(EXPERIMENTS / f"{name}.yaml"))
    plan = cells(home.experiment)
    assert len({home.cell(cell.slug) for cell in plan}) == len(plan)


def test_levels_that_differ_in_the_last_digit_have_names_of_their_own():
    near = (0.1, 0.1 + 2**-56, 0.3, 0.1 + 0.2)
    plan = planned(quantiles=near, thresholds=near, rewind_epochs=(0,))
    assert len({cell.slug for cell in plan}) == 8


def test_a_name_is_one_folder_below_that_of_the_cells():
    plan = planned(quantiles=(1e-7,), thresholds=(1e-30, 12345.678), controls=("fresh", "shuffled"))
    assert all(Path(cell.slug).name == cell.slug for cell in plan)
