"""The command `lottery profile`: where the time of a training step goes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, Devices, ExperimentName, Json, Override, Results, find
from sweep.data import refuse_absent
from sweep.errors import Refused
from sweep.progress import console, show

KERNELS = 10  # that the table shows


def profile(
    experiment: ExperimentName,
    *overrides: Override,
    steps: Annotated[int, Parameter(help="Training steps in the trace")] = 5,
    to: Annotated[Path, Parameter(help="Folder for the trace")] = Path("profile"),
    devices: Devices = 0,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """Profile some training steps: the ten largest kernels, and a trace for TensorBoard and Perfetto.

    Example: lottery profile dry_run model.name=resnet20
    """
    if steps < 1:
        raise Refused(f"--steps {steps}: expected 1 or more")
    asked, _ = find(experiment, overrides, results)
    refuse_absent(asked.data)
    from sweep.bench import profile as profiling
    from sweep.bench.roofline import measured
    from sweep.devices import prepare

    where = prepare(devices)
    to.mkdir(parents=True, exist_ok=True)
    found = profiling.profile(asked, where, steps, measured(where, asked.recipe.precision), to)
    if json_:
        print(json.dumps([asdict(kernel) for kernel in found], indent=1))
        return 0
    total = sum(kernel.milliseconds for kernel in found)
    table = Table("kernel", "calls", "ms/step", "share", "GB/step", "of memory rate",
                  title=f"{asked.model.name}, {where}: {total:.2f} ms of kernels per step")  # fmt: skip
    for kernel in found[:KERNELS]:
        moved = "–" if kernel.gigabytes is None else f"{kernel.gigabytes:.3g}"
        rate = "–" if kernel.memory_share is None else f"{kernel.memory_share:.0%}"
        table.add_row(
            kernel.name[:60], f"{kernel.calls:g}", f"{kernel.milliseconds:.3f}", f"{kernel.share:.1%}", moved, rate
        )
    show(table)
    console.print(f"trace: {to / profiling.TRACE} (ui.perfetto.dev, chrome://tracing); tensorboard --logdir {to}")
    return 0
