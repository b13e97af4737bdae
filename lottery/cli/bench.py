"""The commands `lottery bench …` and `lottery profile`: the speed of this machine, and where a step spends its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, Devices, ExperimentName, Json, Override, Results, find, print_json
from slurm import packing
from sweep.bench.packing import pack
from sweep.data import place_of, refuse_absent
from sweep.data.prepared import DESCRIPTION
from sweep.errors import Refused
from sweep.experiment import Data, Experiment, Model, Recipe, check
from sweep.experiment.file import changed
from sweep.graph import speeds
from sweep.graph.speeds import Packing
from sweep.hardware import hardware
from sweep.progress import Work, console, show

if TYPE_CHECKING:
    from sweep.bench.step import Timing

app = App(name="bench", help="Measure speed on this machine.", group_commands="Commands")
KERNELS = 10  # that the table of a profile shows
# fields that change what a step is given, or how many there are, and not the step
SIZES = {f"recipe.{name}" for name in ("stages", "first_size", "full_size_epoch", "batch", "epochs")}
SIZES |= {"data.image_size", "data.images"}
NODES = (2, 20)  # over which the time on a link is computed
Precision = Literal["float32", "bfloat16", "float16"]
Layers = Literal["auto", "plain", "shaped"]
Width = Annotated[float, Parameter(help="Factor on the network's channels")]
Rounds = Annotated[int, Parameter(help="Measurements of each variant, interleaved")]
Steps = Annotated[int, Parameter(help="Training steps in one measurement")]


def several(help: str) -> Parameter:
    return Parameter(help=help, consume_multiple=True, negative_iterable=())


@app.command
def step(
    *,
    model: Annotated[tuple[str, ...], several("Networks, such as resnet20")] = ("mobilenet_v2_small",),
    width: Width = 0.35,
    size: Annotated[tuple[int, ...], several("Pixels of an image's side")] = (32,),
    batch: Annotated[tuple[int, ...], several("Images per step, over all devices")] = (64,),
    precision: Annotated[tuple[Precision, ...], several("Precision of the arithmetic")] = ("float32",),
    mask: Annotated[bool, Parameter(help="Compare with the same step without a mask, interleaved")] = False,
    vary: Annotated[tuple[str, ...], several("Fields to compare with the same step as it is, interleaved")] = (),
    layers: Annotated[Layers, Parameter(help="Layers written for XLA (shaped), or TensorFlow's (plain)")] = "auto",
    rounds: Rounds = 20,
    steps: Steps = 5,
    devices: Devices = 0,
    json_: Json = False,
) -> None:
    """Measure the time of a training step on synthetic images, and its share of what the hardware allows.

    --model, --size, --batch and --precision take several values; every combination is measured.
    Example: lottery bench step --batch 64 128 --mask --vary recipe.norm_images=32 model.blur=true
    """
    _refuse_none("expected 1 or more", rounds=rounds, steps=steps)
    for field in vary:
        sized = field.partition("=")[0] in SIZES
        if sized or not field.startswith(("model.", "data.", "recipe.")):
            raise Refused(f"--vary {field}: expected a field of model, data or recipe that changes a step; sizes are "
                          "compared by --size and --batch")  # fmt: skip
    cases = []
    for asked in product(model, size, batch, precision):
        case = synthetic(*asked, width, layers, steps)
        variants = {"masked": (case, True)} | ({"unmasked": (case, False)} if mask else {})
        cases.append(variants | {field: (changed(case, field), True) for field in vary})
    from sweep.bench.roofline import measured
    from sweep.bench.step import time_steps
    from sweep.devices import prepare

    where = prepare(devices)
    rates = cache(partial(measured, where))
    found: list[list[Timing]] = []
    with Work("steps", len(cases) * rounds, quiet=json_) as work:
        for number, variants in enumerate(cases, start=1):
            found.append(time_steps(variants, where, rounds, steps, rates, work))
            work.at(number * rounds)  # also if it ran out of memory
    every = [timing for case in found for timing in case]
    if json_:
        return print_json(every)
    show(_table(every))
    for masked, *others in found:
        for other in others:
            if masked.step_ms and other.step_ms:
                what = "the mask" if other.variant == "unmasked" else other.variant
                low, ratio, high = sorted(1 / q if what == "the mask" else q for q in other.quartiles)
                console.print(f"{masked.model}, {masked.size} px, {masked.precision}, batch {masked.batch}: {what} "
                              f"costs {100 * (ratio - 1):+.2f} % of a step (half of the rounds: {100 * (low - 1):+.2f} "
                              f"to {100 * (high - 1):+.2f} %)")  # fmt: skip


@app.command
def scaling(
    *,
    model: Annotated[str, Parameter(help="A network, such as resnet20")] = "mobilenet_v2_small",
    width: Width = 0.35,
    size: Annotated[int, Parameter(help="Pixels of an image's side")] = 32,
    batch: Annotated[int, Parameter(help="Images per step on one device")] = 64,
    precision: Annotated[Precision, Parameter(help="Precision of the arithmetic")] = "float32",
    data: Annotated[str, Parameter(help="Folder of class folders to read images from; empty: synthetic ones")] = "",
    link: Annotated[tuple[float, ...], several("Links between nodes in Gb/s: show what each would add to a step")] = (),
    rounds: Rounds = 10,
    steps: Steps = 5,
    devices: Devices = 0,
    json_: Json = False,
) -> None:
    """Measure 1, 2, 4, … and all devices: efficiency, the share of summing gradients, the wait for data.

    If there are fewer devices, the first is split into logical ones: a test that it works, not of speed.
    Example: lottery bench scaling --devices 4 --link 0.1 1 100
    """
    _refuse_none("expected 1 or more", rounds=rounds, steps=steps)
    _refuse_none("expected more than 0", link=min(link, default=1))
    synthetic(model, size, batch, precision, width, "auto", steps)  # invalid input ends here, before TensorFlow starts
    from sweep.bench.scaling import over_link, scale
    from sweep.devices import prepare

    where = prepare(devices)
    experiment = synthetic(model, size, batch, precision, width, "auto", steps * where.replicas)
    if data:
        source = Data("folder", path=data, image_size=size, flip=True)
        experiment = replace(experiment, data=source)
    found = scale(experiment, where, rounds, steps, quiet=json_)
    summed, step_ms = found[0].all_reduce_bytes, found[-1].step_ms
    links = {gigabits: {nodes: 1e3 * over_link(summed, nodes, gigabits) for nodes in NODES} for gigabits in link}
    if json_:
        rows = [{"hardware": hardware(), **asdict(row)} for row in found]
        return print_json(rows + [{"gigabits": one, "all_reduce_ms": times} for one, times in links.items()])
    table = Table(
        "devices", "batch", "ms/step", "images/s", "efficiency", "all-reduce ms", "of a step", "data wait",
        title=f"{model} {width:g}, {size} px, {precision}, {hardware()}, up to {where}",
    )  # fmt: skip
    for row in found:
        table.add_row(
            str(row.devices), str(row.batch), f"{row.step_ms:.2f}", f"{row.images_per_second:.0f}",
            f"{row.efficiency:.0%}", f"{row.all_reduce_ms:.2f}", f"{row.all_reduce_share:.1%}",
            f"{row.data_wait_share:.1%}",
        )  # fmt: skip
    show(table)
    for gigabits, times in links.items():
        said = ", ".join(f"{ms:.3g} ms over {nodes} nodes ({1 + ms / step_ms:.2f} ×)" for nodes, ms in times.items())
        console.print(f"a link of {gigabits:g} Gb/s adds to a step, computed from {summed / 1e6:.1f} MB: {said}")


@app.command(name="input")
def input_(
    data: Annotated[str, Parameter(help="A folder of class folders, or one that lottery data prepare made")],
    *,
    size: Annotated[int, Parameter(help="Pixels of the network's input")] = 224,
    batch: Annotated[int, Parameter(help="Images per step")] = 256,
    rate: Annotated[float, Parameter(help="Images per second that the GPU trains on (bench step)")] = 10_000,
    cache: Annotated[str, Parameter(help="Folder of this node for decoded pictures, or off")] = "off",
    cold: Annotated[bool, Parameter(help="Read shards from their disk, not from the system's cache")] = False,
    seconds: Annotated[float, Parameter(help="Duration of the measurement")] = 10.0,
    json_: Json = False,
) -> None:
    """Measure images per second from a data set, per core and on this node, and the cores that keep a GPU busy.

    Example: lottery bench input shards --rate 11000
    """
    kind: Literal["shards", "folder"] = "shards" if (Path(data) / DESCRIPTION).is_file() else "folder"
    source = Data(kind, path=data, cache=cache, image_size=size, flip=True)
    place_of(source)
    _refuse_none("expected more than 0", seconds=seconds, rate=rate, batch=batch)
    from sweep.bench.feeding import measure
    from sweep.devices import prepare

    with Work("reading", seconds, quiet=json_) as work:
        found = measure(source, prepare(), batch, seconds, rate, work, cold)
    if json_:
        return print_json({"hardware": hardware(), **asdict(found)})
    console.print(
        f"{found.source} on {hardware()}: {found.images_per_second:.0f} images/s with {found.cores} cores, "
        f"{found.images_per_cpu_second:.0f} per core; a GPU that takes {rate:.0f}/s needs {found.cores_needed:.1f} "
        f"cores, and here would wait {found.data_wait_share:.0%} of its time"
    )
    if found.busy < 0.7:
        console.print(f"the cores were busy {found.busy:.0%} of the time: reading is the limit here, not their number")


@app.command(name="packing")
def packing_(
    experiment: ExperimentName,
    *overrides: Override,
    per_gpu: Annotated[tuple[int, ...], several("Numbers of trainings on a GPU, one measurement each")] = (1, 2, 4, 6),
    seconds: Annotated[float, Parameter(help="Duration of each measurement")] = 10.0,
    results: Results = RESULTS,
    json_: Json = False,
) -> None:
    """Measure several trainings on one GPU at a time: images/s together, and tickets per GPU-hour.

    The results are kept in packing.json of the results folder, for cluster.trainings_per_gpu: auto.
    Example: lottery bench packing experiments/cifar10_mobilenet_v2.yaml --per-gpu 1 2 4
    """
    asked, _ = find(experiment, overrides, results)
    refuse_absent(asked.data)
    _refuse_none("expected more than 0", seconds=seconds, per_gpu=min(per_gpu, default=0))
    rows: list[Packing] = []
    with Work("packing", len(set(per_gpu)), quiet=json_) as work:
        for count in sorted(set(per_gpu)):
            work.at(len(rows), f"{count} at a time")
            rows.append(pack(asked, results, count, seconds))
            path = speeds.put_on_record(results, rows[-1:])  # written at once, because more trainings may not fit
    epochs, one = asked.recipe.epochs, rows[0].images_per_second / rows[0].per_gpu
    table = Table("trainings", "images/s", "times one", "start s", "tickets/h", "in a row", "tickets/h so",
                  title=f"{rows[0].network}, {rows[0].hardware}")  # fmt: skip
    found = []
    for row in rows:
        many = packing.in_a_row(row, epochs)
        alone, in_a_row = row.tickets_per_hour(epochs, 1), row.tickets_per_hour(epochs, many)
        found.append(
            {**asdict(row), "tickets_per_hour": alone, "in_a_row": many, "tickets_per_hour_in_a_row": in_a_row}
        )
        table.add_row(
            str(row.per_gpu), f"{row.images_per_second:.0f}", f"{row.images_per_second / one:.2f}",
            f"{row.start_seconds:.1f}", f"{alone:.1f}", str(many), f"{in_a_row:.1f}",
        )  # fmt: skip
    if json_:
        return print_json(found)
    show(table)
    console.print(f"{path}: auto takes {packing.best(rows)} on a GPU")


def profile(
    experiment: ExperimentName,
    *overrides: Override,
    steps: Annotated[int, Parameter(help="Training steps in the trace")] = 5,
    to: Annotated[Path, Parameter(help="Folder for the trace")] = Path("profile"),
    devices: Devices = 0,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Profile some training steps: the ten largest kernels, and a trace for TensorBoard and Perfetto.

    Example: lottery profile dry_run model.name=resnet20
    """
    if steps < 1:
        raise Refused(f"--steps {steps}: expected 1 or more")
    asked, _ = find(experiment, overrides, results)
    refuse_absent(asked.data)
    from sweep.bench import profile as profiling
    from sweep.bench.roofline import measured
    from sweep.devices import prepare

    where = prepare(devices)
    found = profiling.profile(asked, where, steps, measured(where, asked.recipe.precision), to)
    if json_:
        return print_json(found)
    total = sum(kernel.milliseconds for kernel in found.kernels)
    idle = "" if found.idle_ms is None else f", {found.idle_ms:.2f} ms without one"
    table = Table("kernel", "calls", "ms/step", "share", "GB/step", "of memory rate",
                  title=f"{asked.model.name}, {where}: {total:.2f} ms of kernels per step{idle}")  # fmt: skip
    for kernel in found.kernels[:KERNELS]:
        moved = "–" if kernel.gigabytes is None else f"{kernel.gigabytes:.3g}"
        rate = "–" if kernel.memory_share is None else f"{kernel.memory_share:.0%}"
        table.add_row(
            kernel.name[:60], f"{kernel.calls:g}", f"{kernel.milliseconds:.3f}", f"{kernel.share:.1%}", moved, rate
        )
    show(table)
    console.print(f"trace: {to / profiling.TRACE} (ui.perfetto.dev, chrome://tracing); tensorboard --logdir {to}")


