"""The plan: which cells a sweep has, in which order, under which names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.experiment import Experiment, Method, method, point
from sweep.experiment.file import load
from sweep.graph.home import Home
from sweep.graph.plan import graph_of, levels
from sweep.graph.training import Mask, Start, Training
from sweep.pruning.masks import Level
from tests import synthetic

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

SHIPPED = {  # quantiles × rewind epochs × seeds of the tickets, then of each control
    "cifar10_mobilenet_v2": {
        "ticket": 6 * 5 * 3,
        "lr_rewind": 6 * 3,
        **dict.fromkeys(("fresh", "shuffled", "random"), 2 * 3),
    },
    "cifar10_mobilenet_v2_iterative": {"ticket": 8 * 3},
    "cifar10_mobilenet_v2_methods": {"ticket": 9},
    "cifar10_resnet20": {"ticket": 13 * 5 * 3, "fresh": 3 * 3, "shuffled": 3 * 3, "lr_rewind": 13 * 3},
    "cifar10_resnet20_iterative": {"ticket": 7 * 3, "lr_rewind": 7 * 3},
    "dry_run": {"ticket": 3 * 2, "fresh": 1, "shuffled": 1},
    "imagenet_mobilenet_v2": {"ticket": 3 * 15, "fresh": 9, "shuffled": 9, "random": 9},
    "study_resnet20": {"ticket": 2 * 2 * 3, "lr_rewind": 2 * 3, "fresh": 2 * 3},
    "renda_resnet20": {"ticket": 2 * 2 * 3, "lr_rewind": 2 * 3, "fresh": 2 * 3},
    "study_mobilenet_v2_confirm": {
        "ticket": 9 * 5,
        "fresh": 3 * 5,
        "lr_rewind": 4 * 5,
        "shuffled": 9 * 5,
        "random": 9 * 5,
    },
    "study_mobilenet_v2": {"ticket": 5 * 5 * 3, **dict.fromkeys(("fresh", "shuffled", "random", "lr_rewind"), 5 * 3)},
}
EPOCHS = {  # of all cells together: T - k of each
    "cifar10_mobilenet_v2": 3 * (6 * (30 + 29 + 28 + 25 + 20) + 2 * 30 + 2 * 2 * 28 + 6 * 28),
    "cifar10_mobilenet_v2_iterative": 3 * 8 * 28,
    "cifar10_mobilenet_v2_methods": 9 * 28,
    "cifar10_resnet20": 3 * (13 * (182 + 180 + 172 + 152 + 122) + 3 * 182 + 3 * 172 + 13 * 172),
    "cifar10_resnet20_iterative": 3 * 7 * (170 + 130),
    "dry_run": 3 * (18 + 15) + 18 + 15,
    "imagenet_mobilenet_v2": 9 * (90 + 88 + 85 + 80 + 72) + 9 * 90 + 18 * 85,
    "study_resnet20": 3 * 2 * (182 + 170 + 130 + 182),
    "study_mobilenet_v2_confirm": 5 * (3 * 3 * (30 + 28 + 25) + 3 * 30 + 4 * 28),
    "study_mobilenet_v2": 3 * 5 * (30 + 29 + 28 + 25 + 20 + 30 + 3 * 28),
}


def pruned(experiment: Experiment) -> list[Training]:
    """All but the dense runs, in the order of the plan."""
    return [training for training in graph_of(experiment) if training.kind != "dense"]


def planned(**prune) -> list[Training]:
    return pruned(synthetic.experiment(**prune))


def of_kind(kind: str, plan: list[Training]) -> set[tuple[str, int]]:
    return {(str(one.mask.level), one.begin.count) for one in plan if one.kind == kind}


# ---- which cells


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_experiments_have_as_many_trainings_as_counted_by_hand(name):
    plan = pruned(load(EXPERIMENTS / f"{name}.yaml"))
    assert Counter(cell.kind for cell in plan) == SHIPPED[name]


@pytest.mark.parametrize("name", EPOCHS)
def test_the_shipped_experiments_train_as_many_epochs_as_counted_by_hand(name):
    experiment = load(EXPERIMENTS / f"{name}.yaml")
    assert sum(one.epochs for one in pruned(experiment)) == EPOCHS[name]


def test_every_level_meets_every_rewind_epoch_once():
    plan = planned(quantiles=(0.5, 0.9), rewind=synthetic.points(0, 1, 3))
    assert of_kind("ticket", plan) == {(q, k) for q in ("q0.5", "q0.9") for k in (0, 1, 3)}
    assert len(plan) == 6


def test_every_seed_has_the_whole_grid():
    plan = pruned(synthetic.experiment(seeds=(0, 3), controls=("fresh", "random")))
    by_seed = {seed: {(c.kind, c.mask.level, c.begin) for c in plan if c.seed == seed} for seed in (0, 3)}
    assert by_seed[0] == by_seed[3]
    assert len(plan) == 2 * len(by_seed[0]) == 2 * (4 + 2 + 4)


def test_without_levels_there_are_no_tickets():
    assert planned(quantiles=()) == []


def test_controls_cover_the_whole_grid_unless_they_have_their_own():
    plan = planned(controls=("shuffled",))
    assert of_kind("shuffled", plan) == of_kind("ticket", plan)


@pytest.mark.parametrize("kind", ["shuffled", "random", "inverted", "fresh_short", "same_signs", "same_magnitudes"])
def test_controls_keep_to_their_own_grid(kind):
    plan = planned(
        quantiles=(0.5, 0.8, 0.9),
        rewind=synthetic.points(0, 1, 2),
        controls=(kind,),
        control_quantiles=(0.5, 0.9),
        control_rewind=synthetic.points(1, 2),
    )
    assert of_kind(kind, plan) == {("q0.5", 1), ("q0.5", 2), ("q0.9", 1), ("q0.9", 2)}
    assert len(of_kind("ticket", plan)) == 9


def test_a_fresh_initialization_is_trained_from_epoch_0_only():
    plan = planned(rewind=synthetic.points(1, 2), controls=("fresh",), control_rewind=synthetic.points(2))
    assert of_kind("fresh", plan) == {("q0.5", 0), ("q0.9", 0)}
    assert len(plan) == 4 + 2


def test_thresholds_are_levels_beside_the_quantiles():
    plan = planned(quantiles=(0.5,), thresholds=(0.01, 2.0), rewind=synthetic.points(0), controls=("random",))
    assert of_kind("ticket", plan) == of_kind("random", plan) == {("q0.5", 0), ("t0.01", 0), ("t2.0", 0)}
    assert levels(synthetic.experiment(quantiles=(0.5,), thresholds=(0.01,)).prune, Method()) == [
        Level("quantile", 0.5),
        Level("threshold", 0.01),
    ]


def test_control_quantiles_leave_thresholds_to_the_tickets():
    plan = planned(thresholds=(0.01,), rewind=synthetic.points(0), controls=("random",), control_quantiles=(0.9,))
    assert of_kind("random", plan) == {("q0.9", 0)}
    assert ("t0.01", 0) in of_kind("ticket", plan)


# ---- in which order


@pytest.mark.parametrize("name", SHIPPED)
def test_the_longest_trainings_come_first(name):
    experiment = load(EXPERIMENTS / f"{name}.yaml")
    places = [(one.generation, -one.epochs) for one in pruned(experiment)]
    assert places == sorted(places)


def test_the_longest_trainings_come_first_whatever_the_order_in_the_file():
    assert [one.begin.count for one in planned(quantiles=(0.5,), rewind=synthetic.points(2, 0, 3, 1))] == [0, 1, 2, 3]


def test_a_ticket_rewound_to_epoch_k_trains_the_remaining_epochs():
    assert [one.epochs for one in planned(quantiles=(0.5,), rewind=synthetic.points(0, 1, 3))] == [4, 3, 1]  # of 4


# ---- under which names


def test_the_words_for_trainings_never_change():
    """They name results that exist."""
    both = synthetic.points(0, 2)
    plan = pruned(
        synthetic.experiment(quantiles=(0.5,), thresholds=(0.01,), controls=("fresh",), lr_rewind=both, seeds=(7,))
    )
    assert sorted(one.slug for one in plan) == sorted([
        "ticket-q0.5-k0-seed7",
        "ticket-t0.01-k0-seed7",
        "fresh-q0.5-k0-seed7",
        "fresh-t0.01-k0-seed7",
        "lr_rewind-q0.5-k0-seed7",
        "lr_rewind-t0.01-k0-seed7",
        "ticket-q0.5-k2ep-seed7",
        "ticket-t0.01-k2ep-seed7",
        "lr_rewind-q0.5-k2ep-seed7",
        "lr_rewind-t0.01-k2ep-seed7",
    ])  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_no_two_trainings_share_a_folder(name):
    home = Home(Path("results") / name, load(EXPERIMENTS / f"{name}.yaml"))
    assert len({home.folder(one) for one in home.graph}) == len({one.slug for one in home.graph}) == len(home.graph)


def test_levels_that_differ_in_the_last_digit_have_names_of_their_own():
    near = (0.1, 0.1 + 2**-56, 0.3, 0.1 + 0.2)
    plan = planned(quantiles=near, thresholds=near, rewind=synthetic.points(0))
    assert len({one.name for one in plan}) == 8


def test_a_name_is_one_folder():
    plan = planned(quantiles=(1e-7,), thresholds=(1e-30, 12345.678), controls=("fresh", "shuffled"))
    assert all(Path(one.name).name == one.name for one in plan)


# ---- growing


def names(**prune) -> set[str]:
    return {one.name for one in graph_of(synthetic.experiment(**prune))}


@pytest.mark.parametrize(
    ("more", "new"),
    [({"quantiles": (0.5, 0.7, 0.9)}, 2), ({"rewind": synthetic.points(0, 1, 2)}, 2), ({"controls": ("fresh",)}, 2),
     ({"seeds": (0, 1)}, 5)],
)  # fmt: skip
def test_a_grown_experiment_keeps_the_names_of_what_it_had(more, new):
    assert names() < names(**more) and len(names(**more)) == len(names()) + new


def test_the_order_in_the_file_changes_no_name():
    assert names(quantiles=(0.9, 0.5), rewind=synthetic.points(2, 0)) == names()


def test_experiments_of_one_recipe_share_their_dense_run_and_of_another_nothing():
    other = synthetic.experiment("other", quantiles=(0.3,))
    assert {one.kind for one in graph_of(other) if one.name in names()} == {"dense"}
    longer = replace(other, recipe=replace(other.recipe, epochs=5))
    assert not {one.name for one in graph_of(longer)} & names()


# ---- the graph


def test_tickets_come_after_the_dense_run_they_start_from():
    graph = graph_of(synthetic.experiment(seeds=(0, 1), controls=("fresh", "random"), lr_rewind=synthetic.points(2)))
    assert [one.generation for one in graph] == [0, 0] + [1] * (len(graph) - 2)
    for one in graph:
        assert [need.slug for need in one.needs] == ([f"dense-seed{one.seed}"] if one.mask else [])


def test_the_points_others_start_from_are_known():
    graph = graph_of(synthetic.experiment(rewind=(point(0), point("500it"), point("2ep"))))
    assert {str(at) for at in graph.points_of(graph.dense[0])} == {"500it", "2ep", "end"}  # 0 is an initialization


def test_a_chain_of_rounds_is_named_quickly_and_every_round_differently():
    """Every round holds its ancestors twice, by mask and start: compared field by field they would explode."""
    experiment = synthetic.experiment()
    rounds = [graph_of(experiment).dense[0]]
    for number in range(60):
        mask = Mask(Level("quantile", 0.1 + number / 100), rounds[-1])
        rounds.append(replace(rounds[0], start=Start(of=rounds[-1]), mask=mask))
    assert len({one.name for one in rounds}) == 61 and rounds[-1].generation == 60
    assert rounds[-1] == replace(rounds[-1]) and rounds[-1] != rounds[-2]


def test_each_control_differs_from_its_ticket_in_one_thing():
    kinds = ("fresh", "fresh_short", "shuffled", "random", "inverted", "same_signs", "same_magnitudes")
    both = synthetic.points(2)
    asked = synthetic.experiment(quantiles=(0.9,), rewind=synthetic.points(0, 2), controls=kinds, lr_rewind=both)
    graph = graph_of(replace(asked, recipe=replace(asked.recipe, schedule="constant"),
                             prune=replace(asked.prune, finetune=both)))  # fmt: skip
    for kind, field, k in (("fresh", "start", "0"), ("fresh_short", "start", "2ep"), ("shuffled", "mask", "2ep"),
                           ("random", "mask", "2ep"), ("inverted", "mask", "2ep"), ("same_signs", "start", "2ep"),
                           ("same_magnitudes", "start", "2ep"), ("lr_rewind", "start", "2ep")):  # fmt: skip
        assert differences(graph[f"ticket-q0.9-k{k}-seed0"], graph[f"{kind}-q0.9-k{k}-seed0"]) == [field], kind
    assert differences(graph["lr_rewind-q0.9-k2ep-seed0"], graph["finetune-q0.9-k2ep-seed0"]) == ["rates"]
    assert "fresh_short-q0.9-k0-seed0" not in [one.slug for one in graph], "from 0 it is the fresh one"


def test_the_dense_network_is_retrained_as_a_ticket_is_by_learning_rate_rewinding_but_for_the_mask():
    both = synthetic.points(2)
    graph = graph_of(synthetic.experiment(quantiles=(0.9,), lr_rewind=both, dense_lr_rewind=both))
    baseline = graph["lr_rewind-k2ep-seed0"]
    assert differences(baseline, graph["lr_rewind-q0.9-k2ep-seed0"]) == ["mask"]
    assert baseline.needs == (graph["dense-seed0"],) and baseline.generation == 1


def differences(one: Training, other: Training) -> list[str]:
    names = ("model", "data", "recipe", "seed", "start", "begin", "mask", "rates")
    return [name for name in names if getattr(one, name) != getattr(other, name)]


# ---- rounds


def test_every_round_prunes_what_the_round_before_left():
    experiment = synthetic.experiment(quantiles=(), rounds=3, share=0.5, rewind=synthetic.points(2), seeds=(0, 1))
    graph = graph_of(experiment)
    chain = [graph[f"ticket-{word}-k2ep-seed1"] for word in ("q0.5", "q0.75-r2", "q0.875-r3")]
    assert [one.generation for one in chain] == [1, 2, 3] and len(graph) == 2 * 4
    dense = graph["dense-seed1"]
    for before, one in zip([dense, *chain], chain, strict=False):
        assert one.mask.of == before and one.mask.within == before.mask
        assert one.start == Start(of=dense, at=point("2ep"))  # weight rewinding: always the dense run's
        assert set(one.needs) == {before, dense}


def test_the_first_round_is_the_one_shot_ticket():
    rounds = graph_of(synthetic.experiment(quantiles=(0.5, 0.9), rounds=2))
    shots = graph_of(synthetic.experiment(quantiles=(0.5, 0.9)))
    assert rounds["ticket-q0.5-k2ep-seed0"] == shots["ticket-q0.5-k2ep-seed0"]
    assert rounds["ticket-q0.9-r2-k2ep-seed0"] != shots["ticket-q0.9-k2ep-seed0"]


def test_learning_rate_rewinding_goes_on_with_the_weights_of_the_round_before():
    graph = graph_of(synthetic.experiment(quantiles=(0.5, 0.9), rounds=2, rewind=(), lr_rewind=synthetic.points(2)))
    first, second = graph["lr_rewind-q0.5-k2ep-seed0"], graph["lr_rewind-q0.9-r2-k2ep-seed0"]
    assert second.start == Start(of=first) and second.mask.of == first


def test_controls_of_two_chains_have_names_of_their_own():
    graph = graph_of(synthetic.experiment(quantiles=(0.5, 0.9), rounds=2, controls=("fresh", "shuffled")))
    fresh = [one for one in graph if one.kind == "fresh"]
    assert len({one.slug for one in graph}) == len(graph)
    assert len(fresh) == 1 + 2, "the first round's mask is common, those of the second are not"


# ---- pruning at initialization


def test_a_mask_of_the_initialization_waits_for_nothing():
    graph = graph_of(synthetic.experiment(methods=(method("snip"), method("magnitude@0")), rewind=synthetic.points(0)))
    assert {one.generation for one in graph} == {0} and len(graph) == 1 + 2 * 2


def test_a_mask_of_the_initialization_with_the_weights_of_a_later_point_waits_for_that():
    graph = graph_of(synthetic.experiment(methods=(method("snip"),), rewind=synthetic.points(2)))
    assert graph["ticket-snip-q0.9-k2ep-seed0"].needs == (graph.dense[0],)
    assert [str(at) for at in graph.points_of(graph.dense[0])] == ["2ep"]


def test_n_of_m_has_its_own_density():
    graph = graph_of(
        synthetic.experiment(methods=(method("magnitude/2:4"), method("lamp")), rewind=synthetic.points(0))
    )
    assert sorted(one.slug for one in graph if one.mask) == [
        "ticket-lamp-q0.5-k0-seed0", "ticket-lamp-q0.9-k0-seed0", "ticket-magnitude-2of4-q0.5-k0-seed0"
    ]  # fmt: skip


# ---- instability


def test_two_children_of_a_point_see_the_data_in_other_orders_and_a_line_joins_them():
    graph = graph_of(synthetic.experiment(rewind=synthetic.points(0), instability=synthetic.points(0, 2),
                                        instability_quantiles=(0.9,)))  # fmt: skip
    for word in ("", "q0.9-"):
        one, other = graph[f"child1-{word}k2ep-seed0"], graph[f"child2-{word}k2ep-seed0"]
        assert differences(one, other) == ["seed"] and 0 not in (one.seed, other.seed)
        line = graph[f"instability-{word}k2ep-seed0"]
        assert line.needs == (one, other) and line.generation == 2 and one.generation == 1
        assert (line.kind, line.epochs, line.origin) == ("instability", 0, 0)
    start = graph["child1-k0-seed0"]
    assert start.start == Start(seed=0) and start.needs == () and start.mask is None
    assert len(graph.dense) == 1


def test_children_of_an_iterative_ticket_have_its_mask():
    made = {"quantiles": (), "rounds": 3, "share": 0.2, "rewind": synthetic.points(0, 2)}
    graph = graph_of(synthetic.experiment(**made, instability=synthetic.points(2), instability_quantiles=(0.488,)))
    assert graph["child1-q0.488-r3-k2ep-seed0"].mask == graph["ticket-q0.488-r3-k2ep-seed0"].mask
    assert not [one.slug for one in graph if one.kind == "child" and one.mask and one.mask.round != 3]
