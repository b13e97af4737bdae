"""The points of the figures: means, bars, what is left out, and what stands beside them."""

from __future__ import annotations

import math

import pytest

from sweep import files as store
from sweep.experiment import Recipe
from sweep.experiment.file import record
from sweep.graph.home import Home
from sweep.graph.results import Row, collect
from sweep.report.curves import averaged, curves, lines_of
from sweep.report.heat_map import heat_map
from sweep.report.rewinding import accuracy, gains
from sweep.report.verdict import verdicts
from sweep.report.words import later
from tests import synthetic

DONE = {"density": 0.5, "kept": 50, "prunable": 100, "threshold": 0.0125}


def row(kind: str = "ticket", top1: float = 0.5, **changes) -> Row:
    settings = {"seed": 0, "rewind": "0", "quantile": 0.5, "density": 0.5, "state": "done"} | changes
    return Row("", kind, test_top1=top1, **settings)


def test_points_are_the_mean_over_seeds():
    rows = [row(top1=0.5, seed=0), row(top1=0.7, seed=1), row(top1=0.9, seed=0, quantile=0.9, density=0.1)]
    first, second = averaged(rows, {})
    assert (first["seeds"], first["remaining"]) == (2, 50.0)
    assert first["accuracy"] == pytest.approx(60.0)
    assert (second["seeds"], second["remaining"], second["accuracy"]) == (1, 10.0, 90.0)


def test_bars_are_those_of_the_difference_from_the_dense_run_by_the_verdicts_rule():
    """Seeds whose dense runs differ by 20 points, tickets a point below them: the bars do not hold these 20 points."""
    dense = {0: 0.7, 1: 0.9}
    rows = [row("dense", top1, seed=seed, quantile=None, density=1.0) for seed, top1 in dense.items()]
    tickets = [
        row(top1=dense[seed] - 0.01 + shift, seed=seed, quantile=q, density=1 - q, rewind=k)
        for q in (0.5, 0.9) for k in ("0", "2ep") for seed, shift in ((0, 0.002 * q), (1, -0.002 * q))
    ]  # fmt: skip
    found = verdicts([*rows, *tickets])
    assert len(found) == 4
    for point, one in zip(averaged(tickets, dense), found, strict=True):
        assert point["high"] - point["low"] == pytest.approx(200 * one.difference.half) and one.difference.half < 0.01
        assert point["accuracy"] == pytest.approx(79.0)
    assert "low" not in averaged(tickets, {0: 0.7})[0]  # one pair has no spread


def test_what_failed_in_a_seed_has_no_bar_and_widens_no_other():
    """As in the verdicts: of one ticket a seed failed, and another of its seeds is far off."""
    dense = {0: 0.9, 1: 0.9, 2: 0.9}
    rows = [row("dense", top1, seed=seed, quantile=None, density=1.0) for seed, top1 in dense.items()]
    tickets = [row(top1=0.9 + 0.001 * seed, seed=seed, rewind=k) for seed in dense for k in ("0", "5ep")]
    tickets += [row(top1=0.2, seed=0, rewind="2ep"), row(top1=0.9, seed=1, rewind="2ep"),
                row(top1=None, seed=2, rewind="2ep", state="failed")]  # fmt: skip
    halves = {one.rewind: one.difference.half for one in verdicts([*rows, *tickets])}
    points = {one["rewind"]: one for one in averaged(tickets, dense)}
    assert halves["2ep"] is None and "low" not in points["2ep"] and points["2ep"]["seeds"] == 2
    for k in ("0", "5ep"):
        assert points[k]["high"] - points[k]["low"] == pytest.approx(200 * halves[k]) and halves[k] < 0.01
    drawn = {point["rewind"]: point for point in gains(tickets).to_dict()["layer"][-1]["data"]["values"]}
    assert "low" not in drawn["2ep"] and drawn["5ep"]["high"] - drawn["5ep"]["low"] < 2.0


def test_a_point_that_lacks_seeds_is_placed_by_its_difference_from_their_dense_runs():
    dense = {0: 0.7, 1: 0.9}
    one, both, alone = (
        averaged([row(top1=top1, seed=seed) for seed, top1 in found.items()], dense)[0]["accuracy"]
        for found in ({1: 0.88}, {0: 0.6, 1: 0.88}, {2: 0.5})
    )
    assert one == pytest.approx(78.0) and both == pytest.approx(74.0)  # two points under its own, not above all
    assert alone == pytest.approx(50.0)  # no dense run of its seed is known


