"""The report: what a sweep found, from its files alone, finished or not."""

from __future__ import annotations

import csv
import io
import math
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from sweep import files as store
from sweep.experiment.file import dump
from sweep.graph.home import Home
from sweep.graph.results import Row, collect, write_csv
from sweep.report import write_report
from sweep.report.bundle import bundle
from sweep.report.curves import averaged, curves, lines_of
from sweep.report.figures import write_figures
from sweep.report.heat_map import heat_map
from sweep.report.rewinding import gains
from sweep.report.verdict import verdicts
from sweep.report.words import later
from tests import made_up

DONE = {"density": 0.5, "kept": 50, "prunable": 100, "threshold": 0.0125}
COLUMNS = [
    "training", "kind", "seed", "rewind", "quantile", "threshold", "density", "kept", "prunable", "epochs",
    "test_top1", "test_top5", "test_loss", "validation_top1", "state", "method", "round", "mask",
    "instability", "reason",
]  # fmt: skip
ALWAYS = ["report.html", "results.csv", "results.tex"]


@pytest.fixture
def home(tmp_path):
    """Two quantiles at two rewind epochs, and a control; nothing done yet."""
    return Home(tmp_path / "small", made_up.experiment(controls=("shuffled",), control_rewind=made_up.points(2)))


@pytest.fixture
def unfinished(home):
    """The dense run and two tickets are done, one has failed, one has begun, the rest waits."""
    made_up.finish(home, "dense-seed0", 0.75)
    made_up.finish(home, "ticket-q0.5-k0-seed0", 0.7, **DONE)
    made_up.finish(home, "ticket-q0.5-k2ep-seed0", 0.8, **DONE, epochs=2)
    made_up.fail(home, "ticket-q0.9-k0-seed0", "loss is nan in epoch 2, step 3 of 9")
    made_up.epochs(home.folder_of("ticket-q0.9-k2ep-seed0"), 1)
    (home.folder_of("ticket-q0.9-k2ep-seed0") / "checkpoint.h5").touch()
    return home


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def row(kind: str = "ticket", top1: float = 0.5, **changes) -> Row:
    settings = {"seed": 0, "rewind": "0", "quantile": 0.5, "density": 0.5, "state": "done"} | changes
    return Row("", kind, test_top1=top1, **settings)


# ---- rows


def test_there_is_a_row_for_every_training_finished_or_not(unfinished):
    assert [(r.kind, r.quantile, r.rewind, r.state) for r in collect(unfinished)] == [
        ("dense", None, "0", "done"),
        ("ticket", 0.5, "0", "done"),
        ("ticket", 0.9, "0", "failed"),
        ("ticket", 0.5, "2ep", "done"),
        ("ticket", 0.9, "2ep", "begun"),
        ("shuffled", 0.5, "2ep", "waiting"),
        ("shuffled", 0.9, "2ep", "waiting"),
    ]


def test_a_finished_ticket_has_all_its_numbers(unfinished):
    (found,) = [r for r in collect(unfinished) if (r.quantile, r.rewind) == (0.5, "2ep") and r.kind == "ticket"]
    name = unfinished.training("ticket-q0.5-k2ep-seed0").name
    assert found == Row(
        name, "ticket", 0, "2ep", 0.5, 0.0125, 0.5, 50, 100, 2, 0.8, 0.99, 0.25, validation_top1=0.8 - 0.01,
        state="done", method="magnitude", round=1, mask=unfinished.training(name).mask.name,
    )  # fmt: skip


def test_an_unfinished_training_has_no_numbers_yet(unfinished):
    for found in collect(unfinished):
        if found.state != "done":
            assert {found.threshold, found.density, found.kept, found.epochs, found.test_top1} == {None}


def test_the_dense_network_has_density_1_and_no_quantile(unfinished):
    dense = collect(unfinished)[0]
    assert (dense.density, dense.quantile, dense.threshold, dense.test_top1) == (1.0, None, None, 0.75)


def test_without_validation_images_there_is_no_validation_accuracy(home):
    made_up.finish(home, "dense-seed0", 0.75, validation={})
    assert collect(home)[0].validation_top1 is None


def test_an_absolute_threshold_is_told_before_its_cell_is_done(tmp_path):
    home = Home(tmp_path / "small", made_up.experiment(quantiles=(), thresholds=(0.02,), rewind=made_up.points(0)))
    waiting = collect(home)[1]
    assert (waiting.quantile, waiting.threshold, waiting.density) == (None, 0.02, None)
    made_up.finish(home, "ticket-t0.02-k0-seed0", 0.5, **DONE | {"threshold": 0.02})
    assert (collect(home)[1].threshold, collect(home)[1].density) == (0.02, 0.5)


