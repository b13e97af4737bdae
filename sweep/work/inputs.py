"""The inputs of a task, opened and checked once; later code relies on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models import Weights
from sweep import files
from sweep.errors import Refused
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.mask_file import Found, Scorer, make_mask
from sweep.graph.runs import Runs
from sweep.graph.snapshot_file import adopted_weights, initial_weights, read_memory
from sweep.graph.training import Task
from sweep.pruning.masks import emptied
from sweep.training.start import Start

if TYPE_CHECKING:  # TensorFlow is loaded only when something is trained
    from sweep.training.program import Program


class Skipped(Exception):
    """The training is not started because a layer is fully pruned (`prune.collapse: skip`)."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a task, checked: they fit its network and data, and come from the runs that are in the pool."""

    training: Task
    folder: Path  # of the training
    program: Program
    weights: tuple[Weights, ...]  # weights of other trainings: its start, or the ends of a line
    mask: Found | None
    runs: dict[str, str]  # hashes of the runs it comes from, by name
    begun_from: dict[str, str]  # those that its first session started from, to which its checkpoint belongs
    memory: dict[str, np.ndarray] = field(default_factory=dict)  # of the optimizer, where it comes with the weights

    def start(self) -> Start:
        """Return weights, mask and first step of the training."""
        training, network, steps = self.training, self.program.network, self.program.steps
        origin, total = training.start, END.step(training.recipe, steps)
        begin = training.begin.step(training.recipe, steps)
        if begin >= total:
            raise Refused(f"prune.rewind: {training.begin} lies after the end ({total} steps)")
        weights = self.weights[0] if self.weights else initial_weights(training, network)
        if origin.keeps:
            other = network.initial(origin.other or 0).kernels
            signs, sizes = (weights.kernels, other) if origin.keeps == "signs" else (other, weights.kernels)
            weights = weights._replace(kernels=np.copysign(sizes, signs))
        mask = self.mask.mask if self.mask else None
        data = self.program.fingerprint
        return Start(weights, begin, training.seed, mask, training.rates == "last", data, self.memory)


def open_inputs(home: Home, training: Task, device: Scorer) -> Inputs:
    """Return the inputs of a task; raise Refused if one is missing or does not fit, Skipped if it cannot train."""
    for parent in training.needs:
        if why := home.skipped(parent):
            raise Skipped(f"{parent.slug} was skipped: {why}")
    runs, folder = Runs(home.pool), home.folder(training)
    came_from, starts = runs.origins(training), home.starts(training)
    mask, program = mask_of(home, training, device), device.program(training)
    _refuse_other_images(home, training, runs, program.fingerprint)
    # a source on other data may have other classes
    read = partial(adopted_weights, seed=training.origin) if training.transferred else files.read_snapshot
    weights = tuple(read(path, program.network) for path in starts)
    memory = read_memory(starts[0]) if starts and training.recipe.rewind_momentum else {}
    begun_from = runs.recorded(training.name) if (folder / "checkpoint.h5").exists() else came_from
    return Inputs(training, folder, program, weights, mask, came_from, begun_from, memory)


def mask_of(home: Home, training: Task, scorer: Scorer) -> Found | None:
    """Return the mask of a training, or None; raise Skipped or Refused (`prune.collapse`) if it empties a layer.

    A finished training is trained again for lost weights in any case: another experiment may have asked for it.
    """
    network = scorer.program(training).network if training.transferred else None
    found = make_mask(home, training.mask, scorer, network) if training.mask else None
    empty, collapse = emptied(found.mask, found.network) if found else [], home.experiment.prune.collapse
    if not empty or collapse == "train" or home.done(training):
        return found
    names = ", ".join(empty[:3]) + (", …" if len(empty) > 3 else "")
    why = f"{len(empty)} layer{'s' if len(empty) > 1 else ''} fully pruned ({names})"
    if collapse == "refuse":
        raise Refused(f"{training.slug}: {why}; expected prune.collapse skip or train, or another method or level")
    raise Skipped(why)


def _refuse_other_images(home: Home, training: Task, runs: Runs, fingerprint: str) -> None:
    """Raise Refused if finished trainings on this data set, such as the dense run, had other images."""
    for other in (*training.needs, *home.graph):  # its parents first, else any finished training
        if other.data == training.data and (result := runs.record(other.name)):
            if (before := result.get("fingerprint")) != fingerprint:
                raise Refused(
                    f"data: {other.name} was trained on other images (fingerprint {before}, these have {fingerprint}); "
                    "expected the same ones at data.path"
                )
            return
