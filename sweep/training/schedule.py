"""The recipe as functions of the step: learning rates, data order, random seeds, mixing, image size.

Everything here is a pure function of (recipe, seed, epoch), computed with numpy before the epoch starts. So a ticket
that begins at epoch k continues the dense run's schedule, data order and augmentation by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.errors import Refused
from sweep.experiment import END, Experiment, Method, Point, Recipe

Array = np.ndarray


@dataclass(frozen=True)
class Epoch:
    """The inputs of the steps of one epoch, one row per step."""

    order: Array  # [steps, batch] int32, indices of training images
    learning_rates: Array  # [steps] float32
    seeds: Array  # [steps, 2] int32, for the randomness inside the step
    mixing: Array  # [steps, 2] float32, share of the image itself in mixup and in cutmix; 1 = not mixed
    image_size: int
    windows: Array | None = None  # [steps, batch, 4] float32, to cut from resident shards; None: images are whole


def epoch_of(recipe: Recipe, seed: int, epoch: int, images: int, image_size: int, last_rate: bool = False) -> Epoch:
    """Return the inputs of epoch number `epoch` (from 0) of a training with this seed."""
    per_epoch = steps_of(recipe, images)
    steps = recipe.steps_at(epoch, per_epoch)
    return Epoch(
        order=order(seed, epoch, images, recipe.batch_at(epoch), recipe.rest == "carried")[:steps],
        learning_rates=rates_of(recipe, epoch, per_epoch, last_rate),
        seeds=np.random.SeedSequence([seed, epoch]).generate_state(2 * steps).astype(np.int32).reshape(steps, 2),
        mixing=mixing(recipe, seed, epoch, steps),
        image_size=size_at(recipe, epoch, image_size),
    )


def steps_of(recipe: Recipe, images: int) -> int:
    """Return the number of steps of an epoch in batches of `recipe.batch`."""
    return images // recipe.batch if recipe.rest == "dropped" else -(-images // recipe.batch)


def order(seed: int, epoch: int, images: int, batch: int, carried: bool = False) -> Array:
    """Return the image indices of each step `[steps, batch]`: a new permutation every epoch, its uneven end dropped.

    `carried`: batches go on from one permutation to the next, and an epoch begins where the one before it ended.
    """
    taken = -(-images // batch) * batch if carried else images // batch * batch
    first = epoch * (taken if carried else images)  # place in all permutations, one after the other
    passes = range(first // images, -(-(first + taken) // images))
    permutations = [np.random.Generator(np.random.Philox([seed, one])).permutation(images) for one in passes]
    return np.concatenate(permutations)[first % images :][:taken].astype(np.int32).reshape(-1, batch)


def peak_rate(recipe: Recipe, batch: int) -> float:
    """Return the learning rate that the schedule multiplies: × batch / reference_batch if the recipe has one."""
    scale = batch / recipe.reference_batch if recipe.reference_batch else 1.0
    return recipe.learning_rate * scale


def learning_rates(recipe: Recipe, epoch: int, steps: int) -> Array:
    """Return the learning rate of each step of an epoch, `[steps]`.

    >>> step = Recipe(epochs=3, schedule="step", milestones=(1, 2), learning_rate=0.1)
    >>> [round(float(learning_rates(step, e, steps=2)[0]), 6) for e in range(3)]
    [0.1, 0.01, 0.001]
    """
    at = epoch + np.arange(steps) / steps  # time in epochs
    rate = peak_rate(recipe, recipe.batch_at(epoch)) * SCHEDULES[recipe.schedule](recipe, at)
    if recipe.warmup_epochs:
        rate = rate * np.minimum(1.0, (at + 1.0 / steps) / recipe.warmup_epochs)
    return rate.astype(np.float32)


def rates_of(recipe: Recipe, epoch: int, per_epoch: int, last_rate: bool) -> Array:
    """Return the learning rates of an epoch: the schedule's, or for fine-tuning its last rate at every step."""
    steps, last = recipe.steps_at(epoch, per_epoch), recipe.epochs - 1
    if not last_rate:
        return learning_rates(recipe, epoch, steps)
    return np.full(steps, learning_rates(recipe, last, recipe.steps_at(last, per_epoch))[-1])


def _constant(recipe: Recipe, at: Array) -> Array:
    return np.ones_like(at)


def _step(recipe: Recipe, at: Array) -> Array:
    """Return γⁿ, n the number of milestones passed."""
    passed = sum((at >= milestone).astype(int) for milestone in recipe.milestones)
    return np.power(recipe.gamma, passed)


def _cosine(recipe: Recipe, at: Array) -> Array:
    """Return ½(1 + cos πt), t from 0 after the warm-up to 1 at the end."""
    done = np.clip((at - recipe.warmup_epochs) / (recipe.epochs - recipe.warmup_epochs), 0.0, 1.0)
    return 0.5 * (1.0 + np.cos(np.pi * done))


def _linear(recipe: Recipe, at: Array) -> Array:
    """Return 1 − t, t from 0 after the warm-up to 1 at the end."""
    return np.clip((recipe.epochs - at) / (recipe.epochs - recipe.warmup_epochs), 0.0, 1.0)


def _exponential(recipe: Recipe, at: Array) -> Array:
    """Return decayⁿ, n the number of whole epochs so far."""
    return np.power(recipe.decay, np.floor(at))