def test_every_seed_has_rows_of_its_own(tmp_path):
    home = Home(tmp_path / "small", made_up.experiment(seeds=(0, 4)))
    made_up.finish(home, "dense-seed4", 0.6)
    assert [(r.kind, r.seed, r.state) for r in collect(home)[:2]] == [("dense", 0, "waiting"), ("dense", 4, "done")]
    assert [r.seed for r in collect(home)].count(4) == 1 + 4


# ---- results.csv


def test_the_columns_are_pinned_and_none_is_a_time(unfinished, tmp_path):
    write_csv(collect(unfinished), tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_text().splitlines()[0].split(",") == COLUMNS


def test_numbers_are_written_with_every_digit_and_what_is_missing_is_empty(tmp_path):
    write_csv([row(top1=0.1 + 0.2, kept=7), Row("ticket", 0, 2, 0.9)], tmp_path / "results.csv")
    done, waiting = rows_of(tmp_path / "results.csv")
    assert (done["test_top1"], done["kept"], done["quantile"]) == ("0.30000000000000004", "7", "0.5")
    assert (waiting["test_top1"], waiting["kept"], waiting["state"]) == ("", "", "waiting")


@pytest.mark.slow
def test_a_second_report_is_the_same_to_the_byte(unfinished):
    def contents() -> dict[str, bytes]:
        # SVG aside: its gradients are numbered on through the whole process
        return {path.name: path.read_bytes() for path in write_report(unfinished) if path.suffix != ".svg"}

    assert contents() == contents()


def test_how_long_and_on_what_it_ran_does_not_change_the_table(unfinished):
    table = unfinished.report / "results.csv"
    write_csv(collect(unfinished), table)
    before = table.read_bytes()
    made_up.finish(unfinished, "ticket-q0.5-k0-seed0", 0.7, **DONE, seconds=99.0, hardware="GPU", devices=4)
    write_csv(collect(unfinished), table)
    assert table.read_bytes() == before
    made_up.finish(unfinished, "ticket-q0.5-k0-seed0", 0.71, **DONE)
    write_csv(collect(unfinished), table)
    assert table.read_bytes() != before


# ---- figures


def png_size(path: Path) -> tuple[int, int]:
    start = path.read_bytes()[:24]
    assert start[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", start[16:24])


def svg_words(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text") if element.text]


@pytest.mark.slow
def test_the_report_of_an_unfinished_sweep_shows_what_is_there(unfinished):
    names = [path.name for path in write_report(unfinished)]
    figures = ("accuracy", "heatmap", "differences", "rewinds", "gains")
    assert names == [*ALWAYS, *(f"{name}.{suffix}" for name in figures for suffix in ("png", "svg"))]
    assert made_up.files_under(unfinished.report) == sorted(names)
    assert len(rows_of(unfinished.report / "results.csv")) == 7


@pytest.mark.slow
def test_the_figures_are_pictures_that_can_be_printed(unfinished):
    write_report(unfinished)
    width, height = png_size(unfinished.report / "accuracy.png")
    assert width > 1000 and height > 600
    width, height = png_size(unfinished.report / "heatmap.png")
    assert width > 300 and height > 100


@pytest.mark.slow
def test_the_figures_say_what_they_show(unfinished):
    write_report(unfinished)
    accuracy, heat = (svg_words(unfinished.report / f"{name}.svg") for name in ("accuracy", "heatmap"))
    for words in ("small", "dense", "ticket, rewound to 0", "ticket, rewound to 2ep"):
        assert words in accuracy
    assert not any("shuffled" in words for words in accuracy)  # none is done
    for words in ("small", "dense network: 75.00 %", "70.00", "80.00", "50 %"):
        assert words in heat


@pytest.mark.slow
def test_with_nothing_done_yet_the_report_has_no_figures(home):
    assert [path.name for path in write_report(home)] == ALWAYS
    assert {r["state"] for r in rows_of(home.report / "results.csv")} == {"waiting"}


@pytest.mark.slow
def test_with_only_the_dense_run_done_the_report_has_no_figures(home):
    made_up.finish(home, "dense-seed0", 0.75)
    assert [path.name for path in write_report(home)] == ALWAYS


def test_with_only_a_control_done_there_is_no_heat_map_of_tickets(home):
    made_up.finish(home, "shuffled-q0.5-k2ep-seed0", 0.4, **DONE)
    assert [path.name for path in write_figures(home, collect(home), home.report)] == ["accuracy.png", "accuracy.svg"]


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
    with_dense, without = (curves(averaged([row()], {}), dense, "title").to_dict() for dense in ([0.7, 0.8], []))
    assert (len(with_dense["layer"]), len(without["layer"])) == (3, 1)
    (value,) = with_dense["layer"][1]["data"]["values"]
    assert value["accuracy"] == pytest.approx(75.0)


def test_a_control_far_below_does_not_press_the_tickets_together():
    """The axis begins where the tickets can be told apart, and the figure says what lies below it."""
    tickets = [row(top1=0.92), row(top1=0.82, density=0.02, quantile=0.98)]
    near = curves(averaged([*tickets, row("fresh", 0.75)], {}), [], "title").to_dict()
    assert near["title"] == "title" and "domainMin" not in near["layer"][0]["encoding"]["y"]["scale"]
    low = [row("random", top1, density=left, quantile=1 - left) for top1, left in ((0.1, 0.02), (0.6, 0.1))]
    far = curves(averaged([*tickets, *low], {}), [0.93], "title").to_dict()
    assert far["layer"][0]["encoding"]["y"]["scale"]["domainMin"] == 72.0 and far["layer"][0]["mark"]["clip"]
    assert far["title"]["subtitle"] == ["below the frame: random mask, from 0: 10.0 to 60.0 % with 2 to 10 % left"]
    lower = curves(averaged([*tickets, *low], {}), [0.7], "title").to_dict()  # the dense network stays in sight
    assert lower["layer"][0]["encoding"]["y"]["scale"]["domainMin"] == 48.0


def test_the_heat_map_orders_its_rows_from_dense_to_sparse():
    rows = [row(quantile=q, density=1 - q, rewind=k) for k in ("0", "2ep") for q in (0.9, 0.5, 0.99)]
    chart = heat_map(rows, {}, "title").to_dict()
    assert chart["layer"][0]["encoding"]["y"]["sort"] == ["50 %", "10 %", "1 %"]


def test_one_shot_and_rounds_on_the_same_dense_runs_are_in_one_figure(tmp_path):
    points = made_up.points(0)
    once = Home(tmp_path / "once", made_up.experiment(name="once", quantiles=(0.75,), rewind=points))
    in_two = made_up.experiment(name="rounds", quantiles=(), rounds=2, share=0.5, rewind=points)
    rounds = Home(tmp_path / "rounds", in_two)
    other = Home(tmp_path / "other", made_up.experiment(name="other", quantiles=(0.6,), rewind=points, seeds=(7,)))
    for home in (once, rounds, other):
        store.write_text(home.root / "experiment.yaml", dump(home.experiment))
        for training in home.graph:
            kept = round(100 * (1 - training.mask.level.value)) if training.mask else 100
            made_up.finish(home, training.slug, 0.7, **DONE | {"density": kept / 100, "kept": kept})
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
    (left,) = {one["left"] for one in heat_map(pattern, {}, "").to_dict()["data"]["values"]}
    assert left == "17.7 %"
    seeds = [row(seed=i, quantile=None, threshold=0.1, density=d) for i, d in enumerate((0.101, 0.103, 0.099))]
    (cell,) = heat_map(seeds, {}, "").to_dict()["data"]["values"]
    assert (cell["left"], cell["seeds"]) == ("10.1 %", 3)
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


def test_a_damaged_result_is_refused_by_name(unfinished):
    path = unfinished.folder_of("ticket-q0.5-k0-seed0") / "result.json"
    path.write_text('{"test": {"top1"')
    assert made_up.refusal(lambda: collect(unfinished)).startswith(f"{path}: not readable as JSON")
    store.write_json(path, {"test": {"top1": 0.5, "top5": 0.9, "loss": 1.0}, "validation": {}})
    assert made_up.refusal(lambda: collect(unfinished)).startswith(f"{path}: devices is not a number")
    made_up.finish(unfinished, "ticket-q0.5-k0-seed0", 0.5)
    assert collect(unfinished)[1].test_top1 == 0.5


@pytest.mark.slow
def test_the_script_of_the_page_is_made_once_and_anew_where_it_was_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = bundle()
    (kept,) = tmp_path.rglob("vega-*.js")
    when = kept.stat().st_mtime_ns
    assert bundle() == first and kept.stat().st_mtime_ns == when and "vegaEmbed" in first
    kept.write_text(kept.read_text()[:-9])
    assert bundle() == first == kept.read_text().partition("\n")[2]
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert bundle() == first, "without a place to keep it"