def _refuse_none(expected: str, **options: float) -> None:
    """Raise Refused if an option is 0 or less."""
    for name, value in options.items():
        if value <= 0:
            raise Refused(f"--{name.replace('_', '-')}: received {value}, {expected}")


def synthetic(
    model: str, size: int, batch: int, precision: Precision, width: float, layers: Layers, steps: int
) -> Experiment:
    """Return an experiment on synthetic images, with as many classes as CIFAR-10 or, for larger images, ImageNet."""
    classes = 10 if size <= 64 else 1000
    experiment = Experiment(
        "bench",
        Model(model, width),
        Data("synthetic", image_size=size, classes=classes, images=batch * steps, pad=4, flip=True),
        Recipe(
            batch=batch, learning_rate=0.01, weight_decay=1e-4, nesterov=True, precision=precision, layers=layers,
            xla="on" if layers == "shaped" else "auto",
        ),
    )  # fmt: skip
    check(experiment)
    return experiment


def _table(found: Sequence[Timing]) -> Table:
    one = found[0]
    table = Table(
        "model", "px", "type", "batch", "step", "first s", "ms/step", "images/s", "s/epoch", "GPU %", "GiB", "roof %",
        title=f"{one.hardware}, {one.devices} × a device, width {one.width:g}",
    )  # fmt: skip
    for t in found:
        roof = 100 * t.roofline if t.roofline else None
        numbers = (
            (t.first_seconds, 1), (t.step_ms, 2), (t.images_per_second, 0), (t.epoch_seconds, 1), (t.utilisation, 0),
            (t.memory_gib, 2), (roof, 0),
        )  # fmt: skip
        said = ("–" if value is None else f"{value:.{digits}f}" for value, digits in numbers)
        table.add_row(t.model, str(t.size), t.precision, str(t.batch), t.failure or t.variant, *said)
    return table
