"""What tests of data sets are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sweep.data import Images
from sweep.errors import Refused


def splits(dataset) -> tuple[Images, Images, Images]:
    return dataset.train, dataset.validation, dataset.test


def assert_same(received: Images, expected: Images) -> None:
    assert (received.images.dtype, received.labels.dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(received.images, expected.images)
    np.testing.assert_array_equal(received.labels, expected.labels)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def as_folder(files: dict[str, bytes], path: Path) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path
