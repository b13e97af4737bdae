"""What stands beside a sweep's figures: published ones, other masks, chance."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.graph.mask_file import make_mask
from sweep.graph.results import Row
from sweep.report import write_report
from sweep.report.charts import layers
from sweep.report.kept import kept, write_kept
from sweep.report.overlaps import groups, made, pairs
from sweep.report.published import beside, differences, published, source
from sweep.work.find import SHIPPED
from tests import synthetic


def resnet20(**recipe):
    study = experiment_file.load(SHIPPED / "study_resnet20.yaml")
    return dataclasses.replace(study, recipe=dataclasses.replace(study.recipe, **recipe))


def row(kind: str, rewind: str, top1: float, seed: int = 0, **changes) -> Row:
    known = {"density": 0.2097, "method": "magnitude", "round": 1, "test_top1": top1}
    return Row("t", kind, seed, rewind, **(known | changes))


def test_each_kind_stands_beside_its_published_figure():
    """Renda et al. 2020, ResNet-20, 20.97 % kept: medians 91.21, 90.66 and 88.49, ranges of about 0.4 points."""
    rows = [row("ticket", "12ep", top1, seed) for seed, top1 in enumerate((0.90, 0.911, 0.92))]
    rows += [row("lr_rewind", "52ep", 0.9), row("fresh", "0", 0.89)]
    found = beside(resnet20(), rows)
    said = [(one.kind, one.place, round(100 * one.deviation, 2), len(one.ours)) for one in found]
    assert said == [
        ("ticket", "inside", -0.11, 3),
        ("lr_rewind", "0.58 below", -0.66, 1),
        ("fresh", "0.29 above", 0.51, 1),
    ]


@pytest.mark.parametrize(
    "other",
    [row("ticket", "12ep", 0.9, method="lamp"), row("ticket", "13ep", 0.9), row("shuffled", "12ep", 0.9),
     row("ticket", "12ep", 0.9, density=0.3)],
)  # fmt: skip
def test_what_was_not_published_stands_beside_nothing(other):
    assert beside(resnet20(), [other]) == []


def test_with_blur_pool_the_network_is_not_the_published_one():
    shipped = resnet20()
    theirs = dataclasses.replace(shipped, model=dataclasses.replace(shipped.model, blur=True))
    assert published(shipped) and not published(theirs)


def in_rounds(**prune):
    shipped = experiment_file.load(SHIPPED / "cifar10_resnet20_iterative.yaml")
    return dataclasses.replace(shipped, prune=dataclasses.replace(shipped.prune, **prune))


def test_rounds_stand_beside_the_figures_of_rounds():
    """Renda et al. 2020, iterative, 20.97 % kept: weights from 12ep 91.68 (91.56 to 91.99), one-shot 91.21."""
    (one,) = beside(in_rounds(), [row("ticket", "12ep", 0.918, round=7)])
    assert one.place == "inside" and round(one.published.median, 5) == 0.91675
    assert {curve.rewind for curve in published(in_rounds())} == {"12ep"}
    assert "iterative" in source(in_rounds()) and "one-shot" in source(resnet20())


def test_other_rounds_are_not_compared():
    by_hand = in_rounds(share=0.0, rounds=2, quantiles=(0.2, 0.36))
    assert differences(by_hand) == []  # the same ones, written out
    other = in_rounds(share=0.0, rounds=2, quantiles=(0.5, 0.79))
    assert differences(other) == ["rounds to 0.5, 0.79 instead of 20 % a round"]
    assert beside(other, [row("ticket", "12ep", 0.9)]) == []


def test_only_the_published_rewind_epochs_are_drawn():
    """2, 10, 30 and 60 epochs were not published; 0 was."""
    shipped = experiment_file.load(SHIPPED / "cifar10_resnet20.yaml")
    assert differences(shipped) == []
    assert {one.rewind for one in published(shipped)} == {"0"}


@pytest.mark.parametrize("other", [{"epochs": 200}, {"mixup": 0.2}, {"ema": 0.99}, {"optimizer": "adamw"}])
def test_under_another_recipe_nothing_is_compared(other):
    assert beside(resnet20(**other), [row("ticket", "12ep", 0.9)]) == []
    (name,) = other
    assert [said.split()[0] for said in differences(resnet20(**other))] == [name]


def test_on_fewer_images_nothing_is_compared():
    study = resnet20()
    fewer = dataclasses.replace(study, data=dataclasses.replace(study.data, validation=5000, flip=False))
    assert differences(fewer) == ["flip False instead of True", "validation 5000 instead of 0"]
    assert beside(fewer, [row("ticket", "12ep", 0.9)]) == []


def test_the_published_moving_average_of_batch_norm_is_no_difference_and_not_named_as_one():
    theirs = resnet20(norm_momentum=0.997)
    assert differences(theirs) == [] and published(theirs) == published(resnet20())
    assert "0.997" in source(resnet20()) and "0.997" not in source(theirs)
    assert [said.split()[0] for said in differences(resnet20(norm_momentum=0.99))] == ["norm_momentum"]


def test_with_all_that_their_code_does_the_published_curves_are_beside_ours_and_no_difference_is_said():
    theirs = experiment_file.load(SHIPPED / "renda_resnet20.yaml")
    assert differences(theirs) == [] and published(theirs) == published(resnet20()) != []
    assert source(theirs).endswith("three trials") and "their code standardises each image" in source(resnet20())
    momentum = dataclasses.replace(theirs, recipe=dataclasses.replace(theirs.recipe, rewind_momentum=False))
    assert source(momentum).endswith("; their code rewinds momentum too")


@pytest.fixture
def two_seeds(tmp_path) -> Home:
    """Dense runs of two seeds whose kernels share their first half, and the masks of both."""
    home = Home(tmp_path / "small", synthetic.experiment(seeds=(0, 1), quantiles=(0.5,), rewind=synthetic.points(0)))
    weights = synthetic.network().initial(0)
    sizes = np.abs(np.random.default_rng(0).normal(size=weights.kernels.size)).astype(np.float32)
    for seed, kernels in enumerate((sizes, np.concatenate([sizes[: sizes.size // 2], sizes[sizes.size // 2 :][::-1]]))):
        synthetic.write_snapshot(home, weights._replace(kernels=kernels), None, seed)
        synthetic.finish(home, f"dense-seed{seed}", 0.97, test_images=359, date="2026-01-02", commit="abc1234")
    for mask in made(home):
        make_mask(home, mask)
    return home


def test_masks_of_seeds_share_what_they_share_and_what_chance_would_is_said(two_seeds):
    (group,) = groups(pairs(two_seeds, made(two_seeds)))
    # one half is the same, of the other half the half that chance gives
    assert (group.differ, group.pairs, round(group.density, 3)) == ("seed", 1, 0.5)
    assert group.shared == pytest.approx(0.75, abs=0.02) and group.chance == pytest.approx(0.5, abs=1e-3)


@pytest.mark.slow
def test_the_page_tells_chance_and_circumstances(two_seeds):
    write_report(two_seeds)
    page = re.sub(r"<script.*?</script>", "", (two_seeds.report / "report.html").read_text(), flags=re.DOTALL)
    assert "One of the 359 test images is 0.28 percentage points" in page
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page.partition('<h2 id="masks">What masks share</h2>')[2])
    assert cells[:3] == ["seed", "50.00%", "1"]
    assert "Trained 2026-01-02 on" in page and "commit abc1234" in page


def drawn(home: Home) -> dict[tuple[str, str], str]:
    return {(one["level"], one["kernel"]): one["of"] for one in layers(home).to_dict()["data"]["values"]}


def test_what_is_left_of_every_kernel_travels_without_the_masks(two_seeds):
    before = drawn(two_seeds)
    assert before and {level for level, _ in before} == {"q0.5"}
    for _ in range(2):  # the second time from what was written the first
        write_kept(kept(two_seeds), two_seeds.report)
        for mask in made(two_seeds):
            two_seeds.mask(mask).unlink(missing_ok=True)
        assert drawn(two_seeds) == before
    other = dataclasses.replace(two_seeds.experiment.recipe, weight_decay=0.1)
    other = dataclasses.replace(two_seeds.experiment, recipe=other)
    assert layers(Home(two_seeds.root, other)) is None  # the counts are of other masks
    (two_seeds.report / "kept.json").write_text("[]")
    assert "no JSON object" in synthetic.refusal(lambda: layers(two_seeds))
