"""The dense run: the whole network trained once, its weights kept at the start, at the rewind epochs, at the end."""

from __future__ import annotations

from sweep import store
from sweep.program import Program
from sweep.store import Store
from sweep.training import Outcome, Start, Watch, train


def run_dense(home: Store, program: Program, seed: int, quiet: bool, watch: Watch) -> None:
    """Train the dense network of one seed."""
    folder = home.dense(seed)
    wanted = {0, *home.experiment.prune.rewind_epochs}

    def keep(epoch: int) -> None:
        if epoch in wanted:
            save_snapshot(home, program, seed, epoch)

    start = Start(program.network.initial(seed), 0, seed)
    outcome = train(program, start, folder, f"dense run, seed {seed}", keep, quiet, watch)
    save_snapshot(home, program, seed, None)
    store.write_json(folder / "result.json", result_of(outcome, program))


def save_snapshot(home: Store, program: Program, seed: int, epoch: int | None) -> None:
    """The weights now, as the snapshot after `epoch` epochs, or as the final one."""
    network, weights = program.network, program.final_weights() if epoch is None else program.weights()
    done = home.experiment.recipe.epochs if epoch is None else epoch
    store.write_snapshot(
        home.snapshot(seed, epoch),
        network,
        weights,
        {
            "epoch": done,
            "step": done * program.steps,
            "hash": home.experiment.hash,
            "image_size": network.image_size,
            "channels": network.channels,
            "classes": network.classes,
            "width": home.experiment.model.width,
        },
    )


def result_of(outcome: Outcome, program: Program) -> dict[str, object]:
    """What result.json says of any training."""
    return {
        "test": outcome.test,
        "validation": outcome.validation,
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "devices": program.devices.replicas,
        "hardware": program.devices.kind,
    }
