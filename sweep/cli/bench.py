"""The speed of a training step."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.table import Table

from sweep.cli.find import Devices
from sweep.cli.show import Json
from sweep.experiment import Data, Experiment, Model, Recipe, check
from sweep.progress import console, show

app = App(name="bench", help="Measure speed on this machine.", help_format="plaintext")


@app.command
def step(
    *,
    model: str = "mobilenet_v2_small",
    width: float = 0.35,
    size: int = 32,
    batch: int = 64,
    precision: Literal["float32", "bfloat16", "float16"] = "float32",
    mask: Annotated[bool, Parameter(help="Compare with the same step without a mask, interleaved")] = False,
    rounds: int = 20,
    steps: int = 5,
    devices: Devices = 0,
    json_: Json = False,
) -> int:
    """Time of one training step on made-up images.

    Example: lottery bench step --mask --size 32 --batch 64
    """
    experiment = Experiment(
        name="bench",
        model=Model(model, width),
        data=Data("synthetic", image_size=size, classes=10, images=batch * steps, pad=4, flip=True),
        recipe=Recipe(batch=batch, learning_rate=0.01, weight_decay=1e-4, precision=precision),
    )
    check(experiment)
    from sweep.bench import time_steps
    from sweep.devices import prepare

    where = prepare(devices)
    found = time_steps(experiment, where, (True, False) if mask else (True,), rounds, steps)
    if json_:
        print(json.dumps([asdict(timing) for timing in found], indent=1))
        return 0
    table = Table(
        "step",
        "first call s",
        "ms/step",
        "images/s",
        title=f"{model} {width:g}, {size} px, batch {batch}, {precision}, {where}",
    )
    for timing in found:
        table.add_row(
            timing.variant, f"{timing.first_seconds:.1f}", f"{timing.step_ms:.2f}", f"{timing.images_per_second:.0f}"
        )
    show(table)
    if mask:
        console.print(f"the mask costs {100 * (found[0].step_ms / found[1].step_ms - 1):+.2f} % of a step")
    return 0
