"""What XLA compiled, and what it chose in doing so: kept for all trainings of a pool, so that only the first waits.

Programs. TensorFlow writes an entry under a passing name and renames it, so that many tasks may fill the folder at
once. Its key is the program and its shapes, not the GPU it was compiled for; hence one folder per kind of GPU and
TensorFlow version.

Choices. Where several kernels could do an operation, XLA takes the one that was fastest just then (autotuning), which
is most of the time that compiling takes. Another process chooses others, and they round differently. With the choices
kept, the program is the same where it has to be compiled again (results/README.md: two epochs, to the bit). They are
small: 30 kB for MobileNetV2. One process compiles a program at a time, so that it is that of the choices on record.
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
    """Before TensorFlow looks for devices, which is when it reads its flags. The folder of the programs; None: no GPU.

    On CPU nothing is compiled unless a recipe says so, and that within seconds. A user's own folder is left as it is.
    """
    if not (gpu := gpu_name()):
        return None
    kind = re.sub(r"\W+", "-", f"{gpu}-tensorflow-{version('tensorflow')}")
    # "programs": those of before choices were kept would hide what was chosen for them
    programs, choices = pool / "compiled" / kind / "programs", pool / "autotuned" / kind
    for (variable, flag), folder in ((PROGRAMS, programs), (CHOICES, choices)):
        flags = os.environ.get(variable, "")
        if flag not in flags:
            folder.mkdir(parents=True, exist_ok=True)
            value = f'"{folder}"' if " " in str(folder) else f"{folder}"
            os.environ[variable] = f"{flags} {flag}={value}".strip()
    return programs


def compile_once(program: Program, folder: Path) -> None:
    """Compile a step at every image size of the recipe and the evaluation of each split, unless that is there.

    Whoever comes while another process compiles waits for it.
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
    return done.exists() and any(done.parent.glob("*.pb"))


def _digest(program: Program) -> str:
    """Return a digest of all that decides what is compiled: experiment, this code, the driver, XLA's other flags."""
    import models
    import sweep.training

    words = hashlib.sha256(f"{program}; {program.data}; {program.recipe}; {circumstances()['driver']}".encode())
    words.update(os.environ.get("XLA_FLAGS", "").encode())
    for package in (models, sweep.training):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            words.update(path.read_bytes())
    return words.hexdigest()[:16]
