"""The fields of an experiment as frozen dataclasses, each with type, default, meaning and limits.

How values are written is in forms; rules between fields are in checks.

Trainings are named by a hash of the fields that decide their numbers. Only fields that differ from their defaults are
part of it, so that a field added later does not change old names; hence a published default never changes. Fields made
by `circumstance()` say where and how fast a training runs, not what it computes, and are not part of the name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from models import NETWORKS, Initializer
from sweep.experiment.controls import CONTROLS
from sweep.experiment.forms import ONCE, SOME, Count, Form, Line, Memory, Name, Number, Site, Switch, Time, Whole, among
from sweep.experiment.method import Method, Methods
from sweep.experiment.options import Option
from sweep.experiment.point import BEGINNING, Point, Points
from sweep.experiment.sources import SOURCES
from sweep.experiment.stage import Stage, Stages


def given(default: Any, description: str, **limits: Any) -> Any:
    """Return a dataclass field with its meaning and its limits; limits have the names of pydantic's Field."""
    return field(default=default, metadata={"description": description, **limits})


def circumstance(default: Any, description: str, **limits: Any) -> Any:
    """Return a dataclass field that does not change what is computed, and so is not part of names."""
    return given(default, description, identity=False, **limits)


class Section:
    """A part of an experiment file; unknown keys in it are refused."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(frozen=True)
class Model(Section):
    """The network that is trained."""

    name: Annotated[str, among(NETWORKS)] = given("mobilenet_v2", "architecture of the network")
    width: Number = given(1.0, "factor on the published number of channels", gt=0, le=16)
    initializer: Initializer = given("he", "of kernels: he, variance 2/fan-in; lecun, 1/fan-in truncated (Renda's)")
    blur: bool = given(False, "blur-pool: strided convolutions read blurred inputs (16 channels or more)", strict=True)
    weights: Line = circumstance(
        "", "initial weights: a .h5, .npz or .keras file, or a training of these results; empty = random"
    )
    weights_digest: Line = circumstance("", "digest of the weights file; filled in when a sweep is planned")

    @property
    def title(self) -> str:
        """Return name, width and blur-pool: what decides the speed of the network."""
        return f"{self.name} {self.width:g}{' with blur-pool' if self.blur else ''}"


@dataclass(frozen=True)
class Data(Section):
    """The images that the network is trained on."""

    name: Annotated[str, among(SOURCES)] = given(
        "cifar10", "; ".join(f"`{name}`: {source.about}" for name, source in SOURCES.items())
    )
    path: Line = circumstance("", "archive or folder; not needed for digits and synthetic")
    listing: Line = given(
        "", "digest of names, sizes and labels in folder or shards; filled in when a sweep is planned"
    )
    cache: Line = circumstance(
        "", "for shards: folder on the node's own disk; empty = $SLURM_TMPDIR if that is a disk, off = none"
    )
    resident: Switch = circumstance("auto", "for shards: all images in the memory of the GPUs; auto: where they fit")
    image_size: Whole = given(0, "height and width in pixels; 0 = those of the source", ge=0, le=4096)
    channels: Literal["auto", "rgb"] = given("auto", "auto: those of the source; rgb: grey images get three channels")
    validation: Whole = given(0, "images held out of training, drawn once for all seeds", ge=0)
    crop: Literal["auto", "padded", "resized"] = given("auto", "random crop; auto: resized for own images, else padded")
    pad: Whole = given(0, "random crop of the image after padding it by so many pixels", ge=0, le=1024)
    flip: bool = given(False, "mirror half of the training images left to right", strict=True)
    normalised: Literal["channels", "image"] = given("channels", "per channel of all images; image: each by itself")
    classes: Whole = given(0, "number of classes of synthetic data", ge=0, le=100_000)
    images: Whole = given(0, "number of synthetic images for training, and as many for test", ge=0)


@dataclass(frozen=True)
class Recipe(Section):
    """How the network is trained."""

    epochs: Whole = given(30, "passes over the training images", ge=1, le=10**7)
    batch: Whole = given(128, "images per step, over all replicas", ge=1, le=10**6)
    rest: Literal["dropped", "carried"] = given(
        "dropped", "images of an epoch that fill no batch; carried: batches go on into the next epoch"
    )
    norm_images: Whole = given(0, "images that batch norm and mixing see together; 0 = the batch, one device", ge=0)
    optimizer: Literal["sgd", "adamw"] = given("sgd", "SGD with momentum, or AdamW")
    learning_rate: Number = given(0.1, "peak learning rate", gt=0)
    reference_batch: Whole = given(0, "if > 0, learning_rate is multiplied by batch / this", ge=0, le=10**6)
    momentum: Number = given(0.9, "momentum of SGD", ge=0, lt=1)
    nesterov: bool = given(False, "Nesterov momentum in SGD", strict=True)
    rewind_momentum: bool = given(False, "rewind momentum together with weights; else it starts at 0", strict=True)
    weight_decay: Number = given(0.0, "L2 in SGD, decoupled in AdamW", ge=0)
    decayed: Literal["kernels", "all"] = given("kernels", "what weight_decay acts on; all: biases and batch norm too")
    schedule: Literal["constant", "step", "cosine", "linear", "exponential", "one_cycle"] = given(
        "cosine", "learning rate"
    )
    warmup_epochs: Number = given(0.0, "epochs in which the rate rises linearly from 0", ge=0)
    milestones: tuple[Whole, ...] = given((), "step schedule: epochs after which the rate is multiplied by `gamma`")
    gamma: Number = given(0.1, "step schedule: factor at every milestone", gt=0, le=1)
    decay: Number = given(0.98, "exponential schedule: factor per epoch", gt=0, le=1)
    label_smoothing: Number = given(0.0, "share of the target spread over all classes; 0 = off", ge=0, lt=1)
    clip_norm: Number = given(0.0, "largest norm of the gradient of the kept weights; 0 = off", ge=0)
    ema: Number = given(0.0, "decay of the moving average of weights, which is evaluated; 0 = off", ge=0, lt=1)
    ema_unbiased: bool = given(
        False, "the average forgets initial weights: decay at most t / (t + 1) in step t", strict=True
    )
    mixup: Number = given(0.0, "alpha of mixup's Beta distribution; 0 = off", ge=0)
    cutmix: Number = given(0.0, "alpha of CutMix's Beta distribution; 0 = off", ge=0)
    cutmix_share: Number = given(0.5, "of mixed steps that get CutMix where mixup is on too", ge=0, le=1)
    mixing_share: Number = given(1.0, "of steps that are mixed; the others train on images as they are", ge=0, le=1)
    erasing: Number = given(0.0, "share of images of which a random rectangle is erased; 0 = off", ge=0, le=1)
    policy: Literal["none", "trivial", "rand"] = given(
        "none", "random operations on each image: trivial: TrivialAugment, wide; rand: RandAugment"
    )
    rand_operations: Whole = given(2, "RandAugment: operations on each image, one after the other", ge=1, le=10)
    rand_magnitude: Whole = given(9, "RandAugment: strength of operations; 10 is the greatest", ge=0, le=10)
    first_size: Whole = given(0, "progressive resizing: pixels of the first epoch; 0 = off", ge=0, le=4096)
    full_size_epoch: Whole = given(0, "progressive resizing: first epoch at full size", ge=0)
    stages: Stages = given(
        (), "sizes with a batch each: [128px/512, 160px/384@6ep, 224px@16ep]; `reference_batch` scales the rate of each"
    )
    stop_at: Number = given(0.0, "end when validation accuracy reaches this; 0 = off", ge=0, le=1)
    norm_momentum: Number = given(0.9, "share of the old moving statistic kept at each step", ge=0, lt=1)
    precision: Literal["float32", "bfloat16", "float16"] = given("float32", "of arithmetic; weights are float32")
    xla: Switch = circumstance("auto", "auto: on GPUs (on CPU it is 4 to 6 times slower)")
    layers: Literal["auto", "plain", "shaped"] = circumstance("auto", "form of the layers; auto: shaped if faster")
    checkpoint_minutes: Number = circumstance(10.0, "minutes between checkpoints, besides one after every epoch", gt=0)

    # With stages, the steps of an epoch follow from `per_epoch`, those of an epoch in batches of `batch`. Images that
    # fill no step are others in every epoch.

    def stage_at(self, epoch: int) -> Stage:
        """Return the stage of an epoch; without stages, one without a size."""
        return max((one for one in self.stages if one.begin <= epoch), key=lambda one: one.begin, default=Stage())

    def batch_at(self, epoch: int) -> int:
        return self.stage_at(epoch).batch or self.batch

    @property
    def batches(self) -> set[int]:
        """Return all batch sizes that are trained with."""
        return {one.batch or self.batch for one in self.stages} or {self.batch}

    def steps_at(self, epoch: int, per_epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return per_epoch * self.batch // self.batch_at(epoch)

    def steps_before(self, epoch: int, per_epoch: int) -> int:
        """Return the number of steps before an epoch."""
        begins = [*(one.begin for one in self.stages if one.begin < epoch), epoch] if self.stages else [0, epoch]
        return sum((end - begin) * self.steps_at(begin, per_epoch) for begin, end in pairwise(begins))

    def epoch_at(self, step: int, per_epoch: int) -> tuple[int, int]:
        """Return the epoch that a step is in, and its place there."""
        begin = max(one for one in {0, *(one.begin for one in self.stages)}
                    if self.steps_before(one, per_epoch) <= step)  # fmt: skip
        epochs, place = divmod(step - self.steps_before(begin, per_epoch), self.steps_at(begin, per_epoch))
        return begin + epochs, place


_SHARE = Form(None, "a number, at least 0, below 1 (0.9 = 90 % of the weights go)", ge=0, lt=1)
Quantiles = Annotated[tuple[Annotated[Number, _SHARE], ...], ONCE]
Thresholds = Annotated[tuple[Annotated[Number, Form(ge=0)], ...], ONCE]
Controls = Annotated[tuple[Annotated[str, among(CONTROLS)], ...], ONCE]


@dataclass(frozen=True)
class Prune(Section):
    """Which weights are pruned, and what is trained after pruning."""

    quantiles: Quantiles = given((), "sparsities: shares of the prunable weights that are pruned")
    thresholds: Thresholds = given((), "absolute thresholds: weights of at most this magnitude are pruned")
    methods: Methods = given((Method(),), "score, score/allocation, score@point; lowest scores are pruned first")
    rounds: Whole = given(1, "prune-and-retrain rounds, by `quantiles` or `share`; 1 = one-shot", ge=1, le=1000)
    share: Number = given(0.0, "share of the kept weights pruned in each round; 0 = by `quantiles`", ge=0, lt=1)
    budget: Literal["weights", "macs"] = given("weights", "quantiles are shares of weights, or of their multiply-adds")
    rewind: Points = given((BEGINNING,), "points the tickets start from: 0, 2ep, 500it")
    lr_rewind: Points = given((), "learning-rate rewinding: final weights, the schedule from these points")
    dense_lr_rewind: Points = given((), "the dense network's final weights, unpruned, with the schedule from here")
    finetune: Points = given((), "fine-tuning: final weights at the last rate, as long as from these points")
    controls: Controls = given((), "trainings that differ from a ticket in one thing (methods.md)")
    control_quantiles: Quantiles = given((), "quantiles with controls; empty: all quantiles and thresholds")
    control_rewind: Points = given((), "rewind points with controls; empty: all")
    collapse: Literal["skip", "train", "refuse"] = given(
        "skip", "if a layer is fully pruned: skip the training, train, or fail"
    )
    instability: Points = given((), "points from which two trainings with different data orders are compared")
    instability_quantiles: Quantiles = given((), "quantiles whose tickets are compared too, besides the dense network")

    @property
    def each_quantile(self) -> tuple[float, ...]:
        """Return the quantiles that are pruned at: those of the file, or 1 − (1 − share)^r of each round r."""
        if not self.share:
            return self.quantiles
        return tuple(round(1 - (1 - self.share) ** (r + 1), 6) for r in range(self.rounds))


@dataclass(frozen=True)
class Transfer(Section):
    """The data and recipe of the dense runs that masks and rewound weights come from, if not from `data`."""

    source: Line = given("", "an experiment file, whose data and recipe are taken, or a name; empty = no transfer")
    data: Data = Data()
    recipe: Recipe = Recipe()


@dataclass(frozen=True)
class Cluster(Section):
    """What is requested from a SLURM cluster."""

    partition: Site = given("", "partition of SLURM; empty: the site's default")
    cpu_partition: Site = given("", "partition of jobs without a GPU (masks, report, shards); empty: the same one")
    account: Site = given("", "account of SLURM; empty: the user's default")
    qos: Site = given("", "quality of service of SLURM; empty: the site's default")
    nodes: Whole = given(20, "nodes used at a time; with gpus_per_node, the number of trainings at a time", ge=1)
    gpus_per_node: Whole = given(4, "GPUs per node; a dense run uses as many of them as can share a batch", ge=1)
    gpus_per_cell: Whole = given(1, "GPUs per ticket or control; more than 1: MirroredStrategy", ge=1)
    gpu_type: Site = given("", "type of the GPUs, if --gres names it, such as a100; empty: any")
    trainings_per_task: Count = given(1, "trainings per array element, which starts up once; auto: as measured")
    trainings_per_gpu: Count = given(1, "how many of these share a GPU (MPS); auto: as lottery bench packing measured")
    cpus_per_gpu: Whole = given(8, "CPU cores asked for with every GPU", ge=1)
    memory_per_gpu: Memory = given("32G", "memory asked for with every GPU, as SLURM writes it")
    time_limit: Time = given("", "time limit of one training, as SLURM writes it; empty = predicted by the dense run")
    dense_time_limit: Time = given("", "time limit of one dense run; empty = the partition's")
    array_parallelism: Whole = given(0, "trainings at a time; 0 = as many as the nodes have GPUs for", ge=0)
    warning_seconds: Whole = given(120, "seconds before the time limit when a job saves and requeues", ge=1, le=65535)
    restarts: Whole = given(5, "restarts of a task without progress, before it counts as failed", ge=0)
    options: tuple[Option, ...] = given((), "more options for sbatch, such as --constraint=a100")
    setup: tuple[Line, ...] = given((), "shell lines that a job runs first, such as module load cuda")
    price_per_gpu_hour: Number = given(0.0, "price of a GPU hour, in any currency; 0 = unknown", ge=0)
    container: Line = given("", "prefix of every lottery command, such as apptainer exec --nv image.sif")


@dataclass(frozen=True)
class Track(Section):
    """How wandb mirrors the sweep."""

    mode: Literal["disabled", "offline", "online"] = given("disabled", "wandb: not at all, into files, to its server")
    project: Annotated[Line, Form(None, "the name of a wandb project", min_length=1)] = given(
        "lottery-sweep", "wandb project"
    )
    entity: Line = given("", "wandb entity; empty: the user's own")


Seeds = Annotated[tuple[Annotated[Whole, Form(ge=0, le=2**31 - 1)], ...], ONCE, SOME]


@dataclass(frozen=True)
class Experiment(Section):
    """One experiment: what is trained, pruned and rewound, on which data, and where."""

    name: Name = circumstance("", "name of the results folder; by default the file's name")
    model: Model = Model()
    data: Data = Data()
    recipe: Recipe = Recipe()
    prune: Prune = Prune()
    seeds: Seeds = given((0,), "one dense run each, with all its tickets; three or more for a verdict")
    cluster: Cluster = field(default=Cluster(), metadata={"identity": False})
    track: Track = field(default=Track(), metadata={"identity": False})
    note: str = circumstance("", "what readers of the results must know; shown in the report, below the verdict")
    transfer: Transfer = Transfer()

    @property
    def source(self) -> Transfer:
        """Return data and recipe of the dense runs that masks and rewound weights come from."""
        return self.transfer if self.transfer.source else Transfer(data=self.data, recipe=self.recipe)

    @property
    def datasets(self) -> dict[str, Data]:
        """Return the data sets that are trained on, by the names of their sections."""
        return {"data": self.data} | ({"transfer.data": self.transfer.data} if self.transfer.source else {})


def identity(part: Any) -> dict[str, Any]:
    """Return the fields that decide what is computed and differ from their defaults."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if not f.metadata.get("identity", True) or value == f.default:
            continue
        said = identity(value) if isinstance(value, Section) else plain(value)
        if said != {}:  # else the section differs only in circumstances
            out[f.name] = said
    return out


def plain(part: Any) -> Any:
    """Return an experiment, a section or a value as plain dictionaries, lists, numbers and text, for YAML and JSON."""
    if isinstance(part, Section):
        return {f.name: plain(getattr(part, f.name)) for f in dataclasses.fields(part)}  # type: ignore[arg-type]
    if isinstance(part, tuple):
        return [plain(one) for one in part]
    return str(part) if isinstance(part, Point | Method | Stage) else part
