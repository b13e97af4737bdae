"""The report: what a sweep found, from its files alone, finished or not."""

from __future__ import annotations

import csv
import io
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from sweep import files as store
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.graph.mask_file import make_mask
from sweep.graph.results import Row, collect, in_csv, results_of
from sweep.pruning.cost import macs_remaining, stored_bytes
from sweep.report import page, write_report
from sweep.report.bundle import bundle
from sweep.report.figures import write_figures
from sweep.report.findings import findings, in_markdown
from sweep.report.kept import kept
from tests import synthetic
from tests.synthetic import refusal
from tests.test_house import ROOT

DONE = {"density": 0.5, "kept": 50, "prunable": 100, "threshold": 0.0125}
COLUMNS = [
    "training", "kind", "seed", "rewind", "quantile", "threshold", "density", "kept", "prunable", "epochs",
    "test_top1", "test_top5", "test_loss", "validation_top1", "state", "method", "round", "mask",
    "instability", "reason", "data", "found_on", "macs", "bytes",
]  # fmt: skip
ALWAYS = ["report.html", "results.csv", "results.tex"]


@pytest.fixture
def home(tmp_path):
    """Two quantiles at two rewind epochs, and a control; nothing done yet."""
    return Home(tmp_path / "small", synthetic.experiment(controls=("shuffled",), control_rewind=synthetic.points(2)))


@pytest.fixture
def unfinished(home):
    """The dense run and two tickets are done, one has failed, one has begun, the rest waits."""
    synthetic.finish(home, "dense-seed0", 0.75)
    synthetic.finish(home, "ticket-q0.5-k0-seed0", 0.7, **DONE)
    synthetic.finish(home, "ticket-q0.5-k2ep-seed0", 0.8, **DONE, epochs=2)
    synthetic.fail(home, "ticket-q0.9-k0-seed0", "loss is nan in epoch 2, step 3 of 9")
    synthetic.epochs(home.folder_of("ticket-q0.9-k2ep-seed0"), 1)
    (home.folder_of("ticket-q0.9-k2ep-seed0") / "checkpoint.h5").touch()
    return home


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


# ---- rows


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"density": 0.7}, "50 of 100 weights kept, a density of 0.7"),
        ({"kept": 101}, "101 of 100 weights kept"),
        ({"prunable": 0}, "prunable is not a number above 0"),
        ({"trainings_per_gpu": 0}, "trainings_per_gpu is not a number above 0"),
        ({"epochs": -3}, "-3 epochs, expected 0 or more"),
    ],
)
def test_numbers_of_a_result_that_cannot_be_are_refused_by_name(unfinished, wrong, why):
    folder = synthetic.finish(unfinished, "ticket-q0.5-k0-seed0", 0.7, **DONE | wrong)
    said = refusal(lambda: collect(unfinished))
    assert said.startswith(f"{folder / 'result.json'}: ") and why in said


@pytest.mark.parametrize("wrong", [[], {"stem": 3, "none": 1}, {"stem": "3"}, {"stem": None}])
def test_counts_of_kernels_that_cannot_be_are_refused_by_name(unfinished, wrong):
    path = unfinished.report / "kept.json"
    for weights, counts in (({"stem": 9}, wrong), ({"stem": 0}, {"stem": 0})):
        store.write_json(path, {"weights": weights, "kept": {"a mask": counts}})
        assert refusal(lambda: kept(unfinished)).startswith(f"{path}: ")


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
        data="digits", found_on="digits",
    )  # fmt: skip


def test_an_unfinished_training_has_no_numbers_yet(unfinished):
    for found in collect(unfinished):
        if found.state != "done":
            assert {found.threshold, found.density, found.kept, found.epochs, found.test_top1} == {None}


def test_the_dense_network_has_density_1_and_no_quantile(unfinished):
    dense = collect(unfinished)[0]
    assert (dense.density, dense.quantile, dense.threshold, dense.test_top1) == (1.0, None, None, 0.75)


def test_without_validation_images_there_is_no_validation_accuracy(home):
    synthetic.finish(home, "dense-seed0", 0.75, validation={})
    assert collect(home)[0].validation_top1 is None


def test_an_absolute_threshold_is_told_before_its_cell_is_done(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(), thresholds=(0.02,), rewind=synthetic.points(0)))
    waiting = collect(home)[1]
    assert (waiting.quantile, waiting.threshold, waiting.density) == (None, 0.02, None)
    synthetic.finish(home, "ticket-t0.02-k0-seed0", 0.5, **DONE | {"threshold": 0.02})
    assert (collect(home)[1].threshold, collect(home)[1].density) == (0.02, 0.5)


def test_a_skipped_ticket_of_a_threshold_has_the_density_of_its_mask(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(quantiles=(), thresholds=(0.2,), rewind=synthetic.points(0)))
    synthetic.finish(home, "dense-seed0", 0.75)
    synthetic.write_snapshot(home, synthetic.network().initial(0), epoch=None)
    ticket = home.training("ticket-t0.2-k0-seed0")
    density = make_mask(home, ticket.mask).density
    assert 0 < density < 1 and collect(home)[1].density is None
    store.write_json(home.folder(ticket) / "skipped.json", {"reason": "conv is fully pruned", "runs": {}})
    assert collect(home)[1].density == density == findings(home).verdicts[0].density
    home.mask(ticket.mask).unlink()
    assert collect(home)[1].density is None


