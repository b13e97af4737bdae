"""What a training starts from, and the digest by which its checkpoint knows it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from models import Weights


@dataclass(frozen=True)
class Start:
    """The beginning of a training: weights, mask, seed, and the step of the schedule it starts at."""

    weights: Weights
    step: int
    seed: int
    mask: np.ndarray | None = None
    last_rate: bool = False  # fine-tuning: the schedule's last rate throughout
    data: str = ""  # fingerprint of the images (sweep.data.fingerprint)
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)  # vectors of the optimizer, such as momentum

    @property
    def digest(self) -> str:
        """Return a digest of all of it but the images, so that no checkpoint of another start is continued."""
        digest = hashlib.sha256(f"{self.step} {self.seed}{' last rate' if self.last_rate else ''}".encode())
        for vector in (*self.weights, self.mask, *self.memory.values()):
            if vector is not None:
                digest.update(np.ascontiguousarray(vector).tobytes())
        return digest.hexdigest()[:16]
