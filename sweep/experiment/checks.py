"""Rules between the fields of an experiment: values that are valid alone but contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from models import build
from sweep.errors import brief, cut
from sweep.experiment.fields import Experiment, Prune, Recipe, Transfer, plain
from sweep.experiment.point import END, Point
from sweep.experiment.sources import SOURCES
from sweep.experiment.stage import Stage

RESERVED = ("trainings", "masks", "compiled", "autotuned", "slurm", "reference")  # other folders of a pool


@dataclass(frozen=True)
class Rule:
    """A condition on the values of some fields, and the text that says what the first field should be instead."""

    fields: str  # names of fields or sections such as recipe.epochs, separated by spaces
    holds: Callable[..., Any]
    right: str  # {1} is the value of the second field

    def lines(self, experiment: Experiment) -> list[str]:
        """Return one line that says how the experiment breaks the rule, or no line if it does not."""
        fields = self.fields.split()
        values = [attrgetter(field)(experiment) for field in fields]
        if self.holds(*values):
            return []
        right = self.right.format(*(cut(str(plain(value))) for value in values))
        return [f"{fields[0]}: received {brief(plain(values[0]))}, expected {right}"]

    def inside(self, section: str) -> Rule:
        """Return the same rule for the fields of a subsection, such as transfer.recipe.epochs for recipe.epochs."""
        return replace(self, fields=" ".join(f"{section}.{field}" for field in self.fields.split()))

    def reads(self, others: Iterable[str]) -> bool:
        """Whether a field of the rule is one of `others`, is inside one of them, or contains one."""
        fields = self.fields.replace("source.", "").split()
        pairs = [(f"{one}.", f"{other}.") for one in fields for other in others]
        return any(one.startswith(other) or other.startswith(one) for one, other in pairs)


def _can_blur(name: str, width: float) -> bool:
    return build(name, image_size=32, channels=3, classes=10, width=width, blur=True).blurred


def _prunes(prune: Prune) -> bool:
    own = any(one.own_quantile is not None for one in prune.methods)
    return bool(prune.each_quantile or prune.thresholds or own)


def _trains_what_it_prunes(rewind: tuple[Point, ...], prune: Prune) -> bool:
    unstable = prune.instability and prune.instability_quantiles
    return bool(rewind or prune.lr_rewind or prune.finetune or unstable) or not _prunes(prune)


def _transfers(prune: Prune) -> bool:
    """Whether masks can come from other data: found in dense runs, and for tickets that train the whole schedule."""
    points = (*prune.lr_rewind, *prune.dense_lr_rewind, *prune.finetune, *prune.instability)
    return prune.rounds == 1 and not points


def _apart(quantiles: tuple[float, ...]) -> bool:
    """Whether the quantiles are all different and below 1."""
    return len(set(quantiles)) == len(quantiles) and max(quantiles) < 1


def _follow_each_other(stages: tuple[Stage, ...], epochs: int) -> bool:
    begins = [one.begin for one in stages]
    return not begins or (begins == sorted(set(begins)) and begins[0] == 0 and begins[-1] < epochs)


def _ends_before(points: Iterable[Point], epochs: int) -> bool:
    return all(one != END and (one.unit != "ep" or one.count < epochs) for one in points)


def _few_enough(seeds: tuple[int, ...], prune: Prune) -> bool:
    """Whether the experiment has at most a million trainings."""
    levels = max(prune.rounds if prune.share else 0, len(prune.quantiles) + len(prune.thresholds), 1)
    places = len(prune.rewind) + len(prune.lr_rewind) + len(prune.finetune) + 2 * len(prune.instability)
    return len(seeds) * len(prune.methods) * levels * places * (1 + len(prune.controls)) <= 10**6


OF_A_TRAINING = (
    Rule("data.listing data.name", lambda listing, source: not listing or SOURCES[source].listed,
         "nothing: only folder and shards have it"),
    *(Rule(f"data.{name} data.name", lambda count, source: not count or source == "synthetic",
           "nothing: only synthetic data has it") for name in ("classes", "images")),
    Rule("data.classes data.name", lambda count, source: count > 1 or source != "synthetic",
         "2 to 100000 for synthetic data"),
    Rule("data.images data.name data.image_size",
         lambda count, source, size: 0 < count * max(1, size) ** 2 <= 2**33 or source != "synthetic",
         "1 or more for synthetic data, and few enough for a memory"),
    Rule("data.image_size data.name", lambda size, source: size or source != "synthetic",
         "the pixels of synthetic images"),

    Rule("data.resident data.name", lambda kept, source: kept == "auto" or source == "shards",
         "auto: only shards can be either streamed or kept in the memory of the GPUs"),

    Rule("recipe.norm_images recipe.batch", lambda images, batch: not images or batch % images == 0,
         "0 (the whole batch) or a divisor of recipe.batch ({1})"),
    Rule("recipe.warmup_epochs recipe.epochs", lambda warmup, epochs: warmup < epochs, "less than {1} epochs"),
    Rule("recipe.milestones recipe.schedule", lambda found, schedule: bool(found) == (schedule == "step"),
         "epochs where schedule is step, nothing elsewhere"),
    Rule("recipe.milestones", lambda found: [0, *found] == sorted({0, *found}), "rising epochs, 1 or more"),
    Rule("recipe.milestones recipe.epochs", lambda found, epochs: max(found, default=0) < epochs, "less than {1}"),
    *(Rule(f"recipe.{name} recipe.policy", lambda value, policy, usual=usual: value == usual or policy == "rand",
           f"{usual}, or recipe.policy rand: other policies ({{1}}) do not have it")
      for name, usual in (("rand_operations", Recipe.rand_operations), ("rand_magnitude", Recipe.rand_magnitude))),
    Rule("recipe.stop_at data.validation", lambda stop, images: not stop or images,
         "data.validation above 0 to measure it on"),
    Rule("recipe.first_size data.image_size", lambda first, size: not size or first <= size,
         "0 (off) or pixels, up to {1} (data.image_size)"),
    Rule("recipe.full_size_epoch recipe.epochs", lambda epoch, epochs: epoch < epochs, "less than {1} (recipe.epochs)"),
    Rule("recipe.first_size recipe.full_size_epoch", lambda first, epoch: bool(first) == bool(epoch),
         "recipe.full_size_epoch with it (both or none)"),
    Rule("recipe.stages recipe.epochs", _follow_each_other, "rising epochs, the first from 0, the last before {1}"),
    Rule("recipe.stages recipe.batch", lambda stages, batch: not stages or stages[-1].batch in (0, batch),
         "recipe.batch ({1}) in the last one"),
    Rule("recipe.stages recipe.first_size", lambda stages, first: not (stages and first),
         "recipe.first_size 0: both resize"),
    Rule("recipe.stages recipe.rest", lambda stages, rest: not stages or rest == "dropped", "recipe.rest dropped"),
    Rule("recipe.stages recipe.norm_images",
         lambda stages, images: not images or all(one.batch % images == 0 for one in stages),
         "batches that recipe.norm_images ({1}) divides"),
    Rule("recipe.stages data.image_size", lambda stages, size: not size or all(one.pixels <= size for one in stages),
         "pixels up to {1} (data.image_size)"),
)  # fmt: skip

RULES = (
    Rule("name", lambda name: name not in RESERVED,
         f"another name: {', '.join(RESERVED)} hold what experiments share"),
    Rule("model.blur model.name model.width", lambda blur, *network: not blur or _can_blur(*network),
         "false: in {1} of width {2} no convolution with a stride reads 16 channels"),
    *OF_A_TRAINING,
    *(rule.inside("transfer") for rule in OF_A_TRAINING),

    Rule("prune.thresholds prune.methods",
         lambda thresholds, methods: not thresholds or {str(one) for one in methods} == {"magnitude"},
         "prune.methods [magnitude]: an absolute threshold is one on |final weight| over all kernels"),
    Rule("prune.thresholds prune.rounds", lambda thresholds, rounds: not thresholds or rounds == 1,
         "quantiles: rounds go down a list of them"),
    Rule("prune.methods prune.rounds",
         lambda methods, rounds: rounds == 1 or all(one.at == END and one.own_quantile is None for one in methods),
         "in rounds, methods that score the final weights (magnitude, lamp) and leave the density open"),
    Rule("prune.rounds prune.share prune.quantiles",
         lambda rounds, share, quantiles: rounds == 1 or bool(share) != bool(quantiles),
         "prune.share, or prune.quantiles with one for every round (one of the two)"),
    Rule("prune.quantiles prune.rounds",
         lambda quantiles, rounds: rounds == 1 or not quantiles or len(quantiles) == rounds,
         "{1} of them, one for every round"),
    Rule("prune.quantiles prune.rounds",
         lambda quantiles, rounds: rounds == 1 or list(quantiles) == sorted(quantiles), "rising from round to round"),
    Rule("prune.share prune.rounds", lambda share, rounds: not share or rounds > 1,
         "with it prune.rounds above 1; 0 = off"),
    Rule("prune.share prune.rounds prune", lambda share, rounds, prune: not share or _apart(prune.each_quantile),
         "one that prunes some, and leaves some, in each of {1} rounds (to a millionth of the weights)"),
    Rule("prune.budget prune", lambda budget, prune: budget == "weights" or prune.each_quantile,
         "weights: without prune.quantiles or prune.share no share is pruned"),
    *(Rule(f"prune.{name} source.recipe.epochs", _ends_before, "points of training before epoch {1} (recipe.epochs)")
      for name in ("rewind", "lr_rewind", "dense_lr_rewind", "finetune", "control_rewind", "instability")),
    Rule("prune.methods source.recipe.epochs",
         lambda methods, epochs: _ends_before((one.at for one in methods if one.at != END), epochs),
         "points of training before epoch {1} (recipe.epochs), or end"),
    Rule("prune.finetune recipe.schedule",
         lambda points, schedule: not points or schedule in ("constant", "step", "exponential"),
         "a schedule whose last rate is not 0 (recipe.schedule is {1})"),
    *(Rule(f"prune.{name} prune.each_quantile prune", lambda asked, each, prune: set(asked) <= set(each),
           "some of {1}: what is pruned at") for name in ("control_quantiles", "instability_quantiles")),
    Rule("prune.control_rewind prune.rewind", lambda asked, rewind: set(asked) <= set(rewind), "some of prune.rewind"),
    Rule("prune.instability prune",
         lambda points, prune: prune.rounds == 1 or not prune.instability_quantiles or set(points) <= set(prune.rewind),
         "some of prune.rewind: in rounds each has masks of its own"),
    # levels, ways to retrain and controls need each other, or nothing would be trained
    Rule("prune.rewind prune", _trains_what_it_prunes,
         "points to train what is pruned from, here or in prune.lr_rewind or prune.finetune"),
    *(Rule(f"prune.{name} prune", lambda asked, prune: not asked or _prunes(prune),
           "with it prune.quantiles, prune.thresholds or prune.share: without them nothing is pruned")
      for name in ("lr_rewind", "finetune", "controls")),
    Rule("prune.controls prune.rewind", lambda controls, rewind: not controls or rewind,
         "with it prune.rewind: controls belong to tickets that are rewound"),
    *(Rule(f"prune.{name} prune.{wanted}", lambda asked, wanted: not asked or wanted, f"with it prune.{wanted}")
      for name, wanted in (("control_quantiles", "controls"), ("control_rewind", "controls"),
                           ("instability_quantiles", "instability"))),
    Rule("transfer.source prune", lambda source, prune: not source or _transfers(prune),
         "with it prune.rounds 1 and no lr_rewind, dense_lr_rewind, finetune or instability: they train on where they "
         "began"),
    Rule("recipe.rewind_momentum transfer.source", lambda kept, source: not (kept and source),
         "false with transfer.source: momentum is not carried to other data"),
    Rule("transfer transfer.source", lambda transfer, source: source or transfer == Transfer(),
         "with it transfer.source: the experiment, or a name for it"),
    Rule("seeds prune", _few_enough, "with prune.methods, levels, points and controls at most a million trainings"),

    Rule("cluster.trainings_per_gpu cluster.trainings_per_task",
         lambda each, carried: "auto" in (each, carried) or each <= carried,
         "at most cluster.trainings_per_task ({1}): they are trainings of one array element"),
    Rule("cluster.trainings_per_gpu cluster.gpus_per_cell", lambda each, gpus: each == 1 or gpus == 1,
         "1 where a training has several GPUs (cluster.gpus_per_cell is {1})"),
    *(Rule(f"cluster.warning_seconds cluster.{name}", lambda warning, limit: not limit or warning < seconds_of(limit),
           f"less than cluster.{name} ({{1}}): else a task is warned before it begins")
      for name in ("time_limit", "dense_time_limit")),
    Rule("cluster.gpus_per_cell cluster.gpus_per_node", lambda cell, node: node % cell == 0,
         "a divisor of gpus_per_node ({1})"),
)  # fmt: skip


def seconds_of(limit: str) -> int | None:
    """Return a time limit in SLURM's notation as seconds, or None if the text is empty.

    >>> [seconds_of(text) for text in ("90", "1:30", "02:00:00", "1-12", "1-12:30", "")]
    [5400, 90, 7200, 129600, 131400, None]
    """
    if not limit:
        return None
    days, dash, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    weights = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)  # without days, two numbers are minutes and seconds
    return 86400 * int(days or 0) + sum(weight * part for weight, part in zip(weights, parts, strict=False))
