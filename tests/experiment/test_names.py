"""What decides the numbers of a training names it, and nothing else does; published names never change."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from sweep.experiment import BEGINNING, END, Cluster, Data, Experiment, Method, Recipe
from sweep.experiment.file import dump, dump_changes, load
from sweep.graph.plan import graph_of
from tests.experiment.conftest import SMALL

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

# These never change: they name results that exist. Where one differs, take the change back, or give the changed
# experiment a new file. The name of the first dense run, and a hash of the names of all trainings; both also differ
# where grid, seeds or recipe were changed on purpose, as in the dry run and for ResNet-20: what stays keeps its name.
PUBLISHED = {
    "own_images": ("dense-seed0-7b3d875eb7", "efd3da51d2"),
    "cifar10_mobilenet_v2": ("dense-seed0-e097bf9777", "2189c40d19"),
    "cifar10_mobilenet_v2_instability": ("dense-seed1-699c943225", "f9f5a1e1f5"),
    "cifar10_mobilenet_v2_iterative": ("dense-seed0-e097bf9777", "a41646fb8a"),
    "cifar10_mobilenet_v2_long": ("dense-seed21-075e54a53e", "7ef1a3ca1d"),
    "cifar10_mobilenet_v2_methods": ("dense-seed0-e097bf9777", "7757089c84"),
    "cifar10_resnet20": ("dense-seed0-598a515819", "6092d151db"),
    "cifar10_resnet20_instability": ("dense-seed0-8a79ce8e2a", "bcbd083685"),
    "cifar10_resnet20_iterative": ("dense-seed1-f33d61861c", "425528b041"),
    "dry_run": ("dense-seed0-a77925bc41", "6b80598bcb"),
    "imagenet_mobilenet_v2": ("dense-seed0-62568233a5", "20cbeec06a"),
    "imagenet_resnet50": ("dense-seed0-ac15679cd6", "f944197570"),
    "study_resnet20": ("dense-seed4-a88a3df1d4", "8a582bcec3"),
    "renda_resnet20": ("dense-seed4-96abe9c885", "b2122c4279"),
    "renda_fields": ("dense-seed1-f33d61861c", "9512aefa48"),
    "study_mobilenet_v2": ("dense-seed1-699c943225", "e2ce57c086"),
    "study_mobilenet_v2_confirm": ("dense-seed21-8978f16148", "d4eac0d8a1"),
    "fashion_mnist_resnet8": ("dense-seed0-f4164b4a3c", "786e6c97ea"),
    "transfer_digits": ("dense-seed0-3617c60da0", "bed15f573b"),
    "photographs_mobilenet_v2": ("dense-seed0-3b3aa14418", "c1c5ee30f2"),
}

# Nor do these: a hash covers only what differs from its default, so another default would change in silence what a
# published experiment computes. New fields are added here with the value that changes nothing.
DEFAULTS = {
    "model": {"name": "mobilenet_v2", "width": 1.0, "initializer": "he", "blur": False},
    "data": {
        "name": "cifar10",
        "listing": "",
        "image_size": 0,
        "channels": "auto",
        "validation": 0,
        "crop": "auto",
        "pad": 0,
        "flip": False,
        "normalised": "channels",
        "classes": 0,
        "images": 0,
    },
    "recipe": {
        "epochs": 30,
        "batch": 128,
        "rest": "dropped",
        "norm_images": 0,
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "reference_batch": 0,
        "momentum": 0.9,
        "nesterov": False,
        "rewind_momentum": False,
        "weight_decay": 0.0,
        "decayed": "kernels",
        "schedule": "cosine",
        "warmup_epochs": 0.0,
        "milestones": (),
        "gamma": 0.1,
        "decay": 0.98,
        "label_smoothing": 0.0,
        "clip_norm": 0.0,
        "ema": 0.0,
        "ema_unbiased": False,
        "mixup": 0.0,
        "cutmix": 0.0,
        "cutmix_share": 0.5,
        "mixing_share": 1.0,
        "erasing": 0.0,
        "policy": "none",
        "stages": (),
        "rand_operations": 2,
        "rand_magnitude": 9,
        "first_size": 0,
        "full_size_epoch": 0,
        "stop_at": 0.0,
        "norm_momentum": 0.9,
        "precision": "float32",
    },
    "prune": {
        "quantiles": (),
        "thresholds": (),
        "methods": (Method("magnitude", "global", END),),
        "rounds": 1,
        "budget": "weights",
        "share": 0.0,
        "rewind": (BEGINNING,),
        "lr_rewind": (),
        "dense_lr_rewind": (),
        "finetune": (),
        "controls": (),
        "control_quantiles": (),
        "control_rewind": (),
        "collapse": "skip",
        "instability": (),
        "instability_quantiles": (),
    },
    "seeds": (0,),
}
DEFAULTS["transfer"] = {"source": "", "data": DEFAULTS["data"], "recipe": DEFAULTS["recipe"]}


def test_every_published_experiment_is_pinned():
    assert {path.stem for path in EXPERIMENTS.glob("*.yaml")} == set(PUBLISHED)


@pytest.mark.parametrize(("name", "pinned"), PUBLISHED.items())
def test_the_names_of_published_trainings_never_change(name, pinned):
    graph = graph_of(load(EXPERIMENTS / f"{name}.yaml"))
    every = hashlib.sha256(" ".join(sorted(one.name for one in graph)).encode()).hexdigest()[:10]
    assert (graph.dense[0].name, every) == pinned


def identifying(part) -> dict:
    """Every field that is part of the hash, with its value."""
    found = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.metadata.get("identity", True)}
    whole = {name: v for name, v in found.items() if not dataclasses.is_dataclass(v)}
    return whole | {name: identifying(v) for name, v in found.items() if dataclasses.is_dataclass(v)}


def test_the_defaults_that_published_experiments_rely_on_never_change():
    assert identifying(Experiment()) == DEFAULTS


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_resolved_experiment_loads_as_an_equal_one_under_any_file_name(name, written):
    experiment = load(EXPERIMENTS / f"{name}.yaml")
    assert written(dump(experiment), name="other") == experiment
    assert written(dump_changes(experiment), name="other") == experiment
    assert len(dump_changes(experiment)) < len(dump(experiment)) / 1.5


def test_the_resolved_experiment_holds_every_field(written):
    import yaml

    resolved = yaml.safe_load(dump(written()))
    assert set(resolved) == {f.name for f in dataclasses.fields(Experiment)} - {"transfer"}
    assert set(resolved["recipe"]) == {f.name for f in dataclasses.fields(Recipe)}
    assert set(resolved["cluster"]) == {f.name for f in dataclasses.fields(Cluster)}


SAME = [
    "data.path=/elsewhere",
    "name=renamed",
    "cluster.nodes=2",
    "cluster.partition=gpu",
    "cluster={nodes: 3, options: [--constraint=a100]}",
    "recipe.xla=off",
    "recipe.checkpoint_minutes=1",
    "recipe.momentum=0.9",  # its default
    "recipe.ema=0",  # its default, written as a whole number
    "model.width=1",
    "model.blur=false",
    "seeds=[0]",
    "prune.controls=[]",
]


@pytest.mark.parametrize("override", SAME)
def test_defaults_names_and_places_do_not_change_the_names(written, override):
    assert names(written(SMALL, override)) == names(written())


def names(experiment: Experiment) -> frozenset[str]:
    return frozenset(one.name for one in graph_of(experiment))


OTHER = [
    "recipe.epochs=5",
    "recipe.batch=16",
    "recipe.nesterov=true",
    "recipe.precision=bfloat16",
    "model.width=0.5",
    "model.initializer=lecun",
    "model.blur=true",
    "data.normalised=image",
    "recipe.decayed=all",
    "recipe.rest=carried",
    "recipe.policy=trivial",
    "recipe.rewind_momentum=true",
    "model.name=resnet56",
    "data.validation=11",
    "prune.quantiles=[0.5]",
    "prune.methods=[magnitude/uniform]",
    "prune.methods=[lamp]",
    "prune.methods=[magnitude@0]",
    "prune.methods=[magnitude/2:4]",
    "prune={rounds: 2, share: 0.5}",
    "prune.lr_rewind=[2ep]",
    "prune.dense_lr_rewind=[2ep]",
    "prune.instability=[1ep]",
    "prune.controls=[fresh]",
    "seeds=[1]",
]


def test_every_change_of_what_is_computed_gives_other_names(written):
    found = {names(written(SMALL, override)) for override in OTHER} | {names(written())}
    assert len(found) == len(OTHER) + 1


@pytest.mark.parametrize(
    "elsewhere", [{"data": Data(path="/elsewhere")}, {"recipe": Recipe(xla="off")}], ids=["data.path", "recipe.xla"]
)
def test_places_do_not_change_the_names_of_a_section_at_its_defaults(elsewhere):
    assert names(Experiment(**elsewhere)) == names(Experiment())


def test_a_field_added_with_a_default_leaves_old_names_alone(written):
    old = written()

    @dataclasses.dataclass(frozen=True)
    class Later(Recipe):
        added: float = 0.25

    recipes = [Later(**dataclasses.asdict(old.recipe), **more) for more in ({}, {"added": 0.5})]
    later, used = (dataclasses.replace(old, recipe=recipe) for recipe in recipes)
    assert names(later) == names(old) != names(used)