def test_points_of_different_kind_level_or_rewind_epoch_are_not_mixed():
    rows = [
        row(),
        row(rewind="2ep"),
        row("shuffled"),
        row(quantile=0.9),
        row(quantile=None, threshold=0.5),  # a threshold that is as large as a quantile
        row(quantile=None, threshold=0.9),
    ]
    assert [point["seeds"] for point in averaged(rows, {})] == [1] * 6


def test_thresholds_of_a_quantile_differ_between_seeds_and_are_one_point_all_the_same():
    assert len(averaged([row(seed=0, threshold=0.011), row(seed=1, threshold=0.012)], {})) == 1


def test_controls_are_dashed_and_tickets_are_not():
    points = averaged([row(), row("fresh"), row("lr_rewind", rewind="2ep")], {})
    assert {p["line"]: p["control"] for p in points} == {
        "ticket, rewound to 0": False,
        "control: fresh initialization": True,
        "learning-rate rewinding to 2ep": False,
    }


def test_the_curves_have_the_dense_network_across_when_it_is_known():
    points = averaged([row(), row(seed=1)], {})
    with_dense, without = (curves(points, dense, "title").to_dict() for dense in ([0.7, 0.8], []))
    assert (len(with_dense["layer"]), len(without["layer"])) == (4, 2)
    (value,) = with_dense["layer"][2]["data"]["values"]
    assert value["accuracy"] == pytest.approx(75.0)


def test_a_control_far_below_does_not_press_the_tickets_together():
    """The axis begins where the tickets can be told apart, and the figure says what lies below it."""
    tickets = [row(top1=0.92), row(top1=0.82, density=0.02, quantile=0.98)]
    near = curves(averaged([*tickets, row("fresh", 0.75)], {}), [], "title").to_dict()
    assert near["title"] == "title" and "domainMin" not in near["layer"][0]["encoding"]["y"]["scale"]
    low = [row("random", top1, density=left, quantile=1 - left) for top1, left in ((0.1, 0.02), (0.6, 0.1))]
    far = curves(averaged([*tickets, *low], {}), [0.93], "title").to_dict()
    assert far["layer"][0]["encoding"]["y"]["scale"]["domainMin"] == 72.0 and far["layer"][0]["mark"]["clip"]
    assert far["title"]["subtitle"] == [
        "off scale (▼): random mask, from 0: 10.0 to 60.0 % at 2 to 10 % of weights remaining"
    ]
    (marks,) = [layer for layer in far["layer"] if layer["mark"].get("shape") == "triangle-down"]
    assert [(one["accuracy"], one["measured"]) for one in marks["data"]["values"]] == [(72.0, 10.0), (72.0, 60.0)]
    lower = curves(averaged([*tickets, *low], {}), [0.7], "title").to_dict()  # the dense network stays in sight
    assert lower["layer"][0]["encoding"]["y"]["scale"]["domainMin"] == 48.0


def test_markers_on_an_edge_of_the_figure_are_whole():
    """At 10 % and 100 % the axis ends; what lies below the frame is left out by its data, not cut off."""
    dense = dict.fromkeys(range(3), 0.95)
    tickets = [row(seed=i, density=left, quantile=1 - left, top1=0.9 + i / 1000) for i in (0, 1) for left in (1.0, 0.1)]
    low = [row("random", 0.1, density=0.1, quantile=0.9), row("random", 0.85, density=1.0, quantile=0.0)]
    for rows, bottom in ((tickets, None), ([*tickets, *low], 85.0)):
        layers = curves(averaged(rows, dense), [*dense.values()], "").to_dict()["layer"]
        found = {kind: [one for one in layers if one["mark"]["type"] == kind] for kind in ("point", "circle", "rule")}
        assert all(found.values()) and not any("clip" in one["mark"] for of in found.values() for one in of)
        assert not any(one["mark"].get("point") for one in layers)  # which would take the clip of its line
        inside = [one for one in (*found["point"], *found["circle"]) if one["mark"].get("shape") != "triangle-down"]
        for one in inside if bottom else ():
            assert one["transform"][0] == {"filter": f"datum.accuracy >= {bottom}"}


