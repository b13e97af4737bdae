"""The formats of exported trainings, one function each; every file is checked against the training's own outputs.

All but SavedModel and ONNX are zip archives, or end with one: `zipfile.ZipFile(path).read("lottery.json")` returns the
file's description (classes, normalisation, accuracy, origin) without this project. SavedModel has it in
assets.extra/lottery.json, ONNX in its metadata properties.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sweep import files
from sweep.errors import Refused
from sweep.export import lite
from sweep.export.subject import Precision, Subject, Wanted

FACTS = "lottery.json"
EXTRA = "expected pip install 'lottery-sweep[export]'"
# largest accepted difference from the training's own outputs, as a share of the largest of them
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "int8": 0.5}


@dataclass(frozen=True)
class Exported:
    size: int  # bytes
    compressed: int  # bytes after gzip
    difference: float  # largest difference of an output from the training's own
    agreement: float  # share of the checked images whose most likely class is the same


def _onnx(subject: Subject, wanted: Wanted, path: Path) -> None:
    try:
        import onnx
        import tf2onnx  # noqa: F401  Keras exports through it
    except ImportError as error:
        raise Refused(f"{error.name} is not installed; {EXTRA}") from None
    keras_model = subject.keras_model(wanted)
    keras_model.export(path, format="onnx", input_signature=list(keras_model.inputs), verbose=False)
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {FACTS: json.dumps(asdict(subject.facts))})
    onnx.save(model, path)


def _npz(subject: Subject, wanted: Wanted, path: Path) -> None:
    with open(path, "wb") as f:  # savez would append .npz to the name
        arrays: dict[str, Any] = dict(subject.network.named(subject.weights))
        np.savez_compressed(f, **arrays)


# How each file is run, by its own library alone ---------------------------------------------------------------------


def _run_keras(path: Path, images: np.ndarray) -> np.ndarray:
    import keras

    return np.asarray(keras.saving.load_model(path, compile=False).predict(images, verbose=0))


def _run_saved_model(path: Path, images: np.ndarray) -> np.ndarray:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))  # has the variables: must outlive the call
    return np.asarray(loaded.serve(images))


def _run_onnx(path: Path, images: np.ndarray) -> np.ndarray:
    try:
        import onnxruntime
    except ImportError:
        raise Refused(f"onnxruntime is not installed; {EXTRA}") from None
    session = onnxruntime.InferenceSession(str(path))
    return np.asarray(session.run(None, {session.get_inputs()[0].name: images})[0])


@dataclass(frozen=True)
class Format:
    title: str
    write: Callable[[Subject, Wanted, Path], object]
    run: Callable[[Path, np.ndarray], np.ndarray] | None  # None: only arrays
    precisions: tuple[Precision, ...] = ("float32",)


FORMATS = {
    ".keras": Format("Keras model", lambda one, wanted, path: one.keras_model(wanted).save(path), _run_keras),
    ".tflite": Format(
        "LiteRT (TensorFlow Lite)", lambda one, wanted, path: path.write_bytes(lite.converted(one, wanted)),
        lambda path, images: lite.run(path.read_bytes(), images), ("float32", "float16", "int8"),
    ),
    ".onnx": Format("ONNX", _onnx, _run_onnx),
    ".npz": Format("numpy arrays", _npz, None),
    "": Format(
        "SavedModel folder", lambda one, wanted, path: one.keras_model(wanted).export(path, verbose=False),
        _run_saved_model,
    ),
}  # fmt: skip


def export(subject: Subject, path: Path, wanted: Wanted, images: np.ndarray) -> Exported:
    """Write a training in the format of the path's suffix, check it on `images` (uint8), and return its size.

    The file appears complete or not at all; raise Refused, and leave nothing, if its outputs differ from the
    training's.
    """
    found = format_of(path, wanted.precision)
    if not path.suffix and path.exists() and any(path.iterdir() if path.is_dir() else [path]):
        raise Refused(f"--to {path}: it is there already; expected a new folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = "probabilities" if wanted.probabilities else "logits"
    facts = replace(subject.facts, outputs=outputs, preprocessing=wanted.preprocessing)
    subject = replace(subject, facts=facts)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        found.write(subject, wanted, beside)
        _describe(subject, beside)
        difference, agreement = _compared(found, subject, wanted, beside, images)
        parts = sorted(beside.rglob("*")) if beside.is_dir() else [beside]
        raw = b"".join(part.read_bytes() for part in parts if part.is_file())
        if beside.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            beside.rename(path)
        else:
            with files.replacing(path) as place:
                shutil.copyfile(beside, place)
    return Exported(len(raw), len(gzip.compress(raw, mtime=0)), difference, agreement)


def format_of(path: Path, precision: Precision) -> Format:
    """Return the format of a path's suffix; raise Refused if there is none, or not in this precision."""
    found = FORMATS.get(path.suffix)
    if found is None:
        known = ", ".join(ending or "a folder (SavedModel)" for ending in FORMATS)
        raise Refused(f"--to {path}: no such format; expected a name that ends in {known}")
    if precision not in found.precisions:
        raise Refused(f"--precision {precision}: {found.title} is written in {', '.join(found.precisions)}; "
                      "expected that, or a .tflite file")  # fmt: skip
    return found


