"""Weights of a point on disk: bit for bit, and of this network alone."""

from __future__ import annotations

import numpy as np
import pytest

from models import Weights, build
from sweep import files
from sweep.experiment import point
from sweep.graph.home import Home
from sweep.graph.mask_file import Found
from sweep.graph.snapshot_file import adopted_weights, attributes_of, read_memory, read_weights
from tests import synthetic
from tests.synthetic import refusal


def hard_weights() -> Weights:
    """Initial weights with the values that careless writing changes."""
    weights = synthetic.network().initial(3)
    weights.kernels[:5] = [0.0, -0.0, 1e-45, -3.4e38, np.nan]
    return weights


def test_a_snapshot_comes_back_bit_for_bit(tmp_path):
    weights, path = hard_weights(), tmp_path / "epoch-0002.h5"
    files.write_snapshot(path, synthetic.network(), weights, {"epoch": 2})
    again = files.read_snapshot(path, synthetic.network())
    assert [part.dtype for part in again] == [np.float32] * 3
    assert [part.tobytes() for part in again] == [part.tobytes() for part in weights]


def test_momentum_beside_weights_comes_back_and_is_no_part_of_them(tmp_path):
    path, network, memory = tmp_path / "step-7.h5", synthetic.network(), {"slot0_others": np.float32([1, -2])}
    files.write_snapshot(path, network, hard_weights(), {}, memory)
    assert {name: vector.tolist() for name, vector in read_memory(path).items()} == {"slot0_others": [1, -2]}
    for weights in (files.read_snapshot(path, network), adopted_weights(path, network, seed=5)):
        assert [part.tobytes() for part in weights] == [part.tobytes() for part in hard_weights()]
    files.write_snapshot(path, network, hard_weights(), {})
    assert "no momentum in it" in refusal(lambda: read_memory(path))


def test_a_snapshot_names_its_variables_and_its_network(tmp_path):
    path, network = tmp_path / "epoch-0002.h5", synthetic.network()
    files.write_snapshot(path, network, network.initial(0), {"epoch": 2})
    arrays, attributes = files.read_arrays(path)
    assert {name: array.shape for name, array in arrays.items()} == {v.name: v.shape for v in network.variables}
    assert attributes == {"network": "mobilenet_v2_small", "epoch": 2}


@pytest.mark.parametrize("blur", [False, True])
def test_a_snapshot_says_whether_its_network_has_blur_pool(tmp_path, blur):
    path, network = tmp_path / "final.h5", build("resnet8", image_size=8, channels=1, classes=3, width=0.5, blur=blur)
    files.write_snapshot(path, network, network.initial(0), attributes_of(network, 0.5))
    again, _, attributes = read_weights(path)
    assert again.layers == network.layers and ("blur" in attributes) == blur


@pytest.mark.parametrize(
    "other",
    [
        {"name": "resnet20", "classes": 10, "width": 0.35},
        {"name": "mobilenet_v2_small", "classes": 9, "width": 0.35},
        {"name": "mobilenet_v2_small", "classes": 10, "width": 1.0},
    ],
    ids=["another architecture", "another number of classes", "another width"],
)
def test_a_snapshot_of_another_network_is_refused(tmp_path, other):
    path, network = tmp_path / "final.h5", synthetic.network()
    files.write_snapshot(path, network, network.initial(0), {})
    said = refusal(lambda: files.read_snapshot(path, build(**other, image_size=8, channels=1)))
    assert said.startswith(f"{path}: {other['name']}: ")
    assert said.endswith("; the file belongs to another network")


CLASSIFIER = ("predictions/kernel", "predictions/bias")


def test_laid_on_a_network_with_other_classes_all_but_the_classifier_is_taken(tmp_path):
    path, network = tmp_path / "final.h5", synthetic.network()
    files.write_snapshot(path, network, hard_weights(), {})
    other = build("mobilenet_v2_small", image_size=8, channels=1, classes=7, width=0.35)
    old, new = network.named(hard_weights()), other.named(other.initial(5))
    laid = other.named(adopted_weights(path, other, seed=5))
    for name, array in laid.items():
        assert array.tobytes() == (new if name in CLASSIFIER else old)[name].tobytes(), name
    same = adopted_weights(path, network, seed=5)
    assert [part.tobytes() for part in same] == [part.tobytes() for part in hard_weights()], "nothing differs"


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("mobilenet_v2_small", 1.0, "Conv1/kernel has shape (3, 3, 1, 16), expected (3, 3, 1, 32)"),
        ("resnet8", 0.35, "Conv1/kernel has shape (3, 3, 1, 16), expected none"),
    ],
)
def test_only_the_number_of_classes_may_differ(tmp_path, name, width, expected):
    path, network = tmp_path / "final.h5", synthetic.network()
    files.write_snapshot(path, network, network.initial(0), {})
    other = build(name, image_size=8, channels=1, classes=7, width=width)
    said = refusal(lambda: adopted_weights(path, other, seed=0))
    assert said == f"{path}: {name}: {expected}; the file belongs to another network"
    mask = Found(network, np.ones(network.prunable, bool), None)
    assert refusal(lambda: mask.on(other)) == f"{name}: {expected}; the mask belongs to another network"


def test_every_snapshot_of_every_seed_has_a_place_of_its_own(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(seeds=(0, 1)))
    words = ("end", "0", "1ep", "10ep", "7it", "100000it")
    for seed in (0, 1):
        synthetic.finish(home, f"dense-seed{seed}", 0.5)
    places = [home.snapshot(dense, point(word)) for dense in home.graph.dense for word in words]
    assert len(set(places)) == len(places)
    assert home.snapshot(home.graph.dense[0], point(f"{2 * synthetic.STEPS}it")) == home.snapshot(
        home.graph.dense[0], point("2ep")
    )
