"""One experiment: what is trained, pruned and rewound, as frozen dataclasses with one default each.

The hash of an experiment names everything it makes. It covers the fields that differ from their defaults, so
that a field added later leaves old hashes alone; for the same reason a default, once published, never changes.
Fields marked `elsewhere()` say where and how fast a thing is done, not what is done, and are not part of the hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from sweep.errors import Refused

ControlKind = Literal["fresh", "shuffled", "random", "finetune"]


def elsewhere(default: Any) -> Any:
    """A field that does not change what is computed."""
    return field(default=default, metadata={"identity": False})


@dataclass(frozen=True)
class Model:
    name: str = "mobilenet_v2"  # see models.NETWORKS
    width: float = 1.0  # times the published number of channels


@dataclass(frozen=True)
class Data:
    name: Literal["digits", "cifar10", "folder", "shards", "synthetic"] = "cifar10"
    path: str = elsewhere("")  # archive or folder; not needed for digits and synthetic
    cache: str = elsewhere("")  # of shards: folder on the node's own disk; empty = $SLURM_TMPDIR, off = none
    image_size: int = 0  # pixels; 0 = as the source has them
    validation: int = 0  # images held out of training, drawn once for all seeds
    pad: int = 0  # random crop out of the image padded by so many pixels
    flip: bool = False  # left-right, half of the time
    classes: int = 0  # of synthetic data
    images: int = 0  # of synthetic data, training and test each


@dataclass(frozen=True)
class Recipe:
    epochs: int = 30
    batch: int = 128  # over all replicas
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
    xla: Literal["auto", "on", "off"] = elsewhere("auto")  # auto: on GPUs (on CPU it is 4 to 6 times slower)
    layers: Literal["auto", "plain", "shaped"] = elsewhere(
        "auto"
    )  # how they are computed; auto: shaped where it is faster
    checkpoint_minutes: float = elsewhere(10.0)  # besides one at every epoch end


@dataclass(frozen=True)
class Prune:
    quantiles: tuple[float, ...] = ()  # share of the prunable weights that goes
    thresholds: tuple[float, ...] = ()  # absolute: weights at or under it go
    scope: Literal["global", "layerwise"] = "global"  # one quantile over all kernels, or of each kernel
    rewind_epochs: tuple[int, ...] = (0,)
    controls: tuple[ControlKind, ...] = ()
    control_quantiles: tuple[float, ...] = ()  # empty: all quantiles and thresholds
    control_rewind_epochs: tuple[int, ...] = ()  # empty: all rewind epochs


@dataclass(frozen=True)
class Cluster:
    """What a SLURM cluster is asked for. No part of the experiment's identity."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: int = 20
    gpus_per_node: int = 4
    gpus_per_cell: int = 1  # 1: the cells of a node do not talk; more: MirroredStrategy inside the cell
    cpus_per_gpu: int = 8
    memory_per_gpu: str = "32G"
    time_limit: str = ""  # of one cell, as SLURM writes it; empty = predicted once the dense run was measured
    dense_time_limit: str = ""  # of one dense run; empty = the partition's
    array_parallelism: int = 0  # cells at a time; 0 = as many as the nodes have GPUs for
    warning_seconds: int = 120  # before the time limit, to save and go on in another turn
    restarts: int = 5  # of a task that gets no further, before it counts as failed
    options: tuple[str, ...] = ()  # further #SBATCH options, such as --constraint=a100
    setup: tuple[str, ...] = ()  # lines before the work, such as module load cuda
    container: str = ""  # before every lottery command, such as apptainer exec --nv image.sif


@dataclass(frozen=True)
class Track:
    """How wandb mirrors the sweep. No part of the experiment's identity."""

    mode: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "lottery-sweep"
    entity: str = ""  # empty: the user's own


