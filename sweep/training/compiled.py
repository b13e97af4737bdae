"""Where XLA keeps the programs it compiled: one folder for all tasks of a sweep, so that only the first waits for it.

TensorFlow writes an entry under a passing name and renames it, so that many tasks may fill the folder at once. Its key
is the program and its shapes, not the GPU it was compiled for; hence one folder per kind of GPU and TensorFlow version.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.hardware import gpu_name

if TYPE_CHECKING:
    from sweep.training.program import Program

FLAG = "--tf_xla_persistent_cache_directory"


def keep_compiled(folder: Path) -> None:
    """Before TensorFlow looks for devices, which is when it reads its flags. A user's own folder is left as it is."""
    flags, gpu = os.environ.get("TF_XLA_FLAGS", ""), gpu_name()
    if FLAG in flags or not gpu:  # on CPU nothing is compiled unless a recipe says so, and that within seconds
        return
    place = folder / re.sub(r"\W+", "-", f"{gpu}-tensorflow-{version('tensorflow')}")
    place.mkdir(parents=True, exist_ok=True)
    os.environ["TF_XLA_FLAGS"] = f"{flags} {FLAG}={place}".strip()


def compile_all(program: Program) -> None:
    """What a training will need: a step at every image size of the recipe, and the evaluation of each split."""
    program.load(program.network.initial(0))
    for function, arguments in program.calls():
        function(**arguments)
