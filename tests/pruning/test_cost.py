"""What a ticket costs: counted with numpy, weight by weight, beside what the outline says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from models import build
from sweep.graph.home import Home
from sweep.graph.mask_file import make_mask
from sweep.graph.plan import graph_of
from sweep.pruning import masks
from sweep.pruning.cost import macs_remaining, multiply_adds, stored_bytes
from sweep.pruning.masks import Level
from sweep.pruning.scores import Seen
from tests import synthetic
from tests.conftest import connected_mask


@pytest.fixture(scope="module")
def network():
    return build("mobilenet_v2_small", image_size=16, channels=3, classes=10, width=0.35)


def counted(mask: np.ndarray, network) -> int:
    """Multiply-adds, layer by layer: for every output pixel, the kept weights that are multiplied there."""
    total = 0
    for layer, kept in zip(network.layers, network.split("kernel", mask).values(), strict=True):
        pixels = layer.output[0] * layer.output[1]  # of a dense layer 1 × 1
        total += sum(int(kept[..., channel].sum()) * pixels for channel in range(kept.shape[-1]))
    return total


def test_multiply_adds_are_kept_weights_times_output_pixels_groups_counted(network):
    whole = np.ones(network.prunable, bool)
    assert counted(whole, network) == network.macs == multiply_adds(network).sum()
    assert any(layer.kind == "depthwise" for layer in network.layers)
    mask = connected_mask(network)
    assert macs_remaining(mask, network) == counted(mask, network) / network.macs
    assert macs_remaining(whole, network) == 1.0


def test_multiply_adds_of_blur_pool_stay_whatever_is_pruned(network):
    net = build("mobilenet_v2_small", image_size=16, channels=3, classes=10, width=0.35, blur=True)
    fixed = net.macs - network.macs
    assert fixed > 0 and (multiply_adds(net) == multiply_adds(network)).all()
    mask = connected_mask(net)
    assert macs_remaining(mask, net) == pytest.approx((counted(mask, network) + fixed) / net.macs)
    assert macs_remaining(np.ones(net.prunable, bool), net) == 1.0


def test_bytes_are_those_of_kept_values_a_bit_for_every_weight_and_the_unpruned_rest(network):
    mask, weights = connected_mask(network), network.initial(0)
    stored = [weights.kernels[mask], np.packbits(mask), weights.others, weights.statistics]
    assert stored_bytes(mask, network) == sum(array.nbytes for array in stored)
    assert stored_bytes(None, network) == sum(array.nbytes for array in weights)


@pytest.mark.parametrize("allocation", ["global", "uniform", "erk"])
@pytest.mark.parametrize("score", ["magnitude", "random"])
def test_a_budget_of_multiply_adds_is_met_to_one_weight(network, score, allocation):
    seen = Seen(network.initial(0).kernels, masks.kernel_sizes(network), None, np.random.default_rng(0))
    costs, found = multiply_adds(network), []
    for quantile in (0.5, 0.8, 0.95):
        level = Level("quantile", quantile, "macs")
        pruned = masks.prune(dataclasses.replace(seen, stream=np.random.default_rng(0)), masks.kernel_shapes(network),
                             level, score, allocation, costs=costs)  # fmt: skip
        pixels = [layer.output[0] * layer.output[1] for layer in network.layers]
        off = sum(pixels) / 2 if allocation == "uniform" else max(pixels) / 2  # half a weight; uniform: of every kernel
        assert abs(network.macs - counted(pruned.mask, network) - quantile * network.macs) <= off
        found.append(pruned.mask)
    assert (found[0] | ~found[1]).all() and (found[1] | ~found[2]).all(), "sparser masks lie inside denser ones"
    by_weights = masks.prune(seen, masks.kernel_shapes(network), Level("quantile", 0.95), "magnitude", allocation).mask
    assert allocation == "uniform" or abs(macs_remaining(by_weights, network) - 0.05) > 0.01


def test_a_mask_on_disk_meets_its_budget(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(budget="macs"))
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    made, read = (make_mask(home, home.training("ticket-q0.9macs-k0-seed0").mask) for _ in range(2))
    assert (made.mask == read.mask).all() and abs(macs_remaining(made.mask, made.network) - 0.1) < 0.001
    assert abs(made.density - 0.1) > 0.01


def test_a_budget_of_weights_changes_no_name_and_one_of_multiply_adds_does():
    names = {
        budget: [one.name for one in graph_of(synthetic.experiment(**({"budget": budget} if budget else {})))]
        for budget in ("", "weights", "macs")
    }
    assert names[""] == names["weights"]
    assert [a == b for a, b in zip(names["weights"], names["macs"], strict=True)] == [True] + 4 * [False]
    assert names["macs"][1].startswith("ticket-q0.5macs-k0-seed0-")
