"""A contact sheet: some images of every class, with their aspect ratios, to look at before training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sweep.data.shards import Reader, Shards

SIDE, ACROSS, CLASSES = 96, 8, 24  # pixels of a picture's longer side; pictures per class; most classes


def contact_sheet(shards: Shards, path: Path) -> None:
    """Write a PNG with a row of pictures per class, for at most CLASSES classes, evenly spaced."""
    from PIL import Image

    names = shards.prepared.classes
    chosen = np.unique(np.linspace(0, len(names) - 1, CLASSES).astype(int))
    sheet = Image.new("RGB", (SIDE * ACROSS, SIDE * len(chosen)), "white")
    reader, size = Reader(shards), shards.prepared.size
    for row, label in enumerate(chosen):
        for column, index in enumerate(np.flatnonzero(shards.records["label"] == label)[:ACROSS]):
            pixels = np.empty((size, size, 3), np.uint8)
            reader.pixels(int(index), pixels)
            record = shards.records[index]
            scale = SIDE / max(record["height"], record["width"])
            shape = max(1, round(record["width"] * scale)), max(1, round(record["height"] * scale))
            sheet.paste(Image.fromarray(pixels).resize(shape), (column * SIDE, row * SIDE))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, "PNG")
