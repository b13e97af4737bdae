"""The bench: what it counts, and that every kind of it runs."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from types import SimpleNamespace

import pytest
from PIL import Image

from models import build
from models.network import outline
from tests.commands import lottery, on_a_terminal

pytestmark = pytest.mark.tensorflow


def layers(net, x):
    """A narrow stem, a widening convolution, a depthwise and a projecting one."""
    x = net.convolution("stem", x, 4, 3)
    x = net.convolution("expand", x, 24, 1)
    x = net.depthwise("depthwise", x, 3, 2)
    return net.dense("classifier", net.pool(net.convolution("project", x, 8, 1)), 5)


def test_the_least_traffic_counted_by_hand():
    from sweep.bench.roofline import operations, traffic

    net = outline("by hand", layers, image_size=8, channels=3, classes=5)
    stem, expand, depthwise, project, classifier = 8 * 8 * 4, 8 * 8 * 24, 4 * 4 * 24, 4 * 4 * 8, 5
    numbers = 10 * (stem + depthwise + project + classifier) + 6 * expand  # batch norm of expand costs no pass over it
    assert traffic(net, 3, "bfloat16") == 2 * 3 * numbers + 8 * 4 * net.parameters
    assert traffic(net, 3, "float32") - traffic(net, 3, "bfloat16") == 2 * 3 * numbers
    assert operations(net, 3) == 6 * 3 * net.macs


def test_blur_pool_passes_its_output_four_times():
    from sweep.bench.roofline import traffic

    plain, net = (build("resnet20", image_size=32, channels=3, classes=10, blur=blur) for blur in (False, True))
    added = sum(math.prod(layer.output) for layer in net.layers if layer.kind == "blur")
    assert traffic(net, 1, "float32") - traffic(plain, 1, "float32") == 4 * 4 * added > 0


def test_a_network_without_widening_convolutions_passes_every_output_ten_times():
    from sweep.bench.roofline import traffic

    net = build("resnet20", image_size=32, channels=3, classes=10)
    outputs = sum(math.prod(layer.output) for layer in net.layers)
    assert traffic(net, 1, "float32") == 40 * outputs + 32 * net.parameters


def test_the_rate_of_a_device_leaves_the_host_out(monkeypatch):
    from sweep.bench import roofline

    clock = iter([0.0, 9.0, 10.0, 11.0, 20.0, 21.5, 30.0, 31.0])  # the first round warms up
    monkeypatch.setattr(roofline, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert roofline._seconds(lambda: [1.0], calls=4) == 0.25


def bench(*words: str) -> list[dict]:
    return list(json.loads(lottery("bench", *words, "--rounds", 2, "--steps", 2, "--json").stdout))


def test_a_step_is_timed_for_every_combination():
    rows = bench("step", "--model", "resnet8", "--width", "0.25", "--size", "8", "--batch", "8", "16", "--mask")
    assert [(row["batch"], row["variant"]) for row in rows] == [
        (8, "masked"), (8, "unmasked"), (16, "masked"), (16, "unmasked"),
    ]  # fmt: skip
    for row in rows:
        assert row["images_per_second"] == pytest.approx(row["batch"] / row["step_ms"] * 1e3)
        assert row["first_seconds"] > row["step_ms"] / 1e3 and 0 < row["roofline"] < 1


def test_a_step_is_timed_beside_itself_with_other_fields():
    said = lottery("bench", "step", "--model", "resnet8", "--width", "0.5", "--size", "8", "--batch", "8", "--mask",
                   "--vary", "model.blur=true", "recipe.norm_images=4", "--rounds", 2, "--steps", 2).stdout  # fmt: skip
    found = re.findall(
        r"resnet8, 8 px, float32, batch 8: (\S.*\S) costs [+-]\d+\.\d\d % of a step \(half of the rounds: [+-]", said
    )
    assert found == ["the mask", "model.blur=true", "recipe.norm_images=4"]


@pytest.mark.parametrize("field", ["seeds=[3]", "recipe.stages=[4px/32,8px@1ep]"])
def test_what_changes_no_step_is_not_compared(field):
    done = lottery("bench", "step", *SMALL, "--vary", field, check=2)
    assert f"--vary {field}: expected a field of model, data or recipe that changes a step" in done.stderr


def test_scaling_goes_from_one_device_to_all():
    rows = bench("scaling", "--model", "resnet8", "--width", "0.25", "--size", "8", "--batch", "8", "--devices", "2",
                 "--link", "1", "100")  # fmt: skip
    *rows, slow, fast = rows
    assert slow["all_reduce_ms"]["2"] == pytest.approx(8 * rows[0]["all_reduce_bytes"] / 1e6)  # 1 Gb/s, in ms
    assert fast["all_reduce_ms"]["20"] == pytest.approx(1.9 / 100 * slow["all_reduce_ms"]["2"])
    assert [(row["devices"], row["batch"]) for row in rows] == [(1, 8), (2, 16)]
    one, two = rows
    assert one["efficiency"] == 1 and one["all_reduce_ms"] == 0
    assert two["all_reduce_ms"] > 0 and two["data_wait_share"] == 0
    assert two["efficiency"] == pytest.approx(two["images_per_second"] / (2 * one["images_per_second"]))


SMALL = ("--model", "resnet8", "--width", "0.25", "--size", "8", "--batch", "8", "--rounds", "1", "--steps", "1")


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (("step", *SMALL), "steps"),
        (("scaling", *SMALL), "scaling"),
        (("input", "pictures", "--size", "8", "--batch", "4", "--seconds", "0.1"), "reading"),
    ],
)
def test_every_bench_shows_how_far_it_is(words, label, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for split, name in product(("train", "val"), ("cats", "dogs")):
        folder = tmp_path / "pictures" / split / name
        folder.mkdir(parents=True)
        for i in range(20):
            Image.new("RGB", (16, 16), (i, i, i)).save(folder / f"{i}.png")
    on_a_terminal(monkeypatch)
    said = lottery("bench", *words).stdout
    assert label in said and "left" in said


STAGES = "recipe.stages=[4px/32, 8px@1ep]"  # an epoch has 2 steps in the first stage, 4 in the second


def test_trainings_at_a_time_are_measured_in_their_last_stage(tiny_file, tmp_path):
    words = ("--per-gpu", 1, "--seconds", 0.1, "--results", tmp_path, "--json")
    (found,) = json.loads(lottery("bench", "packing", tiny_file, STAGES, *words).stdout)
    assert found["epoch_images"] == 64 and found["images_per_second"] > 0


def test_no_more_steps_are_profiled_than_the_first_stage_has(tiny_file, tmp_path):
    words = ("--steps", 3, "--to", tmp_path, "--results", tmp_path, "--json")
    kernels = json.loads(lottery("profile", tiny_file, STAGES, *words).stdout)["kernels"]
    assert any("Conv2D" in kernel["name"] and kernel["calls"] >= 1 for kernel in kernels)
    lottery("profile", tiny_file, "recipe.batch=5000", "--to", tmp_path / "none", check=2)
    assert not (tmp_path / "none").exists()