def _one_cycle(recipe: Recipe, at: Array) -> Array:
    """Return the one-cycle schedule (Smith 2018): a cosine from 1/25 to 1 in 30 % of the time, then one down to 0."""
    done, up = at / recipe.epochs, 0.3
    rise = 0.04 + 0.96 * 0.5 * (1.0 - np.cos(np.pi * np.minimum(done / up, 1.0)))
    fall = 0.5 * (1.0 + np.cos(np.pi * np.clip((done - up) / (1.0 - up), 0.0, 1.0)))
    return np.where(done < up, rise, fall)


SCHEDULES = {
    "constant": _constant,
    "step": _step,
    "cosine": _cosine,
    "linear": _linear,
    "exponential": _exponential,
    "one_cycle": _one_cycle,
}


def mixing(recipe: Recipe, seed: int, epoch: int, steps: int) -> Array:
    """Return the shares for mixup and cutmix of each step (Epoch.mixing); if both are on, each step gets one."""
    shares = np.ones((steps, 2), np.float32)
    if recipe.mixup or recipe.cutmix:
        stream = np.random.Generator(np.random.Philox([seed, epoch, 1]))
        both = recipe.mixup and recipe.cutmix
        coin = stream.random(steps) < 1 - recipe.cutmix_share if both else np.full(steps, recipe.mixup > 0)
        drawn = stream.beta(recipe.mixup or 1.0, recipe.mixup or 1.0, steps)
        shares[:, 0] = np.where(coin, drawn, 1.0)
        drawn = stream.beta(recipe.cutmix or 1.0, recipe.cutmix or 1.0, steps)
        shares[:, 1] = np.where(coin, 1.0, drawn)
        if recipe.mixing_share < 1:
            shares[stream.random(steps) >= recipe.mixing_share] = 1.0
    return shares


def size_at(recipe: Recipe, epoch: int, full: int) -> int:
    """Return the image size of an epoch: that of its stage, or else linear from `first_size` to `full`.

    The latter is rounded to max(4, full / 8) pixels. Each size is compiled separately, so there are few of them.
    """
    if recipe.stages:
        return recipe.stage_at(epoch).pixels
    if epoch >= recipe.full_size_epoch:
        return full
    size = recipe.first_size + (full - recipe.first_size) * epoch / recipe.full_size_epoch
    step = max(4, full // 8)
    return min(full, max(step, round(size / step) * step))


def check_batch(recipe: Recipe, images: int) -> None:
    """Raise Refused if there are fewer training images than one batch has."""
    if images < recipe.batch:
        raise Refused(f"recipe.batch: received {recipe.batch}, expected at most the {images} training images")
    most = images // recipe.batch * recipe.batch
    if (largest := max(recipe.batches)) > most:
        raise Refused(f"recipe.stages: a batch of {largest}, expected at most the {most} images of an epoch")


def check_size(recipe: Recipe, full: int) -> None:
    """Raise Refused if progressive resizing would take larger images than there are."""
    if (most := max((one.pixels for one in recipe.stages), default=0)) > full:
        raise Refused(f"recipe.stages: {most}px, expected at most the images' {full} pixels")
    if recipe.first_size > full:
        raise Refused(f"recipe.first_size: received {recipe.first_size}, expected at most the images' {full} pixels")


def check_points(experiment: Experiment, images: int) -> None:
    """Raise Refused if a point is after the end of training, or if two points are the same step.

    They are points of the dense runs that tickets come from; `images` is the number of training images there.
    """
    prune, recipe = experiment.prune, experiment.source.recipe
    steps = steps_of(recipe, images)
    total, each = END.step(recipe, steps), "" if recipe.stages else f" ({steps} in an epoch)"
    early = f"a point before the end of training, after {total} steps{each}"
    for name in ("rewind", "lr_rewind", "dense_lr_rewind", "finetune", "control_rewind", "instability"):
        named: dict[int, Point] = {}
        for at in getattr(prune, name):
            step = at.step(recipe, steps)
            if step >= total:
                raise Refused(f"prune.{name}: received {at}, expected {early}")
            if step in named:
                raise Refused(f"prune.{name}: {named[step]} and {at} are the same step, {step}; expected one of them")
            named[step] = at
    scored: dict[tuple[str, str, int], Method] = {}
    for one in prune.methods:
        step = one.at.step(recipe, steps)
        if step >= total and one.at != END:
            raise Refused(f"prune.methods: received {one}, expected end or {early}")
        if (other := scored.setdefault((one.score, one.allocation, step), one)) != one:
            raise Refused(f"prune.methods: {other} and {one} score the same step, {step}; expected one of them")


def groups_of(recipe: Recipe, replicas: int, batch: int) -> int:
    """Return the number of batch-norm groups per replica in a batch of `batch` images on all replicas."""
    return batch // (replicas * (recipe.norm_images or batch))


def check_devices(recipe: Recipe, replicas: int) -> None:
    """Raise Refused if the replicas cannot share a batch."""
    for batch in sorted(recipe.batches):
        together = recipe.norm_images or batch
        if batch % (replicas * together):
            most = most_devices(recipe, batch // together)
            raise Refused(
                f"recipe.norm_images: batch norm sees {together} images together, so a batch of {batch} fits "
                f"{most} device{'s' if most > 1 else ''} and not {replicas}; expected --devices {most}, or norm_images "
                f"(of dense run and tickets alike) that {batch} / {replicas} is a multiple of"
            )


def most_devices(recipe: Recipe, available: int) -> int:
    """Return the largest number of devices, at most `available`, that can share a batch."""
    shares = [batch // (recipe.norm_images or batch) for batch in recipe.batches]
    return max(n for n in range(1, max(available, 1) + 1) if all(share % n == 0 for share in shares))
