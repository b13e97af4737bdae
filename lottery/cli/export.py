"""The commands best, evaluate and export, which take a ticket out of a sweep, and bench inference."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.completion import trainings
from lottery.cli.find import RESULTS, ExperimentName, Json, Results, print_json, read_home
from sweep.data import Split, SplitName, open_dataset
from sweep.errors import Refused, command
from sweep.graph.home import Home
from sweep.graph.packed import is_record
from sweep.graph.results import collect
from sweep.graph.training import Line, Training
from sweep.hardware import hardware
from sweep.progress import console, show
from sweep.report.best import Best
from sweep.report.best import best as best_of
from sweep.report.verdict import verdicts

Words = Annotated[
    str,
    Parameter(help="A training (else the best ticket), and fields to change such as data.path=…", completer=trainings),
]


def best(experiment: ExperimentName, json_: Json = False, results: Results = RESULTS) -> None:
    """Show the best ticket: the sparsest that wins, else that matches, else that is not shown to be worse.

    Example: lottery best dry_run
    """
    home = read_home(experiment, (), results)
    found = _best(home)
    if json_:
        return print_json(asdict(found) | {"path": str(_place(home, found.training))})
    console.print(
        f"{found.training}: {100 * found.density:.3g} % of weights remaining, rewound to {found.rewind}, "
        f"{100 * found.test_top1:.2f} % on test images (seed {found.seed}); {found.outcome}: {found.reason}"
    )
    console.print(str(_place(home, found.training)))
    console.print(f"next: {command('export', home.root, '--to', 'ticket.keras')}")


def evaluate(
    experiment: ExperimentName,
    *words: Words,
    split: Annotated[SplitName, Parameter(help="Which images of the data set")] = "test",
    on: Annotated[
        Path | None, Parameter(help="Other images: folders named by the classes, or laid out like the data set")
    ] = None,
    predictions: Annotated[Path | None, Parameter(help="Write a CSV file with one line per image")] = None,
    figure: Annotated[Path | None, Parameter(help="Draw the confusion matrix, as FIGURE.png and FIGURE.svg")] = None,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Evaluate a training, or a file of lottery export: accuracy, loss, per class, confusion, calibration.

    Example: lottery evaluate dry_run dense-seed0 --split validation
    """
    from sweep.devices import prepare
    from sweep.export import evaluate as evaluation
    from sweep.export import formats

    if Path(experiment).suffix in {*formats.FORMATS} - {""} and not Path(experiment).exists():
        raise Refused(f"{experiment}: no such file")
    if formats.is_exported(Path(experiment)):
        said, facts = experiment, formats.facts_in(Path(experiment))
        name, names = facts["training"], facts["classes"]
        images, where = _images_for_file(Path(experiment), facts, words, on, split, results)
        found = evaluation.evaluated_file(Path(experiment), facts, images)
        described = evaluation.as_json(found, names)
    else:
        home, training = chosen(experiment, words, results)
        dataset = open_dataset(training.data)
        said, name, names = training.slug, training.name, dataset.class_names
        images, where = evaluation.images_of(dataset, training.data, on, split)
        found = evaluation.evaluated(home, training, dataset, images, prepare())
        described = evaluation.as_json(found, names)
        if split == "test" and on is None:
            evaluation.record(home, training, described)
    if predictions:
        evaluation.write_predictions(predictions, found, names, images)
    drawn: list[Path] = []
    if figure:
        from sweep.report.charts import confusion as confusion_chart
        from sweep.report.figures import save

        side = max(200, min(900, 26 * len(names)))
        chart = confusion_chart({said: described}).properties(width=side, height=side)
        drawn = save(chart, figure.with_suffix(""))
    if json_:
        return print_json({"training": name, "on": where} | described)
    top5 = f"top-5 {100 * found.top5:.2f} %, " if len(names) > 5 else ""
    console.print(
        f"{said} on {len(found.labels)} {where}: top-1 {100 * found.top1:.2f} %, {top5}loss {found.loss:.4f}, "
        f"calibration error {100 * described['calibration_error']:.1f} percentage points"
    )
    table = Table("class", "images", "right", "most often taken for")
    confusion = found.confusion()
    for row, one in enumerate(names):
        wrong = confusion[row].copy()
        wrong[row] = 0
        other = f"{names[wrong.argmax()]} ({wrong.max()})" if wrong.max() else ""
        share = described["per_class"][one]
        table.add_row(one, str(confusion[row].sum()), "" if share is None else f"{100 * share:.1f} %", other)
    show(table)
    for path in [*([predictions] if predictions else []), *drawn]:
        console.print(f"written: {path}")


