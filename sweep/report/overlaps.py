"""Comparisons of masks of one density: the weights they share, and how many they would share by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

from sweep.graph.home import Home
from sweep.graph.mask_file import Found, can_make, make_mask, read_own_mask
from sweep.graph.training import Mask
from sweep.pruning.compare import SAME, Overlap, overlap
from sweep.pruning.masks import kernel_sizes
from sweep.report.intervals import grouped
from sweep.report.kept import masks_of


@dataclass(frozen=True)
class Pair:
    one: str
    other: str
    differ: str  # what the two differ in: seed, method, round, point
    levels: tuple[str, ...]
    density: float
    overlap: Overlap


@dataclass(frozen=True)
class Group:
    """The mean over pairs of masks of one density that differ in the same way."""

    differ: str
    density: float
    pairs: int
    shared: float
    chance_in_kernels: float
    chance: float


def pairs(home: Home, masks: Sequence[Mask]) -> list[Pair]:
    """Return the overlap of every two masks with the same number of weights and the same density."""
    there = [(mask, found_in(home, mask)) for mask in masks]
    return [
        Pair(title(one), title(other), _differ(one, other), tuple(sorted({str(one.level), str(other.level)})),
             a.density, overlap(a.mask, b.mask, kernel_sizes(a.network)))
        for (one, a), (other, b) in combinations(there, 2)
        if a.mask.size == b.mask.size and abs(a.density - b.density) < SAME
    ]  # fmt: skip


def groups(found: Sequence[Pair]) -> list[Group]:
    """Return the groups, sorted by what differs, then by density from high to low."""
    out = []
    for (differ, _), some in grouped(found, lambda pair: (pair.differ, pair.levels)).items():
        means = (mean(getattr(p.overlap, name) for p in some) for name in ("shared", "chance_in_kernels", "chance"))
        out.append(Group(differ, mean(p.density for p in some), len(some), *means))
    return sorted(out, key=lambda group: (group.differ, -group.density))


def made(home: Home) -> list[Mask]:
    """Return the experiment's masks that exist or can be made from files, each once, in the order of the plan."""
    return [mask for mask in masks_of(home) if mask.arrangement == "found" and can_make(home, mask)]


def found_in(home: Home, mask: Mask) -> Found:
    return read_own_mask(home, mask) if home.mask(mask).exists() else make_mask(home, mask)


def title(mask: Mask, seed: bool = True) -> str:
    words: list[str] = [mask.arrangement] if mask.arrangement != "found" else []
    words += [str(mask.method)] if str(mask.method) != "magnitude" else []
    words += [str(mask.level)]
    words += [f"round {mask.round}, {mask.of.kind} {mask.of.begin}"] if mask.within else []
    return " ".join(words + ([f"seed {mask.of.origin}"] if seed else []))


def _differ(one: Mask, other: Mask) -> str:
    first, second = (
        {"seed": mask.of.origin, "method": mask.method, "round": mask.round, "point": (mask.of.kind, mask.of.begin)}
        for mask in (one, other)
    )
    return ", ".join(name for name in first if first[name] != second[name]) or "level"
