"""A disk that fills in every phase: one line that names the file, nothing lost, and the rest goes on once there is
room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import csv_of, lottery, status_of, trainings
from tests.slurm_cluster import until

pytestmark = [pytest.mark.tensorflow, pytest.mark.drill]


class Disk:
    """16 MB of its own."""

    def __init__(self, place: Path) -> None:
        self.place, self.filler = place, place / "filler"

    def fill(self, left: int = 0) -> None:
        """All but `left` bytes."""
        free = os.statvfs(self.place).f_bavail * os.statvfs(self.place).f_frsize
        with open(self.filler, "ab") as f:
            os.posix_fallocate(f.fileno(), f.tell(), max(free - left, 1))

    def empty(self) -> None:
        self.filler.unlink()


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a disk of 16 MB: mounting needs root")
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def refused(*words: object) -> str:
    """One line for every training that could not be done, each with a path, and no traceback; what was said."""
    done = lottery(*words, check=None)
    assert done.returncode in (1, 2) and "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines and all("No space left on device" in line and "/disk/" in line for line in lines), done.stderr
    return done.stderr


def test_a_disk_that_fills_in_the_dense_run_the_cells_or_the_report_loses_nothing(disk, tiny_file, undisturbed):
    results = disk.place / "results"
    words = ("sweep", tiny_file, "--results", results)
    disk.fill(left=100_000)  # enough to begin
    assert "FAILED dense-seed0: " in refused(*words)
    assert trainings(results, "dense-*/claim.json") and not trainings(results, "*/result.json")
    disk.empty()
    lottery("train", tiny_file, "--results", results)
    disk.fill(left=60_000)
    assert "ticket-" in refused(*words)
    disk.empty()
    lottery(*words)
    assert csv_of(results) == csv_of(undisturbed)
    shutil.rmtree(results / "tiny" / "report")
    disk.fill(left=50_000)
    refused("report", tiny_file, "--results", results)
    disk.empty()
    lottery("report", tiny_file, "--results", results)
    assert csv_of(results) == csv_of(undisturbed)


def test_a_sweep_goes_on_after_a_disk_too_full_to_record_the_failure(disk, tiny_file, trained, undisturbed):
    shutil.copytree(trained, disk.place / "results")
    lottery("masks", tiny_file, "--results", disk.place / "results")
    disk.fill()
    words = ("sweep", tiny_file, "--results", disk.place / "results")
    refused(*words)
    assert not trainings(disk.place / "results", "*/failure.json")
    disk.empty()
    lottery(*words)
    assert csv_of(disk.place / "results") == csv_of(undisturbed)


@pytest.mark.parametrize("left", [0, 8192, 16384, 24576, 40960])
def test_a_submission_on_a_full_disk_leaves_nothing_in_the_queue_and_can_be_repeated(
    left, slurm, disk, tiny_file, trained, undisturbed
):
    """So much is left: nothing for a file of its own, the scripts, the pickles, the record."""
    results = disk.place / "results"
    shutil.copytree(trained, results)
    words = ("sweep", tiny_file, "--on", "slurm", "--results", results)
    disk.fill(left)
    done = lottery(*words, "cluster.options=[--hold]", check=None)
    if done.returncode:
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
        until(lambda: not slurm.queue(), 30)
    else:  # there was room after all
        lottery("cancel", results / "tiny")
        until(lambda: not slurm.queue(), 30)
    disk.empty()
    if left == 8192:  # one is enough to see the end
        lottery(*words, "--wait")
        assert csv_of(results) == csv_of(undisturbed)
        assert {row["state"] for row in status_of(results / "tiny").values()} == {"done"}
