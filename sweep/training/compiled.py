"""XLA's compiled programs and its autotuning choices, kept per pool so that only the first training waits for them.

Programs. TensorFlow writes each file under a temporary name and renames it, so that many tasks may fill the folder at
once. A program is found by its code and shapes, not by the GPU it was compiled for; hence one folder per kind of GPU
and TensorFlow version.

Choices. Where several kernels could do an operation, XLA times them and takes the fastest (autotuning), which is most
of the time that compiling takes. Another process may choose others, which round differently. With the choices kept, a
program compiled again is the same (results/README.md: two epochs, equal to the bit). They are small: 30 kB for
MobileNetV2. Only one process compiles a program at a time, so that it is the one that the stored choices belong to.
"""

from __future__ import annotations

import hashlib
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from sweep import files
from sweep.hardware import circumstances, gpu_name
from sweep.lock import alone

if TYPE_CHECKING:
    from sweep.training.program import Program

PROGRAMS = "TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory"
CHOICES = "XLA_FLAGS", "--xla_gpu_experimental_autotuner_cache_dir"


def keep_compiled(pool: Path) -> Path | None:
    """Set XLA's flags so that it keeps compiled programs in the pool; return their folder, or None without a GPU.

    Call it before TensorFlow looks for devices, which is when it reads its flags. A folder that the user has set is
    left as it is. On CPU nothing is compiled unless a recipe asks for it, and that takes seconds.
    """
    if not (gpu := gpu_name()):
        return None
    kind = re.sub(r"\W+", "-", f"{gpu}-tensorflow-{version('tensorflow')}")
    # a folder of its own: programs that earlier versions compiled have no stored choices, so they must not be found
    programs, choices = pool / "compiled" / kind / "programs", pool / "autotuned" / kind
    for (variable, flag), folder in ((PROGRAMS, programs), (CHOICES, choices)):
        flags = os.environ.get(variable, "")
        if flag not in flags:
            folder.mkdir(parents=True, exist_ok=True)
            value = f'"{folder}"' if " " in str(folder) else f"{folder}"
            os.environ[variable] = f"{flags} {flag}={value}".strip()
    return programs


def compile_once(program: Program, folder: Path) -> None:
    """Compile a training step for every image size of the recipe and the evaluation of each split, unless it was done.

    If another process is compiling, wait for it.
    """
    done = folder / f"{_digest(program)}.done"
    if _there(done):
        return
    with alone(folder / "compiling"):
        if not _there(done):
            program.load(program.network.initial(0))
            for function, arguments in program.calls():
                function(**arguments)
            files.write_text(done, f"{program}\n")


def _there(done: Path) -> bool:
    """Whether a program was compiled: its mark exists, and compiled files are in the folder."""
    return done.exists() and any(done.parent.glob("*.pb"))


def _digest(program: Program) -> str:
    """Return a digest of everything that decides what is compiled: experiment, this code, driver, XLA's other flags."""
    import models
    import sweep.data
    import sweep.training

    words = hashlib.sha256(f"{program}; {program.data}; {program.recipe}; {program.images}; ".encode())
    words.update(circumstances()["driver"].encode())
    words.update(os.environ.get("XLA_FLAGS", "").encode())
    for package in (models, sweep.data, sweep.training):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            words.update(path.read_bytes())
    return words.hexdigest()[:16]