def test_a_point_that_lacks_seeds_is_white_inside():
    whole = [row(seed=i, top1=0.9 + i / 1000) for i in range(3)]
    dense = dict.fromkeys(range(3), 0.9)
    chart = curves(averaged([*whole, row(top1=0.8, quantile=0.9, density=0.1)], dense), [], "title").to_dict()
    (hollow,) = [one for one in chart["layer"] if one["mark"]["type"] == "circle"]
    assert hollow["transform"] == [{"filter": "datum.seeds < 3"}] and hollow["encoding"]["color"] == {"value": "white"}
    assert chart["title"]["subtitle"] == ["white inside: fewer than 3 seeds"]
    assert all(one["mark"]["type"] != "circle" for one in curves(averaged(whole, dense), [], "").to_dict()["layer"])
    below = averaged([*whole, row("random", top1=0.1, quantile=0.9, density=0.1)], dense)  # none of it is to be seen
    assert [text.split(":")[0] for text in curves(below, [], "").to_dict()["title"]["subtitle"]] == ["off scale (▼)"]
    two = [row(seed=i, rewind=k) for i in range(2) for k in ("0", "2ep")]  # nowhere are all seeds of the dense network
    for chart in (curves(averaged(two, dense), [0.9] * 3, ""), accuracy(two, dense)):
        assert chart.to_dict()["title"]["subtitle"] == ["white inside: fewer than 3 seeds"]


def test_the_heat_map_orders_its_rows_from_dense_to_sparse():
    rows = [row(quantile=q, density=1 - q, rewind=k) for k in ("0", "2ep") for q in (0.9, 0.5, 0.99)]
    chart = heat_map(rows, {}, "title").to_dict()
    assert chart["layer"][0]["encoding"]["y"]["sort"] == ["50 %", "10 %", "1 %"]


def test_levels_that_are_equal_to_three_digits_have_names_of_their_own():
    rows = [row(quantile=1 - d, density=d, rewind=k) for d in (0.5, 0.10049, 0.1002) for k in ("0", "2ep")]
    names = ["50 %", "10.05 %", "10.02 %"]
    for chart in (heat_map(rows, {}, ""), accuracy(rows, {}), gains(rows)):
        values = chart.to_dict()["layer"][-1].get("data", chart.to_dict().get("data"))["values"]
        assert list(dict.fromkeys(one["level"] for one in values)) == names


def test_one_shot_and_rounds_on_the_same_dense_runs_are_in_one_figure(tmp_path):
    points = synthetic.points(0)
    once = Home(tmp_path / "once", synthetic.experiment(name="once", quantiles=(0.75,), rewind=points))
    in_two = synthetic.experiment(name="rounds", quantiles=(), rounds=2, share=0.5, rewind=points)
    rounds = Home(tmp_path / "rounds", in_two)
    other = Home(tmp_path / "other", synthetic.experiment(name="other", quantiles=(0.6,), rewind=points, seeds=(7,)))
    for home in (once, rounds, other):
        store.write_text(home.root / "experiment.yaml", record(home.experiment))
        for training in home.graph:
            kept = round(100 * (1 - training.mask.level.value)) if training.mask else 100
            synthetic.finish(home, training.slug, 0.7, **DONE | {"density": kept / 100, "kept": kept})
    lines = {
        one["line"]: one["seeds"] for one in lines_of(rounds, [r for r in collect(rounds) if r.kind == "ticket"], {})
    }
    assert lines == {"ticket, rewound to 0, in rounds": 1, "ticket, rewound to 0, one-shot": 1}
    assert {one["line"] for one in lines_of(once, [r for r in collect(once) if r.kind == "ticket"], {})} == set(lines)
    next(rounds.pool.glob("trainings/ticket-q0.75-k0-*/result.json")).write_text("{")
    assert {one["line"] for one in lines_of(rounds, [r for r in collect(rounds) if r.kind == "ticket"], {})} == {
        "ticket, rewound to 0"
    }  # damage there is no reason to show nothing here
    alone = lines_of(other, [r for r in collect(other) if r.kind == "ticket"], {})
    assert {one["line"] for one in alone} == {"ticket, rewound to 0"}  # of other dense runs


def test_what_has_no_result_is_grey_in_the_heat_map_and_says_why():
    there = [row(rewind=k) for k in ("0", "2ep")]
    lost = [row(rewind="5ep", density=None, top1=None, state="waiting"), row(rewind="10ep", top1=math.nan)]
    chart = heat_map([*there, *lost], {}, "title").to_dict()
    found = {one["rewind"]: one.get("state", one.get("accuracy")) for one in chart["data"]["values"]}
    assert found == {"0": 50.0, "2ep": 50.0, "5ep": "waiting", "10ep": "failed"}
    assert chart["layer"][0]["encoding"]["x"]["sort"] == ["0", "2ep", "5ep", "10ep"]