def test_every_seed_has_rows_of_its_own(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(seeds=(0, 4)))
    synthetic.finish(home, "dense-seed4", 0.6)
    assert [(r.kind, r.seed, r.state) for r in collect(home)[:2]] == [("dense", 0, "waiting"), ("dense", 4, "done")]
    assert [r.seed for r in collect(home)].count(4) == 1 + 4


# ---- results.csv


def test_the_columns_are_pinned_and_none_is_a_time(unfinished, tmp_path):
    store.write_text(tmp_path / "results.csv", in_csv(collect(unfinished)))
    assert (tmp_path / "results.csv").read_text().splitlines()[0].split(",") == COLUMNS


@pytest.mark.parametrize("recorded", sorted(ROOT.glob("results/reference/*/*/report/results.csv")), ids=str)
def test_what_earlier_versions_recorded_comes_out_the_same_to_the_byte_with_columns_added(recorded, tmp_path):
    root = recorded.parents[1]
    store.write_text(
        tmp_path / "results.csv", in_csv(collect(Home(root, experiment_file.load(root / "experiment.yaml"))))
    )
    before, now = (path.read_text().splitlines() for path in (recorded, tmp_path / "results.csv"))
    assert len(before) == len(now) and all(new.startswith(old) for old, new in zip(before, now, strict=True))


def test_a_finished_ticket_says_what_it_costs_where_its_mask_is_there(home):
    synthetic.finish(home, "dense-seed0", 0.75)
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    found = make_mask(home, home.training("ticket-q0.5-k0-seed0").mask)
    for task in ("ticket-q0.5-k0-seed0", "ticket-q0.9-k0-seed0", "shuffled-q0.5-k2ep-seed0"):
        synthetic.finish(home, task, 0.7)
    rows = {(row.kind, row.quantile): (row.macs, row.bytes) for row in collect(home) if row.measured}
    cost = (macs_remaining(found.mask, found.network), stored_bytes(found.mask, found.network))
    assert rows == {
        ("dense", None): (1.0, 4 * found.network.parameters), ("ticket", 0.5): cost, ("shuffled", 0.5): cost,
        ("ticket", 0.9): (None, None),
    }  # fmt: skip
    assert {row.macs for row in collect(home, costs=False)} == {None}


def test_numbers_are_written_with_every_digit_and_what_is_missing_is_empty(tmp_path):
    measured = Row("", "ticket", 0, "0", 0.5, kept=7, test_top1=0.1 + 0.2)
    store.write_text(tmp_path / "results.csv", in_csv([measured, Row("ticket", 0, 2, 0.9)]))
    done, waiting = rows_of(tmp_path / "results.csv")
    assert (done["test_top1"], done["kept"], done["quantile"]) == ("0.30000000000000004", "7", "0.5")
    assert (waiting["test_top1"], waiting["kept"], waiting["state"]) == ("", "", "waiting")


@pytest.mark.slow
def test_a_second_report_is_the_same_to_the_byte(unfinished):
    def contents() -> dict[str, bytes]:
        # SVG aside: its gradients are numbered on through the whole process
        return {path.name: path.read_bytes() for path in write_report(unfinished) if path.suffix != ".svg"}

    assert contents() == contents()


def test_a_dense_network_near_chance_is_warned_of(unfinished):
    assert not findings(unfinished).near_chance, "the number of classes is not known"
    synthetic.write_snapshot(unfinished, synthetic.network().initial(0), None)
    assert not findings(unfinished).near_chance
    synthetic.finish(unfinished, "dense-seed0", 0.18)
    found = findings(unfinished)
    assert (
        found.near_chance.startswith("The dense network is near chance: 18.00 %") and found.near_chance in found.doubts
    )


def test_chance_is_the_share_of_the_largest_class_where_test_images_were_evaluated(unfinished):
    synthetic.write_snapshot(unfinished, synthetic.network().initial(0), None)
    synthetic.finish(unfinished, "dense-seed0", 0.62)
    assert not findings(unfinished).near_chance, "a tenth of the images each, as far as is known"
    counts = [60, 5, 5, 5, 5, 4, 4, 4, 4, 4]
    store.write_json(
        unfinished.folder_of("dense-seed0") / "evaluation.json",
        {"per_class": {str(i): 1.0 for i in range(10)}, "confusion": [[n, *[0] * 9] for n in counts]},
    )
    assert findings(unfinished).near_chance.endswith(
        " 62.00 % on test images, 60.00 % by always answering the largest of 10 classes. Train it first."
    )


