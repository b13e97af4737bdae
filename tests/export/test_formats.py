"""Exported files: read by their own library alone, they compute what the training computes."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest

from models import Network, Weights, build
from models.blur import blurred
from models.network import outline
from sweep.errors import Refused
from sweep.export.formats import FORMATS, export, facts_in, is_exported
from sweep.export.subject import Facts, Subject, Wanted
from sweep.graph.snapshot_file import adopted_weights
from tests.commands import python
from tests.networks import inverted_residuals

pytestmark = pytest.mark.tensorflow

IMAGES = np.random.default_rng(1).integers(0, 256, (12, 16, 16, 3)).astype(np.uint8)
READ = {  # each library's own words, nothing of this project
    ".keras": "import keras; y = keras.saving.load_model(path).predict(x, verbose=0)",
    ".tflite": "from ai_edge_litert.interpreter import Interpreter as I\n"
    "m = I(model_path=path); m.allocate_tensors(); y = []\n"
    "i, o = (one[0]['index'] for one in (m.get_input_details(), m.get_output_details()))\n"
    "for one in x:\n    m.set_tensor(i, one[None]); m.invoke(); y.append(m.get_tensor(o)[0].copy())\n",
    ".onnx": "import onnxruntime as o; s = o.InferenceSession(path); y = s.run(None, {s.get_inputs()[0].name: x})[0]",
    "": "import tensorflow as tf; m = tf.saved_model.load(path); y = m.serve(x).numpy()",
}


@pytest.fixture(scope="module")
def subject() -> Subject:
    """Every kind of block of MobileNetV2 once."""
    blocks = partial(inverted_residuals, classes=5)
    return pruned(outline("inverted_residuals", blocks, image_size=16, channels=3, classes=5))


def pruned(network: Network) -> Subject:
    """20 % of its weights, batch norm's statistics away from their start."""
    weights, random = network.initial(0), np.random.default_rng(0)
    kept = random.random(network.prunable) < 0.2
    others = weights.others + random.normal(0, 0.1, weights.others.shape).astype(np.float32)
    statistics = weights.statistics * random.uniform(0.5, 1.5, weights.statistics.shape).astype(np.float32)
    left = Weights(np.where(kept, weights.kernels / np.sqrt(0.2), 0).astype(np.float32), others, statistics)
    facts = Facts(
        "ticket-1a", "small", network.name, 16, 3, 0.0, ["ant", "bee", "cat", "dog", "emu"], [0.02, 0.02, 0.018],
        [-2.1, -2.0, -1.8], float(kept.mean()), 0.8, 100, "probabilities", True, "lottery-sweep",
    )  # fmt: skip
    return Subject(network, left, facts)


@pytest.mark.parametrize("ending", READ)
def test_a_file_is_read_without_this_project_and_computes_the_same(subject, tmp_path, monkeypatch, ending):
    path = tmp_path / f"ticket{ending}"
    found = export(subject, path, Wanted(), IMAGES)
    assert found.difference < 1e-5 and found.agreement == 1 and found.size > 0
    np.save(tmp_path / "x.npy", IMAGES)
    blocked = "import sys; sys.modules |= dict.fromkeys(('models', 'sweep', 'slurm', 'lottery'))"
    script = f"{blocked}; import numpy as np; path = {str(path)!r}; x = np.load('x.npy')\n{READ[ending]}\n"
    script += "np.save('y.npy', np.asarray(y))"
    monkeypatch.chdir(tmp_path)
    python("-c", script)
    theirs, ours = np.load(tmp_path / "y.npy"), subject.outputs(IMAGES, probabilities=True)
    assert np.allclose(theirs.sum(1), 1, atol=1e-5), "probabilities"
    assert np.abs(theirs - ours).max() < 1e-5 and (theirs.argmax(1) == ours.argmax(1)).all()


def test_arrays_have_the_names_of_the_layers_and_the_zeros_of_the_mask(subject, tmp_path):
    path = tmp_path / "ticket.npz"
    export(subject, path, Wanted(), IMAGES)
    with np.load(path) as arrays:
        assert arrays["stem/kernel"].shape == (3, 3, 3, 8)
        kernels = [arrays[variable.name] for variable in subject.network.of("kernel")]
    left = sum(np.count_nonzero(kernel) for kernel in kernels) / subject.network.prunable
    assert left == subject.facts.weights_remaining


@pytest.mark.parametrize("ending", [".keras", ".tflite", ".npz", ""])
def test_a_file_says_what_it_is(subject, tmp_path, ending):
    path = tmp_path / f"ticket{ending}"
    export(subject, path, Wanted(probabilities=False), IMAGES)
    assert facts_in(path) == asdict(subject.facts) | {"outputs": "logits"}
    if ending:
        assert zipfile.ZipFile(path).read("labels.txt").decode().split() == subject.facts.classes


def test_a_file_without_a_suffix_is_no_export(tmp_path):
    """It may be an experiment file; only a folder with a SavedModel has none."""
    for name, right in (("dry_run", False), ("ticket.yaml", False), ("ticket.keras", True)):
        (tmp_path / name).touch()
        assert is_exported(tmp_path / name) == right


def test_onnx_has_the_facts_among_its_properties(subject, tmp_path):
    onnx = pytest.importorskip("onnx")
    export(subject, tmp_path / "ticket.onnx", Wanted(), IMAGES)
    properties = {one.key: one.value for one in onnx.load(tmp_path / "ticket.onnx").metadata_props}
    assert json.loads(properties["lottery.json"])["classes"] == subject.facts.classes


