"""TensorFlow is loaded without its greetings, which it writes before its own log level counts.

On x86 these are lines on oneDNN and on missing CUDA drivers, twice in every process, in the middle of a progress bar.
Whatever else is written to standard error meanwhile comes out when TensorFlow is loaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

GREETING = re.compile(rb"[IWE]0000 |WARNING: All log messages before absl::InitializeLog")


class Quietly(MetaPathFinder):
    """Find TensorFlow once, for whichever module imports it first."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        if (spec := importlib.util.find_spec(name)) and spec.loader:
            load: Callable[[ModuleType], None] = spec.loader.exec_module

            def quietly(module: ModuleType) -> None:
                with without_greetings():
                    load(module)

            vars(spec.loader)["exec_module"] = quietly
        return spec


@contextmanager
def without_greetings() -> Iterator[None]:
    """Hold back what is written to standard error, then write what is no greeting."""
    with os.fdopen(os.dup(2), "wb") as terminal, os.fdopen(os.memfd_create("standard error"), "rb") as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal.fileno(), 2)
            said.seek(0)
            terminal.writelines(line for line in said if not GREETING.match(line))