@pytest.mark.parametrize(
    ("source", "path", "said"),
    [
        ("shards", "/data/imagenet/shards", "on imagenet,"),
        ("shards", "shards", "on own images,"),
        ("folder", "../folder/", "on own images,"),
        ("folder", "/data/pets", "on pets,"),
        ("folder", "", "on own images,"),
        ("cifar10", "/data/cifar10", "on CIFAR-10,"),
    ],
)
def test_the_question_names_the_images_and_not_how_they_are_stored(home, source, path, said):
    data = replace(home.experiment.data, name=source, path=path)
    assert said in page._question(Home(home.root, replace(home.experiment, data=data)))


@pytest.mark.parametrize(
    ("one", "said"),
    [
        ({"hardware": "NVIDIA H200", "gpu_seconds": 360.0}, {"GPU-hours (NVIDIA H200)": "0.1"}),
        ({"hardware": "8 cores x86_64", "seconds": 3600.0, "cores": 4}, {"core-hours (8 cores x86_64)": "4"}),
        ({"hardware": "8 cores x86_64", "seconds": 3600.0}, {"hours (8 cores x86_64)": "1"}),
    ],
)
def test_cost_is_told_in_gpu_hours_or_core_hours(home, one, said):
    synthetic.finish(home, "dense-seed0", 0.75, **one)
    assert page._cost(results_of(home)) == [{"trainings": kind, "number": "1"} | said for kind in ("dense", "all")]


def test_all_lines_of_the_cost_have_one_unit(home):
    """The dense run is of a version that did not record the number of cores; the first line gives the headings."""
    synthetic.finish(home, "dense-seed0", 0.75, hardware="8 cores x86_64", seconds=3600.0)
    synthetic.finish(home, "ticket-q0.5-k0-seed0", 0.7, **DONE, hardware="8 cores x86_64", seconds=3600.0, cores=4)
    hours = {line["trainings"]: line["hours (8 cores x86_64)"] for line in page._cost(results_of(home))}
    assert hours == {"dense": "1", "ticket": "1", "all": "2"}


def test_how_long_and_on_what_it_ran_does_not_change_the_table(unfinished):
    table = unfinished.report / "results.csv"
    store.write_text(table, in_csv(collect(unfinished)))
    before = table.read_bytes()
    synthetic.finish(unfinished, "ticket-q0.5-k0-seed0", 0.7, **DONE, seconds=99.0, hardware="GPU", devices=4)
    store.write_text(table, in_csv(collect(unfinished)))
    assert table.read_bytes() == before
    synthetic.finish(unfinished, "ticket-q0.5-k0-seed0", 0.71, **DONE)
    store.write_text(table, in_csv(collect(unfinished)))
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
    assert synthetic.files_under(unfinished.report) == sorted(names)
    assert len(rows_of(unfinished.report / "results.csv")) == 7


@pytest.mark.slow
def test_what_readers_must_know_stands_under_the_answer(unfinished):
    note = "Provisional: seed 3 <took>\n the place of seed 0."
    noted = Home(unfinished.root, replace(unfinished.experiment, note=note))
    page = write_report(noted)[0].read_text()
    before, _, after = page.partition("Provisional: seed 3 &lt;took&gt; the place of seed 0.</p>")
    assert 'class="answer' in before and "<h2>" not in before and after
    assert in_markdown(findings(noted)).split("\n\n")[1] == "Provisional: seed 3 <took> the place of seed 0."


@pytest.mark.parametrize(("path", "said"), [("", "small data.path=PATH\n"), ("/images", "small\n")])
def test_the_command_on_the_page_asks_for_the_images_where_it_does_not_know_them(unfinished, path, said):
    data = replace(unfinished.experiment.data, name="cifar10", path=path)
    home = Home(unfinished.root, replace(unfinished.experiment, data=data))
    page = write_report(home)[0].read_text()
    assert f"lottery sweep {unfinished.root.parent}/{said}" in page


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
    synthetic.finish(home, "dense-seed0", 0.75)
    assert [path.name for path in write_report(home)] == ALWAYS


def test_with_only_a_control_done_there_is_no_heat_map_of_tickets(home):
    synthetic.finish(home, "shuffled-q0.5-k2ep-seed0", 0.4, **DONE)
    assert [path.name for path in write_figures(home, collect(home), home.report)] == ["accuracy.png", "accuracy.svg"]


def test_epochs_that_are_lost_are_not_passed_over(unfinished):
    synthetic.epochs(unfinished.folder_of("dense-seed0"), 3)
    assert "metrics.jsonl: 3 of 4 epochs; bring it back from a copy" in refusal(lambda: write_report(unfinished))


def test_a_damaged_result_is_refused_by_name(unfinished):
    path = unfinished.folder_of("ticket-q0.5-k0-seed0") / "result.json"
    path.write_text('{"test": {"top1"')
    assert synthetic.refusal(lambda: collect(unfinished)).startswith(f"{path}: not readable as JSON")
    store.write_json(path, {"test": {"top1": 0.5, "top5": 0.9, "loss": 1.0}, "validation": {}})
    assert synthetic.refusal(lambda: collect(unfinished)).startswith(f"{path}: devices is not a number")
    synthetic.finish(unfinished, "ticket-q0.5-k0-seed0", 0.5)
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
