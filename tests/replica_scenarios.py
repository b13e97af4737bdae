"""Run by test_replicas.py in a process of its own:  python -m tests.replica_scenarios NAME DEVICES RECIPE"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from models import Weights
from sweep.devices import prepare
from tests.conftest import connected_mask, tiny
from tests.networks import inverted_residuals, one_convolution


def program_of(devices: int, **recipe):
    from sweep.data import open_dataset
    from sweep.training.program import Program

    experiment = tiny(**recipe)
    return Program(experiment, open_dataset(experiment.data), prepare(devices))


def train(devices: int, **recipe) -> dict:
    import tensorflow as tf

    from sweep.data import augment
    from sweep.training.schedule import epoch_of

    run = program_of(devices, **recipe)
    network, mask = run.network, connected_mask(run.network)
    begin = network.initial(0)
    epoch = epoch_of(run.recipe, 0, 0, len(run.dataset.train), run.dataset.image_size)

    def gradients(weights: Weights, share: int, of: int, training: bool = True):
        """Gradient and statistics of one share of the first batch, computed on one device, step by step."""
        each = run.recipe.batch // of
        rows = epoch.order[0, share * each : (share + 1) * each]
        images, labels = run.dataset.train.images[rows], run.dataset.train.labels[rows]
        tops, lefts, flips = (
            augment.uniform(tf.constant(epoch.seeds[0]), purpose, run.recipe.batch, (share, of), 0, high)
            for purpose, high in ((1, 3), (2, 3), (3, 2))
        )
        images = augment.flipped(augment.cropped(tf.constant(images), 1, tops, lefts), flips)
        seen.setdefault(of, []).append(images.numpy())
        images = augment.normalised(images, run.dataset.mean, run.dataset.deviation, tf.float32)
        tensors = Weights(*map(tf.constant, weights))
        with tf.GradientTape() as tape:
            tape.watch((tensors.kernels, tensors.others))
            logits, statistics = network.apply(tensors, images, training)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / run.recipe.batch
        return tape.gradient(loss, tensors.kernels).numpy(), statistics.numpy()

    seen: dict[int, list] = {}
    start = Weights(np.where(mask, begin.kernels, np.float32(0)), begin.others, begin.statistics)
    shares = [gradients(start, share, devices) for share in range(devices)]
    gradient = np.where(mask, sum(g for g, _ in shares), 0) + run.recipe.weight_decay * start.kernels
    move = gradient * (1 + run.recipe.momentum)  # Nesterov's first step
    frozen = sum(gradients(start, share, devices, training=False)[0] for share in range(devices))
    seen.clear()
    whole = gradients(start, 0, 1, training=False)[0]
    for share in range(devices):
        gradients(start, share, devices)
    alike = np.array_equal(np.concatenate(seen[devices]), seen[1][0])

    run.load(begin, mask)
    run.run(epoch, 0, 1)
    step, statistics = run.weights().kernels, run.weights().statistics
    run.run(epoch, 1, run.steps)
    names = ["kernels", "others", "statistics", "slot0_kernels", "sums"] + (["ema_kernels"] if run.recipe.ema else [])
    copies = {name: run.replicas_of(name) for name in names}
    test = run.dataset.test
    images = augment.normalised(test.images, run.dataset.mean, run.dataset.deviation, tf.float32)
    logits = network.apply(Weights(*map(tf.constant, run.evaluation.weights())), images, False)[0].numpy()
    by_hand = (logits.argmax(1) == test.labels).mean()
    return {
        "replicas": len(copies["kernels"]),
        "equal": all(part.tobytes() == parts[0].tobytes() for parts in copies.values() for part in parts),
        "pruned_nonzero": int(sum((c[~mask] != 0).sum() for name in names if "kernels" in name for c in copies[name])),
        "survivors_moved": float((copies["kernels"][0][mask] != begin.kernels[mask]).mean()),
        "step": step[mask][:200].tolist(),
        "step_by_quarters": (start.kernels - epoch.learning_rates[0] * move)[mask][:200].tolist(),
        "statistics": statistics[:100].tolist(),
        "statistics_by_quarters": (sum(s for _, s in shares) / devices)[:100].tolist(),
        "frozen": frozen[:200].tolist(),
        "frozen_by_one": whole[:200].tolist(),
        "augmented_alike": bool(alike),
        "evaluated": run.evaluation.metrics(run.dataset.test)["top1"],
        "evaluated_by_hand": float(by_hand),
    }


def depthwise(devices: int, **recipe) -> dict:
    """A network with depthwise convolutions, as it is trained on GPUs."""
    import models.shaped
    from models import NETWORKS
    from sweep.data import open_dataset
    from sweep.experiment import Model
    from sweep.training.program import Program
    from sweep.training.schedule import epoch_of

    models.shaped.WIDE = 0
    NETWORKS["inverted residuals"] = inverted_residuals
    experiment = dataclasses.replace(tiny(**recipe), model=Model("inverted residuals"))
    run = Program(experiment, open_dataset(experiment.data), prepare(devices))
    epoch = epoch_of(run.recipe, 0, 0, len(run.dataset.train), run.dataset.image_size)
    run.load(run.network.initial(0))
    run.run(epoch, 0, 1)
    loss = run.take_sums()[0]
    run.run(epoch, 1, run.steps)
    copies = [run.replicas_of(name) for name in ("kernels", "statistics", "slot0_kernels")]
    return {"loss": loss, "equal": all(part.tobytes() == parts[0].tobytes() for parts in copies for part in parts)}


def alike(devices: int, network: str = "resnet8", **recipe) -> dict:
    """Where 20 steps lead a ticket, and the loss of each epoch."""
    import models.shaped
    from models import NETWORKS
    from sweep.data import open_dataset
    from sweep.experiment import Model
    from sweep.training.program import Program
    from sweep.training.schedule import epoch_of

    models.shaped.WIDE = 0
    NETWORKS["one_convolution"] = one_convolution
    experiment = dataclasses.replace(tiny(**recipe), model=Model(network, 0.25))
    run = Program(experiment, open_dataset(experiment.data), prepare(devices))
    run.load(run.network.initial(0), connected_mask(run.network))
    losses = []
    for number in range(experiment.recipe.epochs):
        run.clear_sums()
        run.run(epoch_of(run.recipe, 0, number, len(run.dataset.train), run.dataset.image_size), 0, run.steps)
        losses.append(run.take_sums()[0])
    weights = run.weights()
    return {"weights": np.concatenate(weights).tolist(), "losses": losses}


def sweep(devices: int, folder: str) -> dict:
    from slurm.local import Local
    from sweep.graph.home import open_home
    from sweep.graph.results import collect
    from sweep.graph.state import states

    home = open_home(tiny(norm_images=4), Path(folder) / "tiny")
    failures = Local(devices=devices, quiet=True).run(home)
    return {
        "failures": [f.reason for f in failures],
        "states": Counter(state.state for state in states(home)),
        "top1": [row.test_top1 for row in collect(home)],
    }


if __name__ == "__main__":
    name, devices, recipe = sys.argv[1:]
    print(
        json.dumps(
            {"train": train, "depthwise": depthwise, "alike": alike, "sweep": sweep}[name](
                int(devices), **json.loads(recipe)
            )
        )
    )
