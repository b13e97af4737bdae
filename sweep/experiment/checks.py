"""What is well typed but makes no sense is refused, each in one line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from sweep.errors import Refused, cut
from sweep.experiment.controls import CONTROLS
from sweep.experiment.fields import Experiment
from sweep.experiment.options import right_instead
from sweep.experiment.point import END
from sweep.experiment.sources import SOURCES

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TIME = re.compile("N|(N-)?N(:N){1,2}|N-N".replace("N", "[0-9]{1,9}"))
RESERVED = ("trainings", "masks", "compiled", "autotuned", "slurm", "reference")  # folders beside those of experiments


def check(e: Experiment) -> None:
    """Refuse what is well typed but makes no sense."""
    from models import NETWORKS

    def need(ok: bool, where: str, received: object, right: str) -> None:
        if not ok:
            raise Refused(f"{where}: received {cut(str(received))}, expected {right}")

    need(bool(re.fullmatch(r"[\w.+-]+", e.name)) and e.name[0] not in ".-", "name", repr(e.name),
         "letters, digits, - and _, not first -: it names a folder")  # fmt: skip
    need(
        e.name not in RESERVED, "name", repr(e.name), f"another name: {', '.join(RESERVED)} hold what experiments share"
    )
    need(e.model.name in NETWORKS, "model.name", repr(e.model.name), "one of " + ", ".join(NETWORKS))
    need(0 < e.model.width <= 16, "model.width", e.model.width, "more than 0, at most 16")
    d, r, p, c = e.data, e.recipe, e.prune, e.cluster
    need(d.name in SOURCES, "data.name", repr(d.name), "one of " + ", ".join(SOURCES))
    need(d.validation >= 0, "data.validation", d.validation, "a number of images, 0 or more")
    need(0 <= d.pad <= 1024, "data.pad", d.pad, "pixels, 0 to 1024")
    need(
        not d.listing or SOURCES[d.name].listed,
        "data.listing",
        d.listing,
        "nothing: only folder and shards have it",
    )
    need(0 <= d.image_size <= 4096, "data.image_size", d.image_size, "pixels, up to 4096, or 0 for the source's own")
    if d.name == "synthetic":
        need(1 < d.classes <= 100_000, "data.classes", d.classes, "2 to 100000 for synthetic data")
        need(0 < d.images * max(1, d.image_size) ** 2 <= 2**33, "data.images", d.images,
             "1 or more for synthetic data, and few enough for a memory")  # fmt: skip
        need(d.image_size > 0, "data.image_size", d.image_size, "the pixels of synthetic images")
    else:
        need(d.classes == 0, "data.classes", d.classes, "nothing: only synthetic data has it")
        need(d.images == 0, "data.images", d.images, "nothing: only synthetic data has it")

    need(0 < r.epochs <= 10**7, "recipe.epochs", r.epochs, "1 or more, at most 10 million")
    need(0 < r.batch <= 10**6, "recipe.batch", r.batch, "1 or more, at most a million")
    whole = r.norm_images >= 0 and (not r.norm_images or r.batch % r.norm_images == 0)
    need(whole, "recipe.norm_images", r.norm_images,
         f"0 (the whole batch) or a divisor of recipe.batch ({r.batch})")  # fmt: skip
    need(r.learning_rate > 0, "recipe.learning_rate", r.learning_rate, "more than 0")
    need(0 <= r.reference_batch <= 10**6, "recipe.reference_batch", r.reference_batch,
         "0 (no scaling) or a batch size, at most a million")  # fmt: skip
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
    need(0 <= r.first_size <= (d.image_size or 4096), "recipe.first_size", r.first_size,
         f"0 (off) or pixels, up to {d.image_size or 4096} (data.image_size)")  # fmt: skip
    need(0 <= r.full_size_epoch < r.epochs, "recipe.full_size_epoch", r.full_size_epoch,
         f"0 (off) to {r.epochs - 1} (recipe.epochs - 1)")  # fmt: skip
    need(bool(r.first_size) == bool(r.full_size_epoch), "recipe.first_size", r.first_size,
         "recipe.full_size_epoch with it (both or none)")  # fmt: skip
    need(r.checkpoint_minutes > 0, "recipe.checkpoint_minutes", r.checkpoint_minutes, "more than 0")

    for i, kind in enumerate(p.controls):
        need(kind in CONTROLS, f"prune.controls[{i}]", repr(kind), "one of " + ", ".join(CONTROLS))
    for q in (*p.quantiles, *p.control_quantiles):
        need(0 <= q < 1, "prune.quantiles", q, "0 up to, not including, 1 (0.9 = 90 % of the weights go)")
    for t in p.thresholds:
        need(t >= 0, "prune.thresholds", t, "0 or more")
    plain = all(str(method) == "magnitude" for method in p.methods)
    need(plain or not p.thresholds, "prune.thresholds", list(p.thresholds),
         "prune.methods [magnitude]: an absolute threshold is one on |final weight| over all kernels")  # fmt: skip
    need(len(p.methods) > 0, "prune.methods", [], "at least one")
    need(1 <= p.rounds <= 1000, "prune.rounds", p.rounds, "1 (one-shot) to 1000")
    if p.rounds > 1:
        need(not p.thresholds, "prune.thresholds", list(p.thresholds), "quantiles: rounds go down a list of them")
        early = [str(one) for one in p.methods if one.at != END or one.own_quantile is not None]
        need(not early, "prune.methods", early, "in rounds, methods that score the final weights (magnitude, lamp) "
             "and leave the density open")  # fmt: skip
        need(bool(p.share) != bool(p.quantiles), "prune.rounds", p.rounds,
             "prune.share, or prune.quantiles with one for every round (one of the two)")  # fmt: skip
        need(bool(p.share) or len(p.quantiles) == p.rounds, "prune.quantiles", list(p.quantiles),
             f"{p.rounds} of them, one for every round")  # fmt: skip
        need(
            list(p.quantiles) == sorted(p.quantiles), "prune.quantiles", list(p.quantiles), "rising from round to round"
        )
    need(0 <= p.share < 1, "prune.share", p.share, "more than 0 and less than 1; 0 = off")
    need(not p.share or p.rounds > 1, "prune.share", p.share, "with it prune.rounds above 1; 0 = off")
    apart = len(set(p.each_quantile)) == len(p.each_quantile) and max(p.each_quantile, default=0) < 1
    need(not p.share or apart, "prune.share", p.share, f"one that prunes some, and leaves some, in each of {p.rounds} "
         "rounds (to a millionth of the weights)")  # fmt: skip
    for name in ("rewind", "lr_rewind", "dense_lr_rewind", "finetune", "control_rewind", "instability"):
        for k in getattr(p, name):
            need(k != END and (k.unit != "ep" or k.count < r.epochs), f"prune.{name}", k,
                 f"a point from 0 to {r.epochs - 1}ep (recipe.epochs - 1)")  # fmt: skip
    for one in p.methods:
        need(one.at.unit != "ep" or one.at.count < r.epochs, "prune.methods", one,
             f"a point from 0 to {r.epochs - 1}ep (recipe.epochs - 1), or end")  # fmt: skip
    need(not p.finetune or r.schedule in ("constant", "step", "exponential"), "prune.finetune",
         [str(k) for k in p.finetune],
         f"a schedule whose last rate is not 0 (recipe.schedule is {r.schedule})")  # fmt: skip
    for name in ("control_quantiles", "instability_quantiles"):
        asked = list(getattr(p, name))
        right = f"some of {list(p.each_quantile)}, one a round" if p.share else "some of prune.quantiles"
        need(set(asked) <= set(p.each_quantile), f"prune.{name}", asked, right)
    need(p.rounds == 1 or not p.instability_quantiles or set(p.instability) <= set(p.rewind), "prune.instability",
         [str(k) for k in p.instability], "some of prune.rewind: in rounds each has masks of its own")  # fmt: skip
    for name in ("quantiles", "thresholds", "methods", "rewind", "lr_rewind", "dense_lr_rewind", "finetune", "controls",
                 "control_quantiles", "control_rewind", "instability", "instability_quantiles"):  # fmt: skip
        values = getattr(p, name)
        need(len(set(values)) == len(values), f"prune.{name}", [str(v) for v in values], "each value once")
    need(set(p.control_rewind) <= set(p.rewind), "prune.control_rewind",
         [str(k) for k in p.control_rewind], "some of prune.rewind")  # fmt: skip
    _check_what_for(e, need)
    need(bool(e.track.project), "track.project", repr(e.track.project), "the name of a wandb project")
    need(len(e.seeds) > 0, "seeds", list(e.seeds), "at least one")
    need(len(set(e.seeds)) == len(e.seeds) and min(e.seeds) >= 0, "seeds", list(e.seeds), "each once, 0 or more")
    need(max(e.seeds) < 2**31, "seeds", max(e.seeds), "less than 2147483648")
    levels = max(p.rounds if p.share else 0, len(p.quantiles) + len(p.thresholds), 1)
    places = len(p.rewind) + len(p.lr_rewind) + len(p.finetune) + 2 * len(p.instability)
    trainings = len(e.seeds) * len(p.methods) * levels * places * (1 + len(p.controls))
    need(trainings <= 10**6, "prune", f"up to {trainings} trainings", "at most a million")
    for section in ("data", "cluster", "track"):
        for field in dataclasses.fields(getattr(e, section)):
            value = getattr(getattr(e, section), field.name)
            for text in value if isinstance(value, tuple) else (value,):
                need(not (isinstance(text, str) and _CONTROL.search(text)), f"{section}.{field.name}", repr(text),
                     "no line breaks or other control characters")  # fmt: skip
    for name in ("partition", "account", "qos"):
        need(bool(re.fullmatch(r"[A-Za-z0-9_.,:@+-]*", getattr(c, name))), f"cluster.{name}", repr(getattr(c, name)),
             "one word of letters, digits and _ . , : @ + -")  # fmt: skip
    for option in c.options:
        need(not right_instead(option), "cluster.options", repr(option), right_instead(option))
    for name in ("nodes", "gpus_per_node", "gpus_per_cell", "cpus_per_gpu", "warning_seconds"):
        need(getattr(c, name) > 0, f"cluster.{name}", getattr(c, name), "1 or more")
    need(c.warning_seconds <= 65535, "cluster.warning_seconds", c.warning_seconds, "at most 65535, as SLURM takes it")
    each, carried = c.trainings_per_gpu, c.trainings_per_task
    for name, count in (("trainings_per_gpu", each), ("trainings_per_task", carried)):
        need(count == "auto" or count > 0, f"cluster.{name}", count, "1 or more, or auto")
    need(each == "auto" or carried == "auto" or each <= carried, "cluster.trainings_per_gpu", each,
         f"at most cluster.trainings_per_task ({carried}): they are trainings of one array element")  # fmt: skip
    need(each == 1 or c.gpus_per_cell == 1, "cluster.trainings_per_gpu", each,
         f"1 where a training has several GPUs (cluster.gpus_per_cell is {c.gpus_per_cell})")  # fmt: skip
    for name in ("array_parallelism", "restarts"):
        need(getattr(c, name) >= 0, f"cluster.{name}", getattr(c, name), "0 or more")
    for name in ("time_limit", "dense_time_limit"):
        need(not getattr(c, name) or bool(_TIME.fullmatch(getattr(c, name))),
             f"cluster.{name}", repr(getattr(c, name)), "minutes, H:M:S or D-H:M:S")  # fmt: skip
        seconds = seconds_of(getattr(c, name))
        need(seconds is None or c.warning_seconds < seconds, "cluster.warning_seconds", c.warning_seconds,
             f"less than cluster.{name} ({getattr(c, name)}): else a task is warned before it begins")  # fmt: skip
    need(c.price_per_gpu_hour >= 0, "cluster.price_per_gpu_hour", c.price_per_gpu_hour, "0 (unknown) or more")
    need(bool(re.fullmatch(r"[0-9]{1,9}[KMGT]?", c.memory_per_gpu)), "cluster.memory_per_gpu", repr(c.memory_per_gpu),
         "a size as SLURM writes it, such as 32G")  # fmt: skip
    need(c.gpus_per_node % c.gpus_per_cell == 0, "cluster.gpus_per_cell", c.gpus_per_cell,
         f"a divisor of gpus_per_node ({c.gpus_per_node})")  # fmt: skip


def _check_what_for(e: Experiment, need: Callable[[bool, str, object, str], None]) -> None:
    """Refuse levels, ways to retrain and controls with which nothing would be trained: they need each other."""
    p = e.prune
    levels = p.each_quantile or p.thresholds or any(one.own_quantile is not None for one in p.methods)
    unstable = p.instability and p.instability_quantiles
    need(not levels or bool(p.rewind or p.lr_rewind or p.finetune or unstable), "prune.rewind", [],
         "points to train what is pruned from, here or in prune.lr_rewind or prune.finetune")  # fmt: skip
    for name in ("lr_rewind", "finetune", "controls"):
        asked = getattr(p, name)
        need(bool(levels) or not asked, f"prune.{name}", [str(one) for one in asked],
             "with it prune.quantiles, prune.thresholds or prune.share: without them nothing is pruned")  # fmt: skip
    need(not p.controls or bool(p.rewind), "prune.controls", list(p.controls),
         "with it prune.rewind: controls belong to tickets that are rewound")  # fmt: skip
    for name, wanted in (("control_quantiles", "controls"), ("control_rewind", "controls"),
                         ("instability_quantiles", "instability")):  # fmt: skip
        asked = getattr(p, name)
        need(not asked or bool(getattr(p, wanted)), f"prune.{name}", [str(one) for one in asked],
             f"with it prune.{wanted}")  # fmt: skip


def seconds_of(limit: str) -> int | None:
    """A time limit as SLURM writes it; None where there is none.

    >>> [seconds_of(text) for text in ("90", "1:30", "02:00:00", "1-12", "1-12:30", "")]
    [5400, 90, 7200, 129600, 131400, None]
    """
    if not limit:
        return None
    days, dash, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 1:
        hours, minutes, seconds = 0, parts[0], 0
    else:  # minutes:seconds, or hours:minutes:seconds
        hours, minutes, seconds = ((0, *parts) if len(parts) == 2 else parts)[:3]
    return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds
