"""Checks before a hundred jobs are submitted. Each is one function that says what it found and what to do.

Quick checks take moments and are run by `sweep --on slurm` too; the others read data or ask SLURM to run a job.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slurm import arrays, launch, limits, packing, queue, reading, sbatch
from sweep.data import place_of
from sweep.data.fingerprint import fingerprint
from sweep.data.folder import left_out, turned
from sweep.errors import Refused
from sweep.experiment.checks import seconds_of
from sweep.experiment.point import LADDER, in_order
from sweep.graph.home import Home
from sweep.graph.state import missing
from sweep.hardware import gpu_name, hardware, visible_gpus
from sweep.lock import UNKNOWN
from sweep.report.verdict import MARGIN
from sweep.tracking.runs import hindrance
from sweep.training.schedule import check_devices, most_devices
from sweep.work.fitting import fitting

SKEW_SECONDS = 5.0  # largest difference between this clock and the file system's
TURN_SECONDS = 30  # time for SLURM to start a job at once
START_SECONDS = 120  # time that a job needs before its warning, to load TensorFlow and to compile for a GPU
LEAST_SECONDS = 30  # with less, no training makes progress
LEAST_ROOM = 3  # least number of jobs: one training, the masks, and the job that submits the rest
# options that decide which nodes a job may get
WHERE = ("partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude", "wckey", "licenses")


State = Literal["ok", "warning", "wrong"]
Found = str | tuple[State, str, str]  # a text if all is well; else state, what was found, and what to do


@dataclass(frozen=True)
class Finding:
    """The result of one check. `wrong`: it cannot work; `warning`: it may."""

    what: str
    state: State
    found: str
    remedy: str = ""


def look(home: Home, on_slurm: bool, quick: bool = False) -> Iterator[Finding]:
    """Yield the results of all checks, one after the other. No file is left behind."""
    looks: dict[str, Callable[[Home], Found]] = {
        "results": _place, "lock": _lock, "clock": _clock, "disk": _disk, "weights": _weights, "wandb": _tracking,
    }  # fmt: skip
    at_once = {"submission": _submission, "submit limit": _limits, "time limit": _times}
    looks |= at_once | {"reading": _reading} if on_slurm else {"devices": _devices}
    looks |= {} if quick else {"data": _data, **({"nodes": _nodes} if on_slurm else {})}
    for what, one in looks.items():
        try:
            found = one(home)
        except Refused as error:
            found = "wrong", str(error), ""
        except queue.Silent as error:
            found = "wrong", str(error), "ask the cluster's people, or try later"
        yield Finding(what, "ok", found) if isinstance(found, str) else Finding(what, *found)


def refuse_what_cannot_work(home: Home) -> None:
    """Raise Refused if a quick check finds something wrong, before anything is written or submitted."""
    for one in look(home, on_slurm=True, quick=True):
        if one.state == "wrong":
            remedy = f"; {one.remedy}" if one.remedy else ""
            raise Refused(f"{one.what}: {one.found}{remedy}; nothing was submitted")


# The file system ----------------------------------------------------------------------------------------------------


def _place(home: Home) -> Found:
    """Check that the results root can be written and that submitit accepts its name."""
    folder = _nearest(home.root.parent)
    if not os.access(folder, os.W_OK):
        return "wrong", f"{folder} cannot be written", "another folder: --results FOLDER"
    if set("%\\\n") & set(str(home.root.resolve())):
        found = f"%, \\ or a line break in {str(home.root.resolve())!r}"
        return "warning", found, "for SLURM, a folder without them"
    return str(home.root.parent)


def _lock(home: Home) -> Found:
    """Check that a lock holds against another process, so that two simultaneous submissions submit once."""
    with _trial(home) as path, open(path, "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
            return "this file system has no flock: files take its place"
        code = f"import fcntl; fcntl.flock(open({str(path)!r}, 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if other.returncode == 0:
        remedy = "never submit from two places at once, or put the results on a file system with locks"
        return "warning", "this file system does not keep locks", remedy
    return "file locking works"


def _clock(home: Home) -> Found:
    """Check that this clock agrees with the file system's: claims are judged by the times of their files."""
    with _trial(home) as path:
        apart = path.stat().st_mtime - time.time()
    if abs(apart) > SKEW_SECONDS:
        remedy = "set the clock of this machine (ntp): states of trainings on other machines would be wrong"
        return "warning", f"{apart:+.0f} s from the file system's", remedy
    return f"{abs(apart):.1f} s from the file system's"


def _disk(home: Home) -> Found:
    """Check that there is room for snapshots, final weights and checkpoints of what is missing."""
    folder = _nearest(home.root.parent)
    free, needed = shutil.disk_usage(folder).free, needed_bytes(home)
    said = f"{free / 1e9:.1f} GB free in {folder}, about {needed / 1e9:.1f} GB needed"
    if free < needed:
        return "wrong", said, "another folder: --results FOLDER; lottery tidy shows what can go"
    return said


def needed_bytes(home: Home) -> int:
    """Return the bytes for snapshots of dense runs, final weights of tickets and checkpoints of running trainings."""
    from models import build

    model, data = home.experiment.model, home.experiment.data
    # an estimate, as the data are not read: 32 px and 1000 classes unless the experiment says otherwise
    network = build(model.name, image_size=data.image_size or 32, channels=3, classes=data.classes or 1000,
                    width=model.width)  # fmt: skip
    each = 4 * network.parameters
    wanted = missing(home)
    snapshots = sum(1 + len(home.graph.points_of(one)) + (len(LADDER) if one.dense else 0) for one in wanted)
    return each * (snapshots + 3 * min(len(wanted), sbatch.together(home.experiment.cluster)))


def _weights(home: Home) -> Found:
    """Check that finished trainings have kept the weights that others start from."""
    lacking = home.missing_points()
    if not lacking:
        return "all that is done has kept what others start from"
    said = [f"{home.training(name).slug} at {', '.join(in_order(map(str, at)))}" for name, at in lacking.items()]
    more = f" and {len(said) - 3} more" if len(said) > 3 else ""
    remedy = "they are trained again, and fail unless they come out the same: on a GPU of the same kind, with "
    return "warning", f"not there: {'; '.join(said[:3])}{more}", f"{remedy}autotuned/ of those results"


# What is trained ----------------------------------------------------------------------------------------------------


def _data(home: Home) -> Found:
    """Check that the images can be read, and are those of finished dense runs."""
    data, dataset = home.experiment.data, fitting(home.experiment)
    found = map(home.result, home.graph.dense)
    print_, before = fingerprint(dataset, data), {result.get("fingerprint") for result in found if result}
    said = f"{len(dataset.train)} training, {len(dataset.validation)} validation, {len(dataset.test)} test images"
    if before and print_ not in before:
        remedy = "the images of before at data.path, or another experiment"
        return "wrong", f"{said}, but others than before (fingerprint {print_})", remedy
    notes = {}  # other findings: what to do
    if data.name == "folder" and (others := left_out(place_of(data))):
        more = f"{len(others)} other files are not read: {others[0]}" + (", …" if len(others) > 1 else "")
        notes[more] = "jpg and png images directly in their class folders"
    if data.name == "folder" and (lying := turned(dataset.train)):
        named = lying[0] + (", …" if len(lying) > 1 else "")
        notes[f"stored turned, which only EXIF says: {named}"] = "upright pixels: mogrify -auto-orient"
    tested = set(dataset.test.labels.tolist())
    if absent := [name for label, name in enumerate(dataset.class_names) if label not in tested]:
        untested = f"no test images of {', '.join(absent[:3])}" + (", …" if len(absent) > 3 else "")
        notes[untested] = "test images of every class: accuracy is over the others alone"
    error = math.sqrt(0.09 / len(dataset.test))  # √(p (1 − p) / n) of an accuracy p of 90 %
    if error > MARGIN:
        few = f"on so few test images an accuracy of 90 % has a standard error of {100 * error:.2g} percentage points"
        notes[few] = f"about {0.09 / MARGIN**2:,.0f} test images for one of {100 * MARGIN:g} percentage points"
    return (
        ("warning", "; ".join([said, *notes]), "; ".join(notes.values())) if notes else f"{said}, fingerprint {print_}"
    )


def _reading(home: Home) -> Found:
    """Check that the cores requested with a GPU read its images fast enough."""
    found = reading.reading_of(home)
    data = home.experiment.data
    if not found and data.name in ("folder", "shards") and data.resident != "on":
        return "not known: the speed of this network is not on record (lottery bench step), or its images fit any GPU"
    if not found:
        return "images are in memory"
    return ("warning", str(found), found.remedy) if found.wait > reading.ENOUGH else str(found)


def _devices(home: Home) -> Found:
    """Check which devices there are to train on."""
    gpus, recipe = visible_gpus(), home.experiment.recipe
    if not gpus:
        slow = recipe.epochs * len(home.graph) > 200 and home.experiment.data.name != "digits"
        found = f"no GPU here: {hardware()}"
        return ("warning", found, "a machine with GPUs, or --on slurm: this would take days") if slow else found
    usable = most_devices(recipe, len(gpus))
    said = f"{len(gpus)} × {gpu_name()}"
    if usable < len(gpus):
        remedy = "--jobs for the others, or recipe.norm_images so that they can share a batch"
        return "warning", f"{said}, of which a training can use {usable}", remedy
    return said


def _tracking(home: Home) -> Found:
    mode = home.experiment.track.mode
    why = hindrance() if mode == "online" else ""
    if why:
        return "warning", why, "wandb login, or track.mode=offline: it goes on offline by itself"
    return mode


# SLURM --------------------------------------------------------------------------------------------------------------