def test_a_network_with_blur_pool_is_written_with_it(tmp_path):
    from models import mobile

    blocks = partial(blurred, partial(inverted_residuals, classes=5))
    subject = pruned(outline("inverted_residuals", blocks, image_size=16, channels=3, classes=5))
    assert subject.network.blurred and mobile.fits(subject.network)
    for ending in (".keras", ".tflite"):
        assert export(subject, tmp_path / f"x{ending}", Wanted(), IMAGES).difference < 1e-5
    read = adopted_weights(tmp_path / "x.keras", subject.network, seed=1)
    assert all(np.array_equal(one, other) for one, other in zip(read, subject.weights, strict=True))


def test_sparse_and_half_files_are_smaller_and_int8_needs_samples_of_training(tmp_path):
    subject, sizes = pruned(build("mobilenet_v2_small", image_size=16, channels=3, classes=5, width=0.35)), {}
    for name, wanted in {
        "dense": Wanted(sparse=False), "sparse": Wanted(), "half": Wanted("float16"),
        "int8": Wanted("int8", samples=IMAGES),
    }.items():  # fmt: skip
        found = export(subject, tmp_path / f"{name}.tflite", wanted, IMAGES)
        assert found.agreement == 1 or name == "int8"
        sizes[name] = found.size
    assert sizes["half"] < sizes["sparse"] < sizes["dense"] / 2 and sizes["int8"] < sizes["dense"] / 2


def test_without_preprocessing_it_takes_normalised_images(subject, tmp_path):
    for ending in (".keras", ".tflite"):
        assert export(subject, tmp_path / f"x{ending}", Wanted(preprocessing=False), IMAGES).difference < 1e-5


@pytest.mark.parametrize("ending", READ)
def test_files_standardise_each_picture_by_itself_where_the_training_did(subject, tmp_path, ending):
    alone = replace(subject, facts=replace(subject.facts, scale=[], offset=[]))
    flat = np.concatenate([IMAGES, np.full_like(IMAGES[:1], 9)])
    for wanted in (Wanted(), Wanted(preprocessing=False)):
        assert export(alone, tmp_path / f"{wanted.preprocessing}{ending}", wanted, flat).difference < 1e-5
    dark = flat // 4  # standardised, brighter pictures with more contrast are the same
    assert np.abs(alone.outputs(dark, True) - alone.outputs(60 + 2 * dark, True)).max() < 1e-5


def test_a_keras_model_trains_on(subject, tmp_path):
    import keras

    export(subject, tmp_path / "x.keras", Wanted(), IMAGES)
    model = keras.saving.load_model(tmp_path / "x.keras")
    keras.utils.set_random_seed(0)
    model.compile("sgd", "sparse_categorical_crossentropy")
    before = model.get_layer("stem").kernel.numpy().copy()
    model.fit(IMAGES, np.zeros(len(IMAGES)), verbose=0)
    assert not np.array_equal(before, model.get_layer("stem").kernel.numpy())


@pytest.mark.parametrize("size", [32, 33, 8])
@pytest.mark.parametrize(
    ("name", "channels"), [("mobilenet_v2", 3), ("mobilenet_v2_small", 3), ("mobilenet_v2_small", 1)]
)
def test_the_rewritten_network_computes_the_same(name, channels, size):
    from models import mobile

    network = build(name, image_size=size, channels=channels, classes=4, width=0.35)
    images = np.random.default_rng(2).normal(size=(3, size, size, channels)).astype(np.float32)
    weights = network.initial(3)
    ours, _ = network.apply(weights, images, False)
    assert np.abs(mobile.apply(network, weights, images) - ours).max() < 1e-4 * np.abs(ours).max()


def test_only_networks_of_depthwise_and_pointwise_layers_are_rewritten():
    from models import mobile

    assert mobile.fits(build("mobilenet_v2", image_size=32, channels=3, classes=4))
    assert not mobile.fits(build("resnet20", image_size=32, channels=3, classes=4))


@pytest.mark.parametrize(
    ("name", "wanted", "said"),
    [
        ("ticket.pt", Wanted(), "no such format; expected a name that ends in .keras, .tflite, .onnx, .npz"),
        ("ticket.keras", Wanted("int8"), "Keras model is written in float32"),
    ],
)
def test_what_cannot_be_written_is_said_and_nothing_is_left(subject, tmp_path, name, wanted, said):
    with pytest.raises(Refused, match=said):
        export(subject, tmp_path / name, wanted, IMAGES)
    assert not list(tmp_path.iterdir())


def test_a_file_that_computes_something_else_is_not_left_behind(subject, tmp_path, monkeypatch):
    def wrong(one, wanted, path):
        right.write(replace(one, weights=one.network.initial(7)), wanted, path)

    right = FORMATS[".npz"]
    monkeypatch.setitem(FORMATS, ".npz", replace(right, write=wrong))
    with pytest.raises(Refused, match="stem/kernel came out otherwise"):
        export(subject, tmp_path / "x.npz", Wanted(), IMAGES)
    right = FORMATS[".tflite"]
    monkeypatch.setitem(FORMATS, ".tflite", replace(right, write=wrong))
    with pytest.raises(Refused, match="outputs differ by"):
        export(subject, tmp_path / "x.tflite", Wanted(), IMAGES)
    assert not list(tmp_path.iterdir())
