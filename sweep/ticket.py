"""One cell: where its training starts, and its result. A control differs from its ticket in one line."""

from __future__ import annotations

import numpy as np

from sweep import masks, store
from sweep.dense import result_of
from sweep.mask_file import MaskFile, make_masks
from sweep.plan import Cell
from sweep.program import Program
from sweep.store import Store
from sweep.training import Start, Watch, train


def run_cell(home: Store, program: Program, cell: Cell, quiet: bool, watch: Watch) -> None:
    """Train one cell."""
    folder = home.cell(cell.slug)
    mask_file = make_masks(home, cell.seed)  # reads them, and refuses those of other final weights
    start = start_of(home, cell, mask_file)
    outcome = train(program, start, folder, cell.slug, quiet=quiet, watch=watch)
    assert start.mask is not None
    result = {
        **result_of(outcome, program),
        "density": float(start.mask.mean()),
        "kept": int(start.mask.sum()),
        "prunable": int(start.mask.size),
        "threshold": mask_file.thresholds[str(cell.level)],
    }
    store.write_json(folder / "result.json", result)
    (folder / "checkpoint.h5").unlink(missing_ok=True)


def start_of(home: Store, cell: Cell, mask_file: MaskFile) -> Start:
    """Ticket: the mask of the final weights on the weights of the rewind epoch."""
    network, mask = mask_file.network, mask_file.masks[str(cell.level)]
    sizes = masks.kernel_sizes(network)
    if cell.kind == "shuffled":
        mask = masks.shuffled(mask, sizes, masks.stream(cell.seed, "shuffled", cell.level))
    elif cell.kind == "random":
        mask = masks.random(mask, masks.stream(cell.seed, "random", cell.level))
    if cell.kind == "fresh":
        weights = network.initial(int(np.random.SeedSequence([cell.seed, 1]).generate_state(1)[0]))
    else:
        # finetune: the final weights, trained over the same epochs with the same schedule as the ticket
        epoch = None if cell.kind == "finetune" else cell.rewind_epoch
        weights = store.read_snapshot(home.snapshot(cell.seed, epoch), network)
    return Start(weights, cell.rewind_epoch, cell.seed, mask)