def test_a_level_is_one_row_of_the_heat_map_whatever_its_density_came_out_as():
    """N:M keeps what it keeps, and thresholds keep more or less from seed to seed."""
    pattern = [
        row(quantile=0.875, density=0.177),
        row(quantile=0.875, density=None, top1=None, rewind="2ep", state="waiting"),
    ]
    (left,) = {one["level"] for one in heat_map(pattern, {}, "").to_dict()["data"]["values"]}
    assert left == "17.7 %"
    seeds = [row(seed=i, quantile=None, threshold=0.1, density=d) for i, d in enumerate((0.101, 0.103, 0.099))]
    (cell,) = heat_map(seeds, {}, "").to_dict()["data"]["values"]
    assert (cell["level"], cell["seeds"]) == ("10.1 %", 3)
    gained = [
        *seeds,
        *(row(seed=i, quantile=None, threshold=0.1, density=0.1, rewind="2ep", top1=0.6) for i in range(3)),
    ]
    (point,) = gains(gained).to_dict()["layer"][-1]["data"]["values"]
    assert point["seeds"] == 3 and later(gained).endswith("[+9.88, +10.12] over 3 seeds.")  # no spread is no proof


def test_differences_are_from_the_dense_run_of_the_same_seed():
    rows = [row(seed=0, top1=0.5), row(seed=1, top1=0.7)]
    (cell,) = heat_map(rows, {0: 0.51, 1: 0.72, 2: 0.99}, "", difference=True).to_dict()["data"]["values"]
    assert cell["accuracy"] == pytest.approx(-1.5)


def test_a_cell_of_the_heat_map_that_lacks_seeds_says_how_many_it_has():
    rows = [*(row(seed=i, top1=0.5) for i in range(3)), row(seed=0, top1=0.5, rewind="2ep")]
    chart = heat_map(rows, dict.fromkeys(range(3), 0.6), "", difference=True).to_dict()
    assert [one["label"] for one in chart["data"]["values"]] == ["−10.00", "−10.00 (1)"]
    assert chart["title"]["subtitle"].endswith("; in brackets: how many seeds, where fewer")
    whole = heat_map(rows[:3], {}, "").to_dict()
    assert whole["data"]["values"][0]["label"] == "50.00" and "brackets" not in str(whole["title"])


def test_a_sweep_in_which_nothing_is_right_has_a_heat_map_too():
    (cell,) = heat_map([row(top1=0.0)], {}, "").to_dict()["data"]["values"]
    assert cell["accuracy"] == 0.0


def test_what_a_later_rewind_point_gains_is_paired_by_seed():
    """Seeds that differ by 20 points, and a gain of one and of three: the mean is 2, whatever the seeds are."""
    rows = [row(seed=0, top1=0.5), row(seed=0, rewind="2ep", top1=0.51), row(seed=1, top1=0.7),
            row(seed=1, rewind="2ep", top1=0.73), row(seed=2, rewind="2ep", top1=0.9)]  # fmt: skip
    (point,) = gains(rows).to_dict()["layer"][-1]["data"]["values"]
    assert (point["rewind"], point["seeds"]) == ("2ep", 2) and point["gain"] == pytest.approx(2.0)
    assert point["low"] == pytest.approx(2 - 12.7062, abs=1e-3)
    assert gains([row(), row(quantile=0.9, density=0.1)]) is None and gains([]) is None


def test_rewind_points_in_steps_and_in_epochs_are_in_the_order_of_training():
    """With 390 steps in an epoch, 500it comes after 1ep."""
    rows = [row(rewind=k, top1=0.5) for k in ("500it", "10ep", "1ep")]
    steps = Recipe(epochs=30)
    drawn = gains(rows, step=lambda at: at.step(steps, 390)).to_dict()
    assert drawn["layer"][-1]["encoding"]["y"]["title"].endswith("from 1ep")
    assert drawn["layer"][-1]["encoding"]["x"]["sort"] == ["500it", "10ep"]


def test_a_finished_ticket_without_a_dense_run_is_not_called_failed():
    chart = heat_map([row(seed=1), row(seed=0, rewind="2ep")], {0: 0.6}, "", difference=True).to_dict()
    assert [one.get("state") for one in chart["data"]["values"]] == [None, "no dense run"]
