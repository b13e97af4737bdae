"""The networks: their size, their cost, their arithmetic, and their weights as flat vectors."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from models import NETWORKS, Weights, build
from models.mobilenet_v2 import divisible
from models.network import ROLES, outline


def network(name: str = "mobilenet_v2_small", **changes):
    return build(name, **({"image_size": 32, "channels": 3, "classes": 10, "width": 0.35} | changes))


def mobilenet(image_size: int = 224, classes: int = 1000, width: float = 1.0):
    return build("mobilenet_v2", image_size=image_size, channels=3, classes=classes, width=width)


def outputs(net) -> dict[str, tuple[int, ...]]:
    return {layer.name: layer.output for layer in net.layers}


# ---- counts, known without TensorFlow


def test_mobilenet_v2_has_3538984_parameters():
    assert mobilenet().parameters == 3_538_984


def test_3469760_weights_of_mobilenet_v2_in_53_kernels_are_prunable():
    net = mobilenet()
    assert (net.prunable, len(net.of("kernel"))) == (3_469_760, 53)


@pytest.mark.parametrize(("asked", "given"), [(3, 8), (8, 8), (9.5, 16), (11.2, 16), (12, 16), (33.6, 32), (56, 56)])
def test_channels_are_rounded_to_eights_and_never_lose_more_than_a_tenth(asked, given):
    assert divisible(asked) == given


def test_describing_a_network_does_not_import_tensorflow():
    code = (
        "import sys, models; models.build('mobilenet_v2', image_size=224, channels=3, classes=1000).initial(0);"
        "sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def resnet_numbers(blocks: int, classes: int) -> tuple[int, int]:
    """(prunable, all) of a CIFAR ResNet, from the paper: three stages of `blocks` pairs of 3×3 convolutions."""
    kernels, norms = 9 * 3 * 16, 16
    for inputs, filters in ((16, 16), (16, 32), (32, 64)):
        kernels += 9 * inputs * filters + (2 * blocks - 1) * 9 * filters * filters
        norms += 2 * blocks * filters
        if inputs != filters:  # the shortcut that changes the shape
            kernels += inputs * filters
            norms += filters
    kernels += 64 * classes
    return kernels, kernels + 4 * norms + classes


@pytest.mark.parametrize(("name", "blocks"), [("resnet20", 3), ("resnet56", 9)])
@pytest.mark.parametrize("classes", [10, 100])
def test_a_resnet_has_as_many_weights_as_the_paper_says(name, blocks, classes):
    net = network(name, classes=classes, width=1.0)
    assert (net.prunable, net.parameters) == resnet_numbers(blocks, classes)


def test_resnet20_multiplies_40_8_million_times_per_image():
    stages = 32 * 32 * 9 * (3 * 16 + 6 * 16 * 16), 16 * 16 * (9 * (16 * 32 + 5 * 32 * 32) + 16 * 32)
    last = 8 * 8 * (9 * (32 * 64 + 5 * 64 * 64) + 32 * 64)
    assert network("resnet20", width=1.0).macs == sum(stages) + last + 64 * 10


@pytest.mark.parametrize("name", NETWORKS)
def test_the_prunable_variables_are_exactly_the_kernels(name):
    net = network(name)
    parts = {role: {v.name.rsplit("/", 1)[1] for v in net.of(role)} for role in ROLES}
    assert parts["kernel"] == {"kernel"}
    assert parts["other"] <= {"gamma", "beta", "bias"} and parts["statistic"] <= {"moving_mean", "moving_variance"}
    assert len(net.of("kernel")) == len(net.layers)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_variable_has_its_own_name(name):
    names = [v.name for v in network(name).variables]
    assert len(set(names)) == len(names)


# ---- resolution


def test_the_small_variant_keeps_32_pixels_through_stem_and_second_stage():
    small, published = (outputs(network(name)) for name in ("mobilenet_v2_small", "mobilenet_v2"))
    sizes = {layer: (small[layer][0], published[layer][0]) for layer in ("Conv1", "block_1_project", "block_2_project")}
    assert sizes == {"Conv1": (32, 16), "block_1_project": (32, 8), "block_2_project": (32, 8)}


def test_the_small_variant_has_the_weights_of_the_published_one():
    assert network("mobilenet_v2_small").variables == network("mobilenet_v2").variables


def test_an_odd_image_is_halved_upwards_as_same_padding_does():
    assert outputs(mobilenet(image_size=97))["Conv1"][:2] == (49, 49)


# ---- cost


def test_a_depthwise_layer_costs_one_filter_per_channel():
    layer = next(layer for layer in mobilenet().layers if layer.name == "block_1_depthwise")
    assert (layer.kernel, layer.output) == ((3, 3, 96, 1), (56, 56, 96))
    assert (layer.macs, layer.parameters) == (56 * 56 * 96 * 9, 96 * 9)


def keras_macs(layer) -> int:
    """Multiply-adds of a Keras layer: what one output number costs, times how many there are."""
    import keras

    made = int(np.prod(layer.output.shape[1:]))
    if isinstance(layer, keras.layers.DepthwiseConv2D):
        return made * int(np.prod(layer.kernel_size))
    if isinstance(layer, keras.layers.Conv2D):
        return made * int(np.prod(layer.kernel_size)) * layer.input.shape[-1]
    return made * layer.input.shape[-1] if isinstance(layer, keras.layers.Dense) else 0


@pytest.mark.tensorflow
def test_mobilenet_v2_costs_what_the_layers_of_keras_cost():
    import keras

    model = keras.applications.MobileNetV2(weights=None)
    expected = {layer.name: keras_macs(layer) for layer in model.layers if keras_macs(layer)}
    assert {layer.name: layer.macs for layer in mobilenet().layers} == expected
    assert mobilenet().macs == sum(expected.values()) == 300_774_272


# ---- arithmetic, against Keras


@cache
def twins(width: float):
    """A Keras MobileNetV2 with every number random, and the network of the same width."""
    import keras

    stream = np.random.default_rng(1)
    model = keras.applications.MobileNetV2(
        input_shape=(96, 96, 3), alpha=width, classes=10, weights=None, classifier_activation=None
    )
    net = mobilenet(96, 10, width)
    kernels = net.named(net.initial(1))  # Keras' own start lets the signal die out on its way through the depth
    for variable in model.weights:
        part = variable.path.rsplit("/", 1)[1]
        if part == "kernel":
            variable.assign(kernels[variable.path])
        elif part in ("gamma", "moving_variance"):  # both positive, and far enough from 1 to matter
            variable.assign(stream.uniform(0.6, 1.6, variable.shape))
        else:
            variable.assign(stream.normal(0.0, 0.3, variable.shape))
    return model, net


def from_keras(net, model):
    return net.flat({v.path: v.numpy() for v in model.weights})


@pytest.mark.tensorflow
@pytest.mark.parametrize("width", [1.0, 0.35])
def test_logits_equal_those_of_keras_within_1e_4(width):
    model, net = twins(width)
    images = np.random.default_rng(2).normal(0.0, 1.0, (3, 96, 96, 3)).astype(np.float32)
    logits, _ = net.apply(from_keras(net, model), images, training=False)
    expected = np.asarray(model(images, training=False))
    assert np.ptp(expected, axis=0).min() > 0.01  # the images do make a difference
    np.testing.assert_allclose(np.asarray(logits), expected, atol=1e-4, rtol=0)


@pytest.mark.tensorflow
def test_weights_of_another_number_of_classes_are_refused_by_name():
    with pytest.raises(ValueError, match=r"predictions/kernel has shape \(1280, 10\), expected \(1280, 7\)"):
        from_keras(mobilenet(96, 7, 0.35), twins(0.35)[0])


@pytest.mark.tensorflow
def test_evaluation_leaves_the_statistics_alone_and_training_advances_all_of_them():
    net = network("resnet20", image_size=8)
    weights = net.initial(0)
    images = np.random.default_rng(3).normal(1.0, 2.0, (4, 8, 8, 3)).astype(np.float32)
    _, kept = net.apply(weights, images, training=False)
    _, advanced = net.apply(weights, images, training=True)
    np.testing.assert_array_equal(kept, weights.statistics)
    assert advanced.shape == weights.statistics.shape
    assert np.all(np.asarray(advanced) != weights.statistics)


@pytest.mark.tensorflow
def test_a_moving_mean_keeps_its_share_and_takes_the_rest_from_the_batch():
    net = network("resnet20", image_size=8)
    weights = net.initial(0)
    images = np.random.default_rng(4).normal(1.0, 2.0, (4, 8, 8, 3)).astype(np.float32)
    means = {}
    for keep in (0.0, 0.75):
        _, statistics = net.apply(weights, images, training=True, norm_momentum=keep)
        means[keep] = net.split("statistic", np.asarray(statistics))["stem_norm/moving_mean"]
    np.testing.assert_allclose(means[0.75], 0.25 * means[0.0], rtol=1e-6)  # it starts from 0


def without_norm(net, x):
    return net.dense("classifier", net.pool(net.relu(net.convolution("stem", x, 4, 3))), 3)


@pytest.mark.tensorflow
@pytest.mark.parametrize("shaped", [False, True])
def test_a_network_without_batch_norm_has_no_statistics_and_trains(shaped):
    import tensorflow as tf

    net = outline("without norm", without_norm, image_size=8, channels=3, classes=3)
    weights = Weights(*map(tf.constant, net.initial(0)))
    assert weights.statistics.shape == (0,) and net.size("statistic") == 0
    with tf.GradientTape() as tape:
        tape.watch(weights.kernels)
        logits, statistics = net.apply(weights, np.ones((2, 8, 8, 3), np.float32), True, shaped=shaped)
    assert logits.shape == (2, 3) and statistics.shape == (0,)
    assert np.count_nonzero(tape.gradient(logits, weights.kernels)) > 0


# ---- weights as vectors


def test_the_same_seed_gives_the_same_initial_weights():
    for first, second in zip(network().initial(5), network().initial(5), strict=True):
        np.testing.assert_array_equal(first, second)


def test_another_seed_gives_other_kernels_and_the_same_constants():
    first, second = network().initial(5), network().initial(6)
    assert np.mean(first.kernels == second.kernels) < 1e-3
    np.testing.assert_array_equal(first.others, second.others)
    np.testing.assert_array_equal(first.statistics, second.statistics)


def test_initial_kernels_have_the_deviation_of_he_and_norms_start_as_identity():
    named = network("resnet20", width=1.0).named(network("resnet20", width=1.0).initial(0))
    kernel = named["stage3_block3_conv2/kernel"]
    assert kernel.std() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    starts = {part: np.unique(named[f"stem_norm/{part}"]).tolist() for part in ("gamma", "beta", "moving_variance")}
    assert starts == {"gamma": [1.0], "beta": [0.0], "moving_variance": [1.0]}


def test_initial_kernels_of_lecun_have_half_the_variance_without_tails_and_a_classifier_close_to_zero():
    net = network("resnet20", width=1.0, initializer="lecun")
    kernels = net.split("kernel", net.initial(0).kernels)
    classifier = kernels.pop("classifier/kernel")
    assert np.abs(classifier).max() > 2.5 * 0.01 and classifier.std() == pytest.approx(0.01, rel=0.1)
    drawn = np.concatenate([kernel.ravel() * math.prod(kernel.shape[:3]) ** 0.5 for kernel in kernels.values()])
    # of a normal distribution cut off at 2, with deviation 1 again: its mean square and fourth power by hand
    inside, density = math.erf(2**0.5), 2 * math.exp(-2) / (2 * math.pi) ** 0.5
    square = 1 - 2 * density / inside
    fourth = 3 * square - 8 * density / inside
    assert np.abs(drawn).max() == pytest.approx(2 / square**0.5, rel=1e-3)
    assert drawn.mean() == pytest.approx(0, abs=0.01) and drawn.var() == pytest.approx(1, rel=0.01)
    assert (drawn**4).mean() == pytest.approx(fourth / square**2, rel=0.01)


def test_a_kernel_draws_the_same_numbers_in_a_network_with_other_layers():
    shallow, deep = (network(name).named(network(name).initial(3)) for name in ("resnet20", "resnet56"))
    np.testing.assert_array_equal(shallow["stage2_block1_conv1/kernel"], deep["stage2_block1_conv1/kernel"])


def test_names_and_vectors_are_two_views_of_the_same_numbers():
    net = network()
    sizes = [net.size(role) for role in ROLES]
    vectors = [np.arange(size, dtype=np.float32) for size in sizes]
    named = net.named(type(net.initial(0))(*vectors))
    assert {name: array.shape for name, array in named.items()} == {v.name: v.shape for v in net.variables}
    for received, expected in zip(net.flat(named), vectors, strict=True):
        np.testing.assert_array_equal(received, expected)
    assert named["Conv1/kernel"].ravel().tolist() == list(range(27 * 16))


def test_a_missing_array_is_named():
    net = network()
    named = net.named(net.initial(0))
    del named["block_3_project/kernel"]
    with pytest.raises(ValueError, match=r"mobilenet_v2_small: no array named 'block_3_project/kernel'"):
        net.flat(named)


def test_an_array_of_the_wrong_shape_is_named_with_the_right_shape():
    net = network()
    named = net.named(net.initial(0)) | {"Conv1/kernel": np.zeros((3, 3, 1, 16))}
    with pytest.raises(ValueError, match=r"Conv1/kernel has shape \(3, 3, 1, 16\), expected \(3, 3, 3, 16\)"):
        net.flat(named)


def test_a_vector_of_the_wrong_length_is_refused():
    net = network()
    with pytest.raises(ValueError, match=rf"kernel vector of \(5,\), expected \({net.prunable},\)"):
        net.split("kernel", np.zeros(5))


def test_an_unknown_network_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"no network named 'resnet21'; there are mobilenet_v2, .*resnet56"):
        network("resnet21")


def test_shapes_that_do_not_fit_cannot_be_added():
    from models.outline import Outline

    with pytest.raises(ValueError, match=r"cannot add \(4, 4, 8\) and \(2, 2, 8\)"):
        Outline().add((4, 4, 8), (2, 2, 8))
