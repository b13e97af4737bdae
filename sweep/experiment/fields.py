"""One experiment: what is trained, pruned and rewound, as frozen dataclasses. What is known of a field stands beside
it: type, default, meaning, limits. How values are written is in forms, and what fields must be together in checks.

Trainings are named by a hash of the fields that decide their numbers. It covers those that differ from their defaults,
so that a field added later leaves old names alone; for the same reason a default, once published, never changes.
Fields marked `circumstance()` say where and how fast a thing is done, not what is done, and are not part of a name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from models import NETWORKS, Initializer
from sweep.experiment.controls import CONTROLS
from sweep.experiment.forms import ONCE, SOME, Count, Form, Line, Memory, Name, Number, Site, Switch, Time, Whole, among
from sweep.experiment.method import Method, Methods
from sweep.experiment.options import Option
from sweep.experiment.point import BEGINNING, Point, Points
from sweep.experiment.sources import SOURCES


def given(default: Any, description: str, **limits: Any) -> Any:
    """Return a field with what it means and its limits, as pydantic's Field names them."""
    return field(default=default, metadata={"description": description, **limits})


def circumstance(default: Any, description: str, **limits: Any) -> Any:
    """Return a field that does not change what is computed."""
    return given(default, description, identity=False, **limits)


class Section:
    """A part of an experiment file, in which no other keys may stand."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(frozen=True)
class Model(Section):
    """The network that is trained."""

    name: Annotated[str, among(NETWORKS)] = given("mobilenet_v2", "architecture of the network")
    width: Number = given(1.0, "times the published number of channels", gt=0, le=16)
    initializer: Initializer = given("he", "variance 2/fan-in; lecun: 1/fan-in, truncated, the classifier's 0.0001")
    weights: Line = circumstance(
        "", "to start from: a .h5, .npz or .keras file, or a training of these results; empty = random"
    )
    weights_digest: Line = circumstance("", "digest of that file; filled in when a sweep is planned")


@dataclass(frozen=True)
class Data(Section):
    """The images it is trained on."""

    name: Annotated[str, among(SOURCES)] = given(
        "cifar10", "; ".join(f"`{name}`: {source.about}" for name, source in SOURCES.items())
    )
    path: Line = circumstance("", "archive or folder; not needed for digits and synthetic")
    listing: Line = given(
        "", "digest of names, sizes and labels in folder or shards; filled in when a sweep is planned"
    )
    cache: Line = circumstance("", "of shards: folder on the node's own disk; empty = $SLURM_TMPDIR, off = none")
    image_size: Whole = given(0, "pixels; 0 = as the source has them", ge=0, le=4096)
    channels: Literal["auto", "rgb"] = given("auto", "auto: as the source has them; rgb: grey images as three channels")
    validation: Whole = given(0, "images held out of training, drawn once for all seeds", ge=0)
    crop: Literal["auto", "padded", "resized"] = given("auto", "auto: resized (at random) for own images, else padded")
    pad: Whole = given(0, "random crop out of the image padded by so many pixels", ge=0, le=1024)
    flip: bool = given(False, "left-right, half of the time", strict=True)
    normalised: Literal["channels", "image"] = given("channels", "over the training images; image: each by itself")
    classes: Whole = given(0, "of synthetic data", ge=0, le=100_000)
    images: Whole = given(0, "of synthetic data, training and test each", ge=0)


@dataclass(frozen=True)
class Recipe(Section):
    """How it is trained."""

    epochs: Whole = given(30, "passes over the training images", ge=1, le=10**7)
    batch: Whole = given(128, "over all replicas", ge=1, le=10**6)
    rest: Literal["dropped", "carried"] = given(
        "dropped", "of an epoch's images, less than a batch; carried: into the next epoch, steps are rounded up"
    )
    norm_images: Whole = given(0, "normalised together by batch norm, and mixed; 0 = the batch, on one device", ge=0)
    optimizer: Literal["sgd", "adamw"] = given("sgd", "SGD with momentum, or AdamW")
    learning_rate: Number = given(0.1, "at its peak", gt=0)
    reference_batch: Whole = given(0, "> 0: learning_rate is for this batch and scales with `batch`", ge=0, le=10**6)
    momentum: Number = given(0.9, "of SGD", ge=0, lt=1)
    nesterov: bool = given(False, "of SGD", strict=True)
    rewind_momentum: bool = given(False, "weights taken from a training come with its momentum; else 0", strict=True)
    weight_decay: Number = given(0.0, "L2 in SGD, decoupled in AdamW", ge=0)
    decayed: Literal["kernels", "all"] = given("kernels", "by weight_decay; all: biases and batch norm too")
    schedule: Literal["constant", "step", "cosine", "exponential", "one_cycle"] = given("cosine", "of the rate")
    warmup_epochs: Number = given(0.0, "linear from 0, then the schedule", ge=0)
    milestones: tuple[Whole, ...] = given((), "of step: epochs after which the rate is multiplied by `gamma`")
    gamma: Number = given(0.1, "of step", gt=0, le=1)
    decay: Number = given(0.98, "of exponential, per epoch", gt=0, le=1)
    label_smoothing: Number = given(0.0, "share of the target spread over all classes; 0 = off", ge=0, lt=1)
    clip_norm: Number = given(0.0, "global norm of the surviving weights' gradient; 0 = off", ge=0)
    ema: Number = given(0.0, "decay of the averaged weights that are evaluated; 0 = off", ge=0, lt=1)
    mixup: Number = given(0.0, "alpha of its Beta distribution; 0 = off", ge=0)
    cutmix: Number = given(0.0, "alpha of its Beta distribution; 0 = off", ge=0)
    first_size: Whole = given(0, "progressive resizing: pixels of the first epoch; 0 = off", ge=0, le=4096)
    full_size_epoch: Whole = given(0, "progressive resizing: first epoch at full size", ge=0)
    stop_at: Number = given(0.0, "end when validation accuracy reaches this; 0 = off", ge=0, le=1)
    norm_momentum: Number = given(0.9, "share of the old moving statistic kept at each step", ge=0, lt=1)
    precision: Literal["float32", "bfloat16", "float16"] = given("float32", "of the arithmetic; weights are float32")
    xla: Switch = circumstance("auto", "auto: on GPUs (on CPU it is 4 to 6 times slower)")
    layers: Literal["auto", "plain", "shaped"] = circumstance("auto", "how they are computed; auto: shaped if faster")
    checkpoint_minutes: Number = circumstance(10.0, "besides one at every epoch end", gt=0)


_SHARE = Form(None, "a number, at least 0, below 1 (0.9 = 90 % of the weights go)", ge=0, lt=1)
Quantiles = Annotated[tuple[Annotated[Number, _SHARE], ...], ONCE]
Thresholds = Annotated[tuple[Annotated[Number, Form(ge=0)], ...], ONCE]
Controls = Annotated[tuple[Annotated[str, among(CONTROLS)], ...], ONCE]


@dataclass(frozen=True)
class Prune(Section):
    """Which weights go, and what is trained without them."""

    quantiles: Quantiles = given((), "sparsities: shares of the prunable weights that are pruned")
    thresholds: Thresholds = given((), "absolute: weights at or under it are pruned")
    methods: Methods = given((Method(),), "score, score/allocation, score@point; lowest scores are pruned first")
    rounds: Whole = given(1, "of pruning and retraining, down `quantiles` or by `share`; 1 = one-shot", ge=1, le=1000)
    share: Number = given(0.0, "of the remaining weights, pruned in each round; 0 = down `quantiles`", ge=0, lt=1)
    budget: Literal["weights", "macs"] = given("weights", "quantiles are shares of weights, or of their multiply-adds")
    rewind: Points = given((BEGINNING,), "points the tickets start from: 0, 2ep, 500it")
    lr_rewind: Points = given((), "learning-rate rewinding: final weights, the schedule from these points")
    dense_lr_rewind: Points = given((), "the same of the dense network: its final weights, nothing pruned")
    finetune: Points = given((), "final weights, as long as from these points, at the last rate")
    controls: Controls = given((), "beside the tickets, each differs in one thing (methods.md)")
    control_quantiles: Quantiles = given((), "empty: all quantiles and thresholds")
    control_rewind: Points = given((), "empty: all rewind points")
    collapse: Literal["skip", "train", "refuse"] = given(
        "skip", "where a layer is fully pruned: skip it, train, or fail"
    )
    instability: Points = given((), "points from which two children with other data orders are compared")
    instability_quantiles: Quantiles = given((), "of tickets besides the dense network; some of those pruned at")

    @property
    def each_quantile(self) -> tuple[float, ...]:
        """The quantiles that are pruned at; of iterative pruning by a share, one a round."""
        if not self.share:
            return self.quantiles
        return tuple(round(1 - (1 - self.share) ** (r + 1), 6) for r in range(self.rounds))


@dataclass(frozen=True)
class Transfer(Section):
    """Where the masks and the rewound weights come from, if not from dense runs on `data`."""

    source: Line = given("", "an experiment file, whose data and recipe are taken, or a name; empty = no transfer")
    data: Data = Data()
    recipe: Recipe = Recipe()


@dataclass(frozen=True)
class Cluster(Section):
    """What a SLURM cluster is asked for."""

    partition: Site = given("", "of SLURM; empty: the site's default")
    account: Site = given("", "of SLURM; empty: the user's default")
    qos: Site = given("", "of SLURM; empty: the site's default")
    nodes: Whole = given(20, "with gpus_per_node: how many trainings run at a time", ge=1)
    gpus_per_node: Whole = given(4, "that the dense run gets, as far as they can share a batch", ge=1)
    gpus_per_cell: Whole = given(1, "GPUs of a ticket or control; more than 1: MirroredStrategy", ge=1)
    trainings_per_task: Count = given(1, "trainings of an array element: start-up is paid once; auto: as measured")
    trainings_per_gpu: Count = given(1, "of these, at a time on one GPU (MPS); auto: as lottery bench packing measured")
    cpus_per_gpu: Whole = given(8, "CPU cores asked for with every GPU", ge=1)
    memory_per_gpu: Memory = given("32G", "memory asked for with every GPU, as SLURM writes it")
    time_limit: Time = given("", "of one training, as SLURM writes it; empty = predicted from the dense run")
    dense_time_limit: Time = given("", "of one dense run; empty = the partition's")
    array_parallelism: Whole = given(0, "trainings at a time; 0 = as many as the nodes have GPUs for", ge=0)
    warning_seconds: Whole = given(120, "before the time limit, to save and go on in another turn", ge=1, le=65535)
    restarts: Whole = given(5, "of a task that gets no further, before it counts as failed", ge=0)
    options: tuple[Option, ...] = given((), "further, for sbatch, such as --constraint=a100; none the chain rests on")
    setup: tuple[Line, ...] = given((), "lines before the work, such as module load cuda")
    price_per_gpu_hour: Number = given(0.0, "in any currency; 0 = unknown", ge=0)
    container: Line = given("", "before every lottery command, such as apptainer exec --nv image.sif")


@dataclass(frozen=True)
class Track(Section):
    """How wandb mirrors the sweep."""

    mode: Literal["disabled", "offline", "online"] = given("disabled", "wandb: not at all, into files, to its server")
    project: Annotated[Line, Form(None, "the name of a wandb project", min_length=1)] = given(
        "lottery-sweep", "of wandb"
    )
    entity: Line = given("", "empty: the user's own")


Seeds = Annotated[tuple[Annotated[Whole, Form(ge=0, le=2**31 - 1)], ...], ONCE, SOME]


@dataclass(frozen=True)
class Experiment(Section):
    """One question: what is trained, pruned and rewound, on what, where."""

    name: Name = circumstance("", "of the results folder; the file's name where it is not given")
    model: Model = Model()
    data: Data = Data()
    recipe: Recipe = Recipe()
    prune: Prune = Prune()
    seeds: Seeds = given((0,), "one dense run each, with all its tickets; three or more for a verdict")
    cluster: Cluster = field(default=Cluster(), metadata={"identity": False})
    track: Track = field(default=Track(), metadata={"identity": False})
    note: str = circumstance("", "what readers of the results must know; the report has it under the answer")
    transfer: Transfer = Transfer()

    @property
    def source(self) -> Transfer:
        """The data and the recipe of the dense runs that masks and rewound weights come from."""
        return self.transfer if self.transfer.source else Transfer(data=self.data, recipe=self.recipe)

    @property
    def datasets(self) -> dict[str, Data]:
        """The data sets that are trained on, by the sections that name them."""
        return {"data": self.data} | ({"transfer.data": self.transfer.data} if self.transfer.source else {})


def identity(part: Any) -> dict[str, Any]:
    """The fields that say what is computed and differ from their defaults."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if not f.metadata.get("identity", True) or value == f.default:
            continue
        said = identity(value) if isinstance(value, Section) else value
        if said != {}:  # a section that differs only in circumstances
            out[f.name] = said
    return out


def plain(part: Any) -> Any:
    """Return an experiment, a part of it or a value as YAML and JSON hold it: sections, lists, numbers and words."""
    if isinstance(part, Section):
        return {f.name: plain(getattr(part, f.name)) for f in dataclasses.fields(part)}  # type: ignore[arg-type]
    if isinstance(part, tuple):
        return [plain(one) for one in part]
    return str(part) if isinstance(part, Point | Method) else part
