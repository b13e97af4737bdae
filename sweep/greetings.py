"""Loading of TensorFlow without the messages it prints before its log level takes effect.

On x86 these are lines about oneDNN and missing CUDA drivers, twice per process, in the middle of a progress bar.
Everything else that is written to standard error meanwhile is printed when TensorFlow is loaded.
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
    """An import hook that loads TensorFlow quietly, whichever module imports it first."""

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
    """Hold back standard error, then write it without TensorFlow's greetings."""
    with os.fdopen(os.dup(2), "wb") as terminal, os.fdopen(os.memfd_create("standard error"), "rb") as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal.fileno(), 2)
            said.seek(0)
            terminal.writelines(line for line in said if not GREETING.match(line))
