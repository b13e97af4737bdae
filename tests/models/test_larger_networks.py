"""VGG and other ResNets: published counts, outputs of keras.applications and by hand, every interpreter alike."""

from __future__ import annotations

import numpy as np
import pytest

from models import Weights, build

COUNTS = {  # trainable parameters as published: PyTorch's model zoo; Liu et al. 2019 for VGG
    ("vgg16_bn", 32, 10): 14_724_042,
    ("resnet18_small", 32, 10): 11_173_962,
    ("resnet18", 224, 1000): 11_689_512,
    ("resnet50", 224, 1000): 25_557_032,
    ("resnet50_keras", 224, 1000): 25_557_032,
}
NARROW = ["vgg11_bn", "vgg11", "resnet20_renda", "resnet18_small", "resnet18", "resnet50"]


@pytest.mark.parametrize(("name", "size", "classes"), COUNTS)
def test_parameters_are_as_many_as_published(name, size, classes):
    network = build(name, image_size=size, channels=3, classes=classes)
    assert network.parameters - network.size("statistic") == COUNTS[name, size, classes]


def test_multiply_adds_are_as_many_as_published():
    found = {name: build(name, image_size=224, channels=3, classes=1000).macs for name in ("resnet18", "resnet50")}
    assert found == {"resnet18": 1_814_073_344, "resnet50": 4_089_184_256}


def test_resnet20_of_renda_et_al_has_as_many_prunable_weights_as_in_their_code():
    assert build("resnet20_renda", image_size=32, channels=3, classes=10).prunable == 271_152


def narrow(name: str, seed: int = 0) -> tuple:
    network = build(name, image_size=32, channels=3, classes=4, width=0.25)
    weights, random = network.initial(seed), np.random.default_rng(seed)
    others, statistics = (part + random.uniform(0, 0.1, part.shape).astype(np.float32) for part in weights[1:])
    moved = Weights(weights.kernels, others, statistics)
    return network, moved, random.normal(size=(3, 32, 32, 3)).astype(np.float32)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", NARROW)
def test_all_interpreters_compute_the_same(name):
    from models.keras_model import keras_model

    network, weights, images = narrow(name)
    plain = network.apply(weights, images, False)[0].numpy()
    shaped = network.apply(weights, images, False, shaped=True)[0].numpy()
    theirs = keras_model(network, weights, probabilities=False).predict(images, verbose=0)
    assert np.abs(shaped - plain).max() < 1e-4 * np.abs(plain).max()
    assert np.abs(theirs - plain).max() < 1e-4 * np.abs(plain).max()


@pytest.mark.tensorflow
def test_resnet20_of_renda_et_al_projects_in_every_stage_and_pads_alike_on_all_sides():
    network, weights, images = narrow("resnet20_renda")
    named = network.named(weights)

    def layer(x: np.ndarray, convolution: str, norm: str, stride: int = 1) -> np.ndarray:
        kernel, side = named[f"{convolution}/kernel"], len(named[f"{convolution}/kernel"]) // 2
        x = np.pad(x, ((0, 0), (side, side), (side, side), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))[:, ::stride, ::stride]
        x = np.einsum("nhwcij,ijco->nhwo", windows, kernel)
        parts = ("gamma", "beta", "moving_mean", "moving_variance")
        gamma, beta, mean, variance = (named[f"{norm}/{part}"] for part in parts)
        return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta

    x = np.maximum(layer(images, "stem", "stem_norm"), 0)
    for stage, block in np.ndindex(3, 3):
        name, stride = f"stage{stage + 1}_block{block + 1}", 2 if stage and not block else 1
        y = np.maximum(layer(x, f"{name}_conv1", f"{name}_norm1", stride), 0)
        x = x if block else layer(x, f"{name}_shortcut", f"{name}_shortcut_norm", stride)
        x = np.maximum(x + layer(y, f"{name}_conv2", f"{name}_norm2"), 0)
    by_hand = x.mean((1, 2)) @ named["classifier/kernel"] + named["classifier/bias"]
    ours = network.apply(weights, images, False)[0].numpy()
    assert np.abs(ours - by_hand).max() < 1e-4 * np.abs(by_hand).max()


@pytest.mark.tensorflow
def test_resnet50_is_that_of_keras_applications():
    import keras

    model = keras.applications.ResNet50(input_shape=(64, 64, 3), classes=7, weights=None, classifier_activation=None)
    random = np.random.default_rng(0)
    for variable in model.weights:  # biases and batch norm's numbers away from 0 and 1
        if len(variable.shape) == 1:
            variable.assign(variable.numpy() + random.uniform(0, 0.2, variable.shape))
    network = build("resnet50_keras", image_size=64, channels=3, classes=7)
    named = {variable.path: variable.numpy() for variable in model.weights}
    for path in [path for path in named if path.endswith("_conv/bias")]:  # a bias before batch norm: in its mean
        named[path.replace("_conv/bias", "_bn/moving_mean")] -= named.pop(path)
    images = random.normal(size=(2, 64, 64, 3)).astype(np.float32)
    ours = network.apply(network.flat(named), images, False)[0].numpy()
    theirs = model.predict(images, verbose=0)
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()


@pytest.mark.tensorflow
def test_a_network_without_batch_norm_and_with_biases_has_gradients_and_flow():
    import tensorflow as tf

    network, weights, images = narrow("vgg11")
    assert not network.of("statistic") and network.variables[1].name == "stage1_conv1/bias"
    kernels, others = tf.Variable(weights.kernels), tf.Variable(weights.others)
    with tf.GradientTape() as tape:
        logits, _ = network.apply(Weights(kernels, others, weights.statistics), images, True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2], logits))
    gradients = tape.gradient(loss, [kernels, others])
    assert all(np.isfinite(one).all() and np.abs(one).max() > 0 for one in gradients)
    assert network.flow(tf.constant(np.abs(weights.kernels), tf.float64)) > 0