def _submission(home: Home) -> Found:
    """Check that SLURM accepts every kind of job exactly as it would be sent."""
    check_devices(home.experiment.recipe, home.experiment.cluster.gpus_per_cell)
    launch.private_name(home.root.resolve() / "slurm" / "submitit")
    chain = _chain(home)
    with tempfile.TemporaryDirectory() as folder:
        for job in {job.part: job for job in chain}.values():
            script = Path(folder) / "job.sh"
            script.write_text(launch.sent(job, Path(folder)))
            # one element of an array: the number of jobs is checked by _limits
            one = ["--array=0"] if job.tasks else []
            try:
                queue.output(["sbatch", "--test-only", f"--output={os.devnull}", *one, str(script)])
            except Refused as error:
                field = arrays.field_of(str(error), home)
                return "wrong", f"{job.part}: {error}{field}", "see sinfo, sacctmgr show assoc"
    return f"SLURM would take all {len(chain)} jobs"


def _chain(home: Home) -> list[sbatch.Job]:
    """Return the jobs that would be submitted; if nothing is missing, those of the whole sweep."""
    wanted = missing(home) or home.graph.trainings
    return sbatch.chain(packing.settled_for(home, wanted), home.root.resolve(), wanted)


def _limits(home: Home) -> Found:
    """Check how many jobs the user may have in the queue; the last job that fits submits the rest."""
    room, wanted = limits.room(home.experiment.cluster), sum(max(1, len(job.elements)) for job in _chain(home))
    if room is None or room >= wanted:
        return f"{wanted} jobs, {'no limit' if room is None else f'room for {room}'}"
    said = f"{wanted} jobs, and SLURM takes {room} more of yours now"
    if room < LEAST_ROOM:
        return "wrong", said, f"wait until {LEAST_ROOM} fit, or another cluster.qos or account"
    return "warning", said, "as many as fit are submitted; the last of them submits the rest"


def _times(home: Home) -> Found:
    """Check time limits against the time to start, and against what the dense run predicts."""
    cluster = packing.settled_for(home, home.graph).cluster
    default = queue.default_time(cluster.partition)
    for field, limit in (("dense_time_limit", cluster.dense_time_limit), ("time_limit", sbatch.element_limit(cluster))):
        seconds = seconds_of(limit or default)
        left = seconds - cluster.warning_seconds if seconds else START_SECONDS
        if left < START_SECONDS:
            where = f"cluster.{field}" if limit else f"the partition's default, as cluster.{field} is empty"
            said = f"{max(0, left)} s pass before a job is warned that its time is up ({where}: {seconds} s)"
            remedy = f"{START_SECONDS} s more than cluster.warning_seconds: a job loads and compiles first"
            return "wrong" if left < LEAST_SECONDS else "warning", said, remedy
    asked, predicted = seconds_of(sbatch.element_limit(cluster)), arrays.predicted_limit(home)
    if asked is None or not predicted:
        return f"{predicted} minutes predicted" if predicted else "the partition's, at first"
    if asked < 60 * predicted / 1.5:
        remedy = "a longer cluster.time_limit, or none: it is predicted"
        return "warning", f"{predicted} minutes predicted: several turns", remedy
    return f"{cluster.time_limit}, {predicted} minutes predicted"


def _nodes(home: Home) -> Found:
    """Check that a node sees a file written here, and has Python and this program."""
    words = ["srun", "--nodes=1", "--ntasks=1", f"--immediate={TURN_SECONDS}", "--time=1", "--quiet"]
    words += [f"--{name}={value}" for name, value in _chain(home)[-1].options.items() if name in WHERE]
    with _trial(home) as path:
        code = f"import sweep, pathlib; print(pathlib.Path({str(path.resolve())!r}).read_text())"
        try:
            done = subprocess.run([*words, sys.executable, "-c", code], capture_output=True, text=True, check=False,
                                  timeout=TURN_SECONDS + 30)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return "warning", f"not tried: {type(error).__name__}", ""
    if done.returncode == 0 and done.stdout.strip() == "seen":
        return "a node sees this folder and has this program"
    said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
    if re.search("busy|immediate|expired|temporarily", done.stderr, re.IGNORECASE):
        return "warning", f"not tried: no node is free now ({said})", "run it again later"
    return "wrong", said, "results and installation in a folder that all nodes see"


# Small parts --------------------------------------------------------------------------------------------------------


@contextmanager
def _trial(home: Home) -> Iterator[Path]:
    """Yield a temporary file in the results root."""
    folder = _nearest(home.root.parent)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", prefix=".check-", dir=folder))
            print("seen", file=file, flush=True)
        except OSError as error:
            raise Refused(f"{folder}: {error.strerror}; expected a folder for results that can be written "
                          "(--results)") from None  # fmt: skip
        yield Path(file.name)


def _nearest(folder: Path) -> Path:
    """Return the folder or its nearest existing parent, so that checks create nothing."""
    folder = folder.resolve()
    return folder if folder.is_dir() else _nearest(folder.parent)