@dataclass(frozen=True)
class Experiment:
    name: str = elsewhere("")
    model: Model = Model()
    data: Data = Data()
    recipe: Recipe = Recipe()
    prune: Prune = Prune()
    seeds: tuple[int, ...] = (0,)
    cluster: Cluster = elsewhere(Cluster())
    track: Track = elsewhere(Track())

    @property
    def hash(self) -> str:
        text = json.dumps(identity(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def folder(self) -> str:
        """The name of its results folder."""
        return f"{self.name}-{self.hash}"


def identity(part: Any) -> dict[str, Any]:
    """The fields that say what is computed and differ from their defaults."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if not f.metadata.get("identity", True) or value == f.default:
            continue
        kept = identity(value) if dataclasses.is_dataclass(value) else value
        if kept != {}:  # a section whose only changes are elsewhere
            out[f.name] = kept
    return out


def check(e: Experiment) -> None:
    """Refuse what is well typed but makes no sense."""
    from models import NETWORKS

    def need(ok: bool, where: str, received: object, right: str) -> None:
        if not ok:
            raise Refused(f"{where}: received {received}, expected {right}")

    need(bool(re.fullmatch(r"[\w.+-]+", e.name)) and not e.name.startswith("."), "name", repr(e.name),
         "letters, digits, - and _: it names a folder")  # fmt: skip
    need(e.model.name in NETWORKS, "model.name", repr(e.model.name), "one of " + ", ".join(NETWORKS))
    need(e.model.width > 0, "model.width", e.model.width, "more than 0")
    d, r, p, c = e.data, e.recipe, e.prune, e.cluster
    need(d.validation >= 0, "data.validation", d.validation, "a number of images, 0 or more")
    need(d.pad >= 0, "data.pad", d.pad, "pixels, 0 or more")
    need(d.image_size >= 0, "data.image_size", d.image_size, "pixels, or 0 for the source's own")
    if d.name == "synthetic":
        need(d.classes > 1, "data.classes", d.classes, "2 or more for synthetic data")
        need(d.images > 0, "data.images", d.images, "1 or more for synthetic data")
        need(d.image_size > 0, "data.image_size", d.image_size, "the pixels of synthetic images")
    else:
        need(d.classes == 0, "data.classes", d.classes, "nothing: only synthetic data has it")
        need(d.images == 0, "data.images", d.images, "nothing: only synthetic data has it")

    need(r.epochs > 0, "recipe.epochs", r.epochs, "1 or more")
    need(r.batch > 0, "recipe.batch", r.batch, "1 or more")
    need(r.learning_rate > 0, "recipe.learning_rate", r.learning_rate, "more than 0")
    need(r.reference_batch >= 0, "recipe.reference_batch", r.reference_batch, "0 (no scaling) or a batch size")
    need(0 <= r.momentum < 1, "recipe.momentum", r.momentum, "0 up to, not including, 1")
    need(0 <= r.norm_momentum < 1, "recipe.norm_momentum", r.norm_momentum, "0 up to, not including, 1")
    need(0 <= r.ema < 1, "recipe.ema", r.ema, "0 (off) up to, not including, 1")
    need(0 <= r.label_smoothing < 1, "recipe.label_smoothing", r.label_smoothing, "0 up to, not including, 1")
    need(0 <= r.stop_at <= 1, "recipe.stop_at", r.stop_at, "an accuracy between 0 (off) and 1")
    need(0 <= r.warmup_epochs < r.epochs, "recipe.warmup_epochs", r.warmup_epochs, f"less than {r.epochs} epochs")
    for name in ("weight_decay", "clip_norm", "mixup", "cutmix"):
        need(getattr(r, name) >= 0, f"recipe.{name}", getattr(r, name), "0 (off) or more")
    need(bool(r.milestones) == (r.schedule == "step"), "recipe.milestones", list(r.milestones),
         "epochs where schedule is step, nothing elsewhere")  # fmt: skip
    need(list(r.milestones) == sorted(set(r.milestones)), "recipe.milestones", list(r.milestones), "rising epochs")
    need(all(0 < m < r.epochs for m in r.milestones), "recipe.milestones", list(r.milestones), f"1 to {r.epochs - 1}")
    for name in ("gamma", "decay"):
        need(0 < getattr(r, name) <= 1, f"recipe.{name}", getattr(r, name), "more than 0, at most 1")
    need(not r.stop_at or d.validation > 0, "recipe.stop_at", r.stop_at, "data.validation above 0 to measure it on")
    need(bool(r.first_size) == bool(r.full_size_epoch), "recipe.first_size", r.first_size,
         "recipe.full_size_epoch with it (both or none)")  # fmt: skip
    need(r.checkpoint_minutes > 0, "recipe.checkpoint_minutes", r.checkpoint_minutes, "more than 0")

    for q in (*p.quantiles, *p.control_quantiles):
        need(0 <= q < 1, "prune.quantiles", q, "0 up to, not including, 1 (0.9 = 90 % of the weights go)")
    for t in p.thresholds:
        need(t >= 0, "prune.thresholds", t, "0 or more")
    need(not (p.thresholds and p.scope == "layerwise"), "prune.thresholds", list(p.thresholds),
         "scope global: an absolute threshold is the same for all layers")  # fmt: skip
    for k in (*p.rewind_epochs, *p.control_rewind_epochs):
        need(0 <= k < r.epochs, "prune.rewind_epochs", k, f"an epoch from 0 to {r.epochs - 1} (recipe.epochs - 1)")
    for name in ("quantiles", "thresholds", "rewind_epochs", "controls", "control_quantiles", "control_rewind_epochs"):
        values = getattr(p, name)
        need(len(set(values)) == len(values), f"prune.{name}", list(values), "each value once")
    need(set(p.control_quantiles) <= set(p.quantiles), "prune.control_quantiles", list(p.control_quantiles),
         "some of prune.quantiles")  # fmt: skip
    need(set(p.control_rewind_epochs) <= set(p.rewind_epochs), "prune.control_rewind_epochs",
         list(p.control_rewind_epochs), "some of prune.rewind_epochs")  # fmt: skip
    need(bool(e.track.project), "track.project", repr(e.track.project), "the name of a wandb project")
    need(len(e.seeds) > 0, "seeds", list(e.seeds), "at least one")
    need(len(set(e.seeds)) == len(e.seeds) and min(e.seeds) >= 0, "seeds", list(e.seeds), "each once, 0 or more")
    for name in ("nodes", "gpus_per_node", "gpus_per_cell", "cpus_per_gpu", "warning_seconds"):
        need(getattr(c, name) > 0, f"cluster.{name}", getattr(c, name), "1 or more")
    for name in ("array_parallelism", "restarts"):
        need(getattr(c, name) >= 0, f"cluster.{name}", getattr(c, name), "0 or more")
    for name in ("time_limit", "dense_time_limit"):
        need(not getattr(c, name) or bool(re.fullmatch(r"\d+|(\d+-)?\d+(:\d+){1,2}|\d+-\d+", getattr(c, name))),
             f"cluster.{name}", repr(getattr(c, name)), "minutes, H:M:S or D-H:M:S")  # fmt: skip
    need(bool(re.fullmatch(r"\d+[KMGT]?", c.memory_per_gpu)), "cluster.memory_per_gpu", repr(c.memory_per_gpu),
         "a size as SLURM writes it, such as 32G")  # fmt: skip
    need(c.gpus_per_node % c.gpus_per_cell == 0, "cluster.gpus_per_cell", c.gpus_per_cell,
         f"a divisor of gpus_per_node ({c.gpus_per_node})")  # fmt: skip