def facts_in(path: Path) -> dict[str, Any]:
    """Return the description (lottery.json) in an exported file."""
    try:
        if path.is_dir():
            return dict(json.loads((path / "assets.extra" / FACTS).read_text()))
        if path.suffix == ".onnx":
            import onnx

            properties = {one.key: one.value for one in onnx.load(path).metadata_props}
            return dict(json.loads(properties[FACTS]))
        with zipfile.ZipFile(path) as archive:
            return dict(json.loads(archive.read(FACTS)))
    except ImportError:
        raise Refused(f"onnx is not installed; {EXTRA}") from None
    except Exception as error:  # each library raises its own errors
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise Refused(f"{path}: {said[:200]}; expected a file that lottery export wrote") from None


def is_exported(path: Path) -> bool:
    """Whether a path is a file in one of the formats, or a SavedModel."""
    return (path.is_file() and path.suffix in {*FORMATS} - {""}) or (path / "saved_model.pb").is_file()


def _describe(subject: Subject, path: Path) -> None:
    text = json.dumps(asdict(subject.facts), indent=1)
    if path.is_dir():
        (path / "assets.extra").mkdir()
        (path / "assets.extra" / FACTS).write_text(text)
        return
    # LiteRT allows a zip after the model; .keras and .npz are zips; ONNX has its own metadata
    if path.suffix != ".onnx":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(FACTS, text)
            archive.writestr("labels.txt", "\n".join(subject.facts.classes) + "\n")


def _compared(found: Format, subject: Subject, wanted: Wanted, path: Path, images: np.ndarray) -> tuple[float, float]:
    """Return the largest difference of an output and the share of equal answers; raise Refused above the tolerance."""
    if found.run is None:
        with np.load(path) as arrays:
            named = subject.network.named(subject.weights)
            wrong = [name for name, value in named.items() if not np.array_equal(arrays[name], value)]
        if wrong:
            raise Refused(f"{path.name}: {wrong[0]} came out otherwise than it was written; nothing was left behind")
        return 0.0, 1.0
    ours = subject.outputs(images, wanted.probabilities)
    theirs = found.run(path, images if wanted.preprocessing else subject.normalised(images))
    difference = float(np.abs(ours - theirs).max())
    largest = max(1.0, float(np.abs(ours).max()))
    if not difference <= TOLERANCE[wanted.precision] * largest:
        raise Refused(f"{path.name}: outputs differ by {difference:.2g} from the training's own, more than "
                      f"{TOLERANCE[wanted.precision] * largest:.2g}; nothing was left behind")  # fmt: skip
    return difference, float((ours.argmax(1) == theirs.argmax(1)).mean())
