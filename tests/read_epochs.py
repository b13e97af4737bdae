"""Reads epochs of shards as a training does: `python -m tests.read_epochs SHARDS SEED EPOCHS CACHE`.

Prints the CPU-seconds of reading and a line per epoch: how many images, and the checksum of those it saw.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from sweep.data import shards
from sweep.data.feed import Sharded, open_reader
from sweep.devices import prepare

if __name__ == "__main__":
    folder, seed, epochs, cache = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    split = shards.records_of(shards.open_prepared(folder), "train")
    source = Sharded(split, prepare(), open_reader(split, cache))
    tf.constant(Image.new("RGB", (1, 1)).size)  # what is loaded at first use is not reading
    began = time.process_time()
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(split)).reshape(-1, 20)
        # some pixels of each image tell it from the others, at little cost
        parts = [batch[0].numpy()[:, 3::32, 5::32] for batch in source.batches(order, None)]
        seen = [zlib.crc32(image.tobytes()) for part in parts for image in part]
        print(f"epoch {epoch}: {len(seen)} images {sum(seen)}", flush=True)
    print(f"cpu {time.process_time() - began}")