def _images_for_file(
    file: Path, facts: dict[str, Any], words: tuple[str, ...], on: Path | None, split: SplitName, results: Path
) -> tuple[Split, str]:
    """Return the images to evaluate an exported file on, and a name for them.

    For pictures in class folders the file's own description is enough; else the data set is that of its experiment.
    """
    from sweep.export import evaluate as evaluation

    if on and "centre" in facts and evaluation.has_classes(on, facts["classes"]):  # earlier files do not say it
        size, channels, centre = facts["image_size"], facts["channels"], facts["centre"]
        return evaluation.in_class_folders(on, facts["classes"], size, channels, centre > 0)
    folder, name = results / facts["experiment"], facts["training"]
    elsewhere = "expected --results FOLDER, or --on FOLDER with folders named by the classes"
    if not (folder / "experiment.yaml").is_file():
        raise Refused(f"{file}: from the experiment {folder.name}, which is not under {results}/; {elsewhere}")
    home = read_home(str(folder), tuple(word for word in words if "=" in word), results)
    if name not in [one.name for one in home.graph]:  # another experiment of the same name
        raise Refused(f"{file}: its training {name} is not in {folder}; {elsewhere}")
    _, training = chosen(str(folder), (name, *words), results)
    return evaluation.images_of(open_dataset(training.data), training.data, on, split)


def export(
    experiment: ExperimentName,
    *words: Words,
    to: Annotated[Path, Parameter(help="x.keras, x.tflite, x.onnx, x.npz, or a folder (SavedModel)")],
    precision: Annotated[Literal["float32", "float16", "int8"], Parameter(help="Precision in .tflite")] = "float32",
    logits: Annotated[bool, Parameter(help="Logits instead of probabilities")] = False,
    preprocessing: Annotated[bool, Parameter(help="Take uint8 images; else normalised float32 images")] = True,
    results: Results = RESULTS,
) -> None:
    """Write a finished training as a model that others can load without this program; check it on real images.

    Example: lottery export dry_run --to ticket.keras
    """
    from sweep.export import formats
    from sweep.export.evaluate import in_memory
    from sweep.export.subject import Wanted, subject_of

    formats.format_of(to, precision)  # may raise Refused, so before anything is loaded
    home, training = chosen(experiment, words, results)
    dataset = open_dataset(training.data)
    samples = in_memory(dataset.train, 200, dataset.image_size)
    checked = in_memory(dataset.test, 100, dataset.image_size)
    wanted = Wanted(precision, True, preprocessing, not logits, samples)
    replaced = " (replaced)" if to.exists() else ""
    found = formats.export(subject_of(home, training, dataset), to, wanted, checked)
    console.print(
        f"{to}{replaced}: {training.slug}, {found.size:,} bytes ({found.compressed:,} compressed); on {len(checked)} "
        f"test images {100 * found.agreement:.0f} % of answers as in training, outputs differ by at most "
        f"{found.difference:.1e}"
    )


def inference(
    experiment: ExperimentName,
    *words: Words,
    rounds: Annotated[int, Parameter(help="Measurements of each variant, interleaved")] = 50,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Measure the inference time of a ticket under LiteRT: dense, sparse and int8, on one thread and on all.

    Example: lottery bench inference dry_run
    """
    from sweep.bench.inference import measured
    from sweep.export.evaluate import in_memory
    from sweep.export.subject import subject_of

    if rounds < 1:
        raise Refused(f"--rounds {rounds}: expected 1 or more")
    home, training = chosen(experiment, words, results)
    dataset = open_dataset(training.data)
    samples = in_memory(dataset.train, 200, dataset.image_size)
    found = list(measured(subject_of(home, training, dataset), samples, rounds))
    if json_:
        return print_json(found)
    title = f"{training.slug}, one image at a time, {hardware()}"
    table = Table("file", "threads", "ms", "±", "MB", "memory MB", "sparse kernels", title=title)
    for one in found:
        sparse = "not readable" if one.sparse_operators is None else str(one.sparse_operators)
        table.add_row(one.variant, str(one.threads), f"{one.milliseconds:.3f}", f"{one.spread:.3f}",
                      f"{one.bytes / 1e6:.2f}", f"{one.memory / 1e6:.1f}", sparse)  # fmt: skip
    show(table)


def _place(home: Home, training: str) -> Path:
    """Return the folder of a training or, in a record, the record, whose files have it."""
    root = home.root.parent
    return root if is_record(root) else home.pool / "trainings" / training


def _best(home: Home) -> Best:
    rows = collect(home)
    return best_of(rows, verdicts(rows))


def chosen(experiment: str, words: tuple[str, ...], results: Path) -> tuple[Home, Training]:
    """Return the experiment, and the training that is named, else its best ticket."""
    home = read_home(experiment, tuple(word for word in words if "=" in word), results)
    named = [word for word in words if "=" not in word]
    if len(named) > 1:
        raise Refused(f"{' '.join(named)}: expected one training")
    if not named:
        found = _best(home)
        named = [found.training]
        print(f"best ticket: {found.training} ({found.outcome})", file=sys.stderr)
    training = home.training(named[0])
    if isinstance(training, Line):
        raise Refused(f"{named[0]}: a line between two trainings has no weights of its own; expected a training")
    return home, training
