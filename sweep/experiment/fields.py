"""One experiment: what is trained, pruned and rewound, as frozen dataclasses with one default each.

Trainings are named by a hash of the fields that decide their numbers. It covers those that differ from their defaults,
so that a field added later leaves old names alone; for the same reason a default, once published, never changes.
Fields marked `circumstance()` say where and how fast a thing is done, not what is done, and are not part of a name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from sweep.experiment.method import Method
from sweep.experiment.point import BEGINNING, Point

Count = int | Literal["auto"]


def circumstance(default: Any) -> Any:
    """A field that does not change what is computed."""
    return field(default=default, metadata={"identity": False})


@dataclass(frozen=True)
class Model:
    name: str = "mobilenet_v2"  # see models.NETWORKS
    width: float = 1.0  # times the published number of channels


@dataclass(frozen=True)
class Data:
    name: str = "cifar10"  # see sweep.experiment.sources
    path: str = circumstance("")  # archive or folder; not needed for digits and synthetic
    listing: str = ""  # digest of a folder's or of shards' names, sizes and labels; filled in when a sweep is planned
    cache: str = circumstance("")  # of shards: folder on the node's own disk; empty = $SLURM_TMPDIR, off = none
    image_size: int = 0  # pixels; 0 = as the source has them
    validation: int = 0  # images held out of training, drawn once for all seeds
    crop: Literal["auto", "padded", "resized"] = "auto"  # auto: resized (at random) for folder and shards, else padded
    pad: int = 0  # random crop out of the image padded by so many pixels
    flip: bool = False  # left-right, half of the time
    classes: int = 0  # of synthetic data
    images: int = 0  # of synthetic data, training and test each


@dataclass(frozen=True)
class Recipe:
    epochs: int = 30
    batch: int = 128  # over all replicas
    norm_images: int = 0  # that batch norm normalises together, and mixing mixes; 0 = the batch, on one device
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.1
    reference_batch: int = 0  # > 0: learning_rate is for this batch and scales linearly to `batch`
    momentum: float = 0.9  # of SGD
    nesterov: bool = False  # of SGD
    weight_decay: float = 0.0  # on kernels only; L2 in SGD, decoupled in AdamW
    schedule: Literal["constant", "step", "cosine", "exponential", "one_cycle"] = "cosine"
    warmup_epochs: float = 0.0  # linear from 0, then the schedule
    milestones: tuple[int, ...] = ()  # of step: epochs after which the rate is multiplied by `gamma`
    gamma: float = 0.1  # of step
    decay: float = 0.98  # of exponential, per epoch
    label_smoothing: float = 0.0
    clip_norm: float = 0.0  # global norm of the surviving weights' gradient; 0 = off
    ema: float = 0.0  # decay of the averaged weights that are evaluated; 0 = off
    mixup: float = 0.0  # alpha of its Beta distribution; 0 = off
    cutmix: float = 0.0  # alpha of its Beta distribution; 0 = off
    first_size: int = 0  # progressive resizing: pixels of the first epoch; 0 = off
    full_size_epoch: int = 0  # progressive resizing: first epoch at full size
    stop_at: float = 0.0  # end when validation accuracy reaches this; 0 = off
    norm_momentum: float = 0.9  # share of the old moving statistic kept at each step
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    xla: Literal["auto", "on", "off"] = circumstance("auto")  # auto: on GPUs (on CPU it is 4 to 6 times slower)
    layers: Literal["auto", "plain", "shaped"] = circumstance(
        "auto"
    )  # how they are computed; auto: shaped where it is faster
    checkpoint_minutes: float = circumstance(10.0)  # besides one at every epoch end


@dataclass(frozen=True)
class Prune:
    quantiles: tuple[float, ...] = ()  # share of the prunable weights that goes
    thresholds: tuple[float, ...] = ()  # absolute: weights at or under it go
    methods: tuple[Method, ...] = (Method(),)  # score, score/allocation, score@point; lowest scores go first
    rounds: int = 1  # of iterative pruning: more than 1 prunes and retrains so often, down `quantiles` or by `share`
    share: float = 0.0  # of the weights that are left, goes at each round; 0 = `quantiles` has one for every round
    rewind: tuple[Point, ...] = (BEGINNING,)  # points the tickets start from: 0, 2ep, 500it
    lr_rewind: tuple[Point, ...] = ()  # learning-rate rewinding: final weights, the schedule from these points
    dense_lr_rewind: tuple[Point, ...] = ()  # the same of the dense network: its final weights, nothing pruned
    finetune: tuple[Point, ...] = ()  # final weights, as long as from these points, at the last rate
    controls: tuple[str, ...] = ()  # see sweep.experiment.controls
    control_quantiles: tuple[float, ...] = ()  # empty: all quantiles and thresholds
    control_rewind: tuple[Point, ...] = ()  # empty: all rewind points
    collapse: Literal["skip", "train", "refuse"] = "skip"  # where a mask leaves nothing of a kernel
    instability: tuple[Point, ...] = ()  # points from which two children with other data orders are compared
    instability_quantiles: tuple[float, ...] = ()  # of tickets besides the dense network; some of those pruned at

    @property
    def each_quantile(self) -> tuple[float, ...]:
        """Of iterative pruning by a share: one a round."""
        if not self.share:
            return self.quantiles
        return tuple(round(1 - (1 - self.share) ** (r + 1), 6) for r in range(self.rounds))


@dataclass(frozen=True)
class Cluster:
    """What a SLURM cluster is asked for."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: int = 20
    gpus_per_node: int = 4
    gpus_per_cell: int = 1  # 1: the cells of a node do not talk; more: MirroredStrategy inside the cell
    trainings_per_task: Count = 1  # cells that an array element trains: start-up is paid once; auto: as measured
    trainings_per_gpu: Count = 1  # of these, at a time on one GPU (MPS); auto: as lottery bench packing measured
    cpus_per_gpu: int = 8
    memory_per_gpu: str = "32G"
    time_limit: str = ""  # of one cell, as SLURM writes it; empty = predicted once the dense run was measured
    dense_time_limit: str = ""  # of one dense run; empty = the partition's
    array_parallelism: int = 0  # cells at a time; 0 = as many as the nodes have GPUs for
    warning_seconds: int = 120  # before the time limit, to save and go on in another turn
    restarts: int = 5  # of a task that gets no further, before it counts as failed
    options: tuple[str, ...] = ()  # further #SBATCH options, such as --constraint=a100; not those the chain rests on
    setup: tuple[str, ...] = ()  # lines before the work, such as module load cuda
    price_per_gpu_hour: float = 0.0  # in any currency; 0 = unknown
    container: str = ""  # before every lottery command, such as apptainer exec --nv image.sif


@dataclass(frozen=True)
class Track:
    """How wandb mirrors the sweep."""

    mode: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "lottery-sweep"
    entity: str = ""  # empty: the user's own


@dataclass(frozen=True)
class Experiment:
    name: str = circumstance("")
    model: Model = Model()
    data: Data = Data()
    recipe: Recipe = Recipe()
    prune: Prune = Prune()
    seeds: tuple[int, ...] = (0,)
    cluster: Cluster = circumstance(Cluster())
    track: Track = circumstance(Track())
    note: str = circumstance("")  # what readers of the results must know; the report has it under the answer


def identity(part: Any) -> dict[str, Any]:
    """The fields that say what is computed and differ from their defaults."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if not f.metadata.get("identity", True) or value == f.default:
            continue
        said = identity(value) if dataclasses.is_dataclass(value) and not isinstance(value, Point | Method) else value
        if said != {}:  # a section that differs only in circumstances
            out[f.name] = said
    return out
