"""Experiment files in, checked dataclasses out, or one line that says what is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.errors import Refused
from sweep.experiment import Experiment, Model, Prune, Recipe, check
from sweep.experiment.file import load
from sweep.work.fitting import fitting
from tests.experiment.conftest import SMALL
from tests.synthetic import refusal

# ---- reading


def test_the_file_name_names_the_experiment_unless_it_says_otherwise(written):
    assert written(SMALL, name="mine").name == "mine"
    assert written(SMALL + "name: given\n", name="mine").name == "given"


def test_what_is_not_written_has_its_default(written):
    experiment = written("{}")
    assert experiment == Experiment(name="small")
    assert (experiment.model, experiment.recipe.momentum) == (Model("mobilenet_v2", 1.0), 0.9)


def test_lists_become_tuples_and_whole_numbers_become_floats_where_floats_are_meant(written):
    experiment = written(SMALL, "model.width=2", "prune.quantiles=[0, 0.5]")
    assert (experiment.model.width, experiment.prune.quantiles) == (2.0, (0.0, 0.5))
    assert isinstance(experiment.model.width, float) and isinstance(experiment.prune.quantiles[0], float)


@pytest.mark.parametrize("text", ["1e-4", "'0.0001'", "1.0e-4", "0.0001"])
def test_small_numbers_may_be_written_in_any_way(written, text):
    assert written(SMALL, f"recipe.weight_decay={text}").recipe.weight_decay == 1e-4


@pytest.mark.parametrize(("text", "expected"), [("on", "on"), ("off", "off"), ("'on'", "on"), ("auto", "auto")])
def test_a_bare_on_or_off_is_the_word_where_a_word_is_meant(written, text, expected):
    assert written(SMALL, f"recipe.xla={text}").recipe.xla == expected


def test_the_node_s_cache_can_be_switched_off_as_the_documentation_writes_it(written):
    assert written(SMALL, "data.cache=off").data.cache == "off"


def test_overrides_set_fields_and_the_last_one_wins(written):
    experiment = written(SMALL, "recipe.epochs=9", "cluster.qos=high", "seeds=[1, 2]", "recipe.epochs=7")
    assert (experiment.recipe.epochs, experiment.cluster.qos, experiment.seeds) == (7, "high", (1, 2))
    assert experiment.recipe.batch == 8  # the rest of the section stays


def test_the_value_of_an_override_may_hold_an_equals_sign(written):
    assert written(SMALL, "data.path=/a=b").data.path == "/a=b"


# ---- refusals: one line that says what is wrong, where, and what would be right

REFUSED_OVERRIDES = {
    "unknown key": ("recipe.epoch=3", "recipe.epoch: no such key; did you mean epochs?"),
    "unknown section": ("recipes.epochs=3", "recipes: no such key; did you mean recipe?"),
    "unlike any key": ("model.zzz=3", "model.zzz: no such key; there are name, width"),
    "fraction for a count": ("recipe.epochs=2.5", "recipe.epochs: received 2.5, expected a whole number"),
    "text for a count": ("recipe.epochs=many", "recipe.epochs: received 'many', expected a whole number"),
    "truth for a count": ("recipe.epochs=true", "recipe.epochs: received True, expected a whole number"),
    "nothing for a count": ("recipe.epochs=", "recipe.epochs: received None, expected a whole number"),
    "text for a number": ("recipe.momentum=high", "recipe.momentum: received 'high', expected a number"),
    "not a number": ("recipe.learning_rate=.nan", "recipe.learning_rate: received nan, expected a number"),
    "count for a truth": ("data.flip=1", "data.flip: received 1, expected true or false"),
    "number for text": ("name=5", "name: received 5, expected text"),
    "one for a list": ("prune.quantiles=0.5", "prune.quantiles: received 0.5, expected a list"),
    "text in a list": ("prune.quantiles=[0.5, x]", "prune.quantiles[1]: received 'x', expected a number"),
    "value for a section": ("recipe=3", "recipe: received 3, expected a section with keys epochs, batch"),
    "unknown word": ("recipe.optimizer=sdg", "recipe.optimizer: received 'sdg', expected one of sgd, adamw"),
    "unknown control": (
        "prune.controls=[frsh]",
        "prune.controls[0]: received 'frsh', expected one of fresh, fresh_short, shuffled",
    ),
    "unknown network": ("model.name=resnet21", "model.name: received 'resnet21', expected one of mobilenet_v2, "),
    "no width": ("model.width=0", "model.width: received 0.0, expected a number, more than 0"),
    "blur without strides": ("model={name: vgg11, blur: true}", "model.blur: received True, expected false: in vgg11"),
    "blur of few channels": ("model={name: resnet8, width: 0.25, blur: true}", "in resnet8 of width 0.25 no conv"),
    "more width than memory": (
        "model.width=1e5",
        "model.width: received 100000.0, expected a number, more than 0, at most 16",
    ),
    "larger than any image": (
        "data.image_size=1000000",
        "data.image_size: received 1000000, expected a whole number, at",
    ),
    "more images than memory": (
        "data={name: synthetic, classes: 2, images: 100000000000, image_size: 8, validation: 1}",
        "data.images: received 100000000000, expected 1 or more",
    ),
    "a seed of 20 digits": ("seeds=[99999999999999999999]", "seeds[0]: received 99999999999999999999, expected"),
    "more rounds than anyone": ("prune={rounds: 1000000, share: 0.2}", "prune.rounds: received 1000000, expected a"),
    "quantile of 1": (
        "prune.quantiles=[1.0]",
        "prune.quantiles[0]: received 1.0, expected a number, at least 0, below 1",
    ),
    "quantile below 0": ("prune.quantiles=[-0.1]", "prune.quantiles[0]: received -0.1, expected a number, at least 0"),
    "quantile in percent": ("prune.quantiles=[90]", "prune.quantiles[0]: received 90.0, expected a number, at least 0"),
    "same quantile twice": (
        "prune.quantiles=[0.5, 0.50]",
        "prune.quantiles: received ['0.5', '0.5'], expected each value",
    ),
    "threshold below 0": ("prune.thresholds=[-1]", "prune.thresholds[0]: received -1.0, expected a number, at least 0"),
    "rewind past the end": (
        "prune.rewind=[4ep]",
        "prune.rewind: received ['4ep'], expected points of training before epoch 4",
    ),
    "a bare number of epochs": (
        "prune.rewind=[2]",
        "prune.rewind[0]: received 2, expected a point of training: 2ep or 2it",
    ),
    "no point at all": ("prune.rewind=[-1ep]", "expected a point of training: 0, 2ep, 500it or end"),
    "rewound to the end": (
        "prune.rewind=[end]",
        "prune.rewind: received ['end'], expected points of training before epoch 4",
    ),
    "groups of a batch": (
        "recipe.norm_images=3",
        "recipe.norm_images: received 3, expected 0 (the whole batch) or a divisor",
    ),
    "a name of the pool": ("name=trainings", "expected another name"),
    "end before a rewind": (
        "recipe.epochs=2",
        "received ['0', '2ep'], expected points of training before epoch 2 (recipe.epochs)",
    ),
    "control elsewhere": (
        "prune={quantiles: [0.5], controls: [fresh], control_quantiles: [0.7]}",
        "expected some of [0.5]: what is pruned at",
    ),
    "control between rounds": (
        "prune={rounds: 4, share: 0.2, controls: [shuffled], control_quantiles: [0.49]}",
        "prune.control_quantiles: received [0.49], expected some of [0.2, 0.36, 0.488, 0.5904]",
    ),
    "unstable elsewhere": (
        "prune={rounds: 2, share: 0.2, rewind: [0], instability: [1ep], instability_quantiles: [0.36]}",
        "prune.instability: received ['1ep'], expected some of prune.rewind: in rounds",
    ),
    "control rewound elsewhere": (
        "prune={quantiles: [0.5], controls: [fresh], control_rewind: [1ep]}",
        "expected some of prune.rewind",
    ),
    "duplicate seeds": ("seeds=[1, 1]", "seeds: received ['1', '1'], expected each value once"),
    "negative seed": ("seeds=[-1]", "seeds[0]: received -1, expected a whole number, at least 0, at most 2147483647"),
    "no seed": ("seeds=[]", "seeds: received [], expected at least one"),
    "no epoch": ("recipe.epochs=0", "recipe.epochs: received 0, expected a whole number, at least 1, at most 10000000"),
    "warm-up to the end": ("recipe.warmup_epochs=4", "recipe.warmup_epochs: received 4.0, expected less than 4 epochs"),
    "milestones without steps": ("recipe.milestones=[1]", "recipe.milestones: received [1], expected epochs where"),
    "steps without milestones": ("recipe.schedule=step", "recipe.milestones: received [], expected epochs where"),
    "milestones before the beginning": (
        "recipe={epochs: 4, schedule: step, milestones: [-1, 1]}",
        "expected rising epochs",
    ),
    "milestones beyond the end": ("recipe={epochs: 4, schedule: step, milestones: [1, 4]}", "expected less than 4"),
    "milestones that fall": ("recipe={epochs: 4, schedule: step, milestones: [3, 1]}", "expected rising epochs"),
    "momentum of 1": (
        "recipe.momentum=1",
        "recipe.momentum: received 1.0, expected a number, at least 0, below 1",
    ),
    "weight growth": ("recipe.weight_decay=-1", "recipe.weight_decay: received -1.0, expected a number, at least 0"),
    "RandAugment's operations elsewhere": (
        "recipe={epochs: 4, policy: trivial, rand_operations: 3}",
        "recipe.rand_operations: received 3, expected 2, or recipe.policy rand: other policies (trivial) do not",
    ),
    "RandAugment's magnitude without a policy": ("recipe.rand_magnitude=3", "expected 9, or recipe.policy rand"),
    "stages without a beginning": ("recipe.stages=[16px@1ep]", "received ['16px@1ep'], expected rising epochs, the"),
    "stages after the end": (
        "recipe.stages=[16px, 32px@9ep]",
        "expected rising epochs, the first from 0, the last bef",
    ),
    "a last stage with another batch": ("recipe.stages=[16px/9]", "expected recipe.batch (8) in the last one"),
    "two ways of resizing": (
        "recipe={stages: [16px], first_size: 8, full_size_epoch: 2}",
        "expected recipe.first_size 0: both resize",
    ),
    "stages with a rest": (
        "recipe={stages: [16px], rest: carried}",
        "recipe.stages: received ['16px'], expected recipe.rest",
    ),
    "stages that groups do not fill": (
        "recipe={norm_images: 64, stages: [16px/96, 32px@1ep]}",
        "expected batches that recipe.norm_images (64) div",
    ),
    "a stage that is none": ("recipe.stages=[16px/8@2]", "recipe.stages[0]: received '16px/8@2', expected PIXELSpx"),
    "half a resizing": ("recipe.first_size=16", "recipe.first_size: received 16, expected recipe.full_size_epoch"),
    "stop without validation": ("data={name: digits}", "recipe.stop_at: received 0.9, expected data.validation above"),
    "classes of real data": ("data.classes=3", "data.classes: received 3, expected nothing"),
    "synthetic without size": (
        "data={name: synthetic, classes: 2, images: 9, validation: 1}",
        "data.image_size: received 0, expected",
    ),
    "unknown score": ("prune.methods=[snap]", "prune.methods[0]: received 'snap', expected score, score/allocation or"),
    "unknown allocation": ("prune.methods=[snip/all]", "received 'snip/all', expected an allocation out of global"),
    "all of all": ("prune.methods=[magnitude/4:4]", "received 'magnitude/4:4', expected an allocation out of"),
    "lamp in kernels": ("prune.methods=[lamp/erk]", "received 'lamp/erk', expected magnitude/erk: within a kernel"),
    "steps of N:M": ("prune.methods=[synflow/2:4]", "received 'synflow/2:4', expected a score that is taken once"),
    "point of a method": ("prune.methods=[snip@2]", "received '2', expected a point of training"),
    "no method": ("prune.methods=[]", "prune.methods: received [], expected at least one"),
    "threshold of another score": ("prune={thresholds: [0.1], methods: [lamp]}", "expected prune.methods [magnitude]"),
    "rounds without levels": (
        "prune={rounds: 3}",
        "prune.rounds: received 3, expected prune.share, or prune.quantiles",
    ),
    "fewer levels than rounds": ("prune={rounds: 3, quantiles: [0.5, 0.9]}", "expected 3 of them, one for every round"),
    "rounds that fall": ("prune={rounds: 2, quantiles: [0.9, 0.5]}", "expected rising from round to round"),
    "rounds of one look": (
        "prune={rounds: 2, share: 0.2, methods: [snip]}",
        "prune.methods: received ['snip'], expected in rounds, methods that score the final weights",
    ),
    "share of all": (
        "prune={rounds: 2, share: 1}",
        "prune.share: received 1.0, expected a number, at least 0, below 1",
    ),
    "share of no weights": (
        "prune={budget: macs, thresholds: [0.1]}",
        "prune.budget: received 'macs', expected weights: without prune.quantiles or prune.share no share is pruned",
    ),
    "share of one round": ("prune.share=0.2", "prune.share: received 0.2, expected with it prune.rounds above 1"),
    "no rate to tune at": ("prune.finetune=[2ep]", "expected a schedule whose last rate is not 0 (recipe.schedule is"),
    "late retraining": (
        "prune.lr_rewind=[4ep]",
        "prune.lr_rewind: received ['4ep'], expected points of training before epoch 4",
    ),
    "a line break": ('cluster.partition="a\\nb"', "cluster.partition: received 'a\\nb', expected one word"),
    "a line break in an option": (
        'cluster.options=["--hold\\ntouch x"]',
        "received '--hold\\ntouch x', expected --name or",
    ),
    "a short option": ('cluster.options=["-C a100"]', "cluster.options[0]: received '-C a100', expected --name or"),
    "warned before it begins": (
        "cluster={time_limit: '2', warning_seconds: 120}",
        "expected less than cluster.time_limit",
    ),
    "a name that is an option": ("name=-x", "name: received '-x', expected text of letters, digits"),
    "a price below nothing": ("cluster.price_per_gpu_hour=-1", "cluster.price_per_gpu_hour: received -1.0, expected a"),
    "memory in words": ("cluster.memory_per_gpu=lots", "cluster.memory_per_gpu: received 'lots', expected a size"),
    "resizing from below nothing": (
        "recipe={epochs: 4, first_size: -1, full_size_epoch: 2}",
        "recipe.first_size: received -1, expected a whole number, at least 0, at most 4096",
    ),
    "resizing beyond the end": (
        "recipe={epochs: 4, first_size: 4, full_size_epoch: 4}",
        "recipe.full_size_epoch: received 4, expected less than 4 (recipe.epochs)",
    ),
    "resizing before the beginning": (
        "recipe={epochs: 4, first_size: 4, full_size_epoch: -3}",
        "recipe.full_size_epoch: received -3, expected a whole number, at least 0",
    ),
    "scaled from a batch of 400 digits": (f"recipe.reference_batch=1{'0' * 400}", "recipe.reference_batch: received 1"),
    "pruned and not trained": ("prune.rewind=[]", "prune.rewind: received [], expected points to train what is pruned"),
    "a share and not trained": ("prune={rounds: 2, share: 0.2, rewind: []}", "prune.rewind: received [], expected"),
    "N:M and not trained": ("prune={methods: [magnitude/2:4], rewind: []}", "prune.rewind: received [], expected"),
    "controls of nothing": (
        "prune={controls: [fresh]}",
        "prune.controls: received ['fresh'], expected with it prune.quantiles, prune.thresholds or prune.share",
    ),
    "nothing to retrain": ("prune={lr_rewind: [1ep]}", "prune.lr_rewind: received ['1ep'], expected with it prune.qua"),
    "controls of no ticket": (
        "prune={quantiles: [0.5], rewind: [], lr_rewind: [1ep], controls: [fresh]}",
        "prune.controls: received ['fresh'], expected with it prune.rewind",
    ),
    "levels of no controls": (
        "prune.control_quantiles=[0.5]",
        "prune.control_quantiles: received [0.5], expected with it prune.controls",
    ),
    "points of no controls": (
        "prune.control_rewind=[2ep]",
        "prune.control_rewind: received ['2ep'], expected with it prune.controls",
    ),
    "levels of no instability": (
        "prune.instability_quantiles=[0.5]",
        "prune.instability_quantiles: received [0.5], expected with it prune.instability",
    ),
    "rounds that leave nothing": (
        "prune={rounds: 7, share: 0.9}",
        "prune.share: received 0.9, expected one that prunes some, and leaves some, in each of 7 rounds",
    ),
    "rounds that take nothing": ("prune={rounds: 2, share: 1.0e-8}", "prune.share: received 1e-08, expected one that"),
    "an allocation in other words": ("prune.methods=[magnitude/02:4, magnitude/2:4]", "received 'magnitude/02:4', exp"),
    "an allocation of thousands of digits": (f"prune.methods=[magnitude/2:{'9' * 5000}]", "expected an allocation out"),
    "a point of another script": (
        "prune.rewind=[٢ep]",
        "received '٢ep', expected a point of training",
    ),
    "an allocation of another script": ("prune.methods=[magnitude/٢:٤]", "received 'magnitude/٢:٤', expected an all"),
    "a number of another script": ("recipe.momentum=٠.٥", "recipe.momentum: received '٠.٥', expected a number"),
    "a time of another script": (
        "cluster.time_limit=١٢:٠٠:٠٠",
        "received '١٢:٠٠:٠٠', expected minutes",
    ),
    "a time of thousands of digits": (f"cluster.time_limit='{'9' * 5000}'", "expected minutes, H:M:S or D-H:M:S"),
    "memory of another script": (
        "cluster.memory_per_gpu=٣٢G",
        "received '٣٢G', expected a size",
    ),
    "memory of thousands of digits": (f"cluster.memory_per_gpu='{'9' * 5000}'", "expected a size as SLURM writes it"),
    "a qos with an option": (
        'cluster.qos="a b --wrap=id"',
        "cluster.qos: received 'a b --wrap=id', expected one word of letters, digits and _ . , : @ + -",
    ),
    "a partition of two words": ('cluster.partition="a b"', "cluster.partition: received 'a b', expected one word"),
    "an account with a quotation": ("cluster.account=a'b", 'cluster.account: received "a\'b", expected one word'),
    "warned a day before": (
        "cluster.warning_seconds=86400",
        "cluster.warning_seconds: received 86400, expected a whole number, at least 1, at most 65535",
    ),
    "a path of two lines": ('data.path="a\\nb"', "data.path: received 'a\\nb', expected one line of text"),
    "a project without end": ('track.project="a\\0b"', "track.project: received 'a\\x00b', expected the name of a"),
    "scored after the end": (
        "prune.methods=[magnitude@400ep]",
        "prune.methods: received ['magnitude@400ep'], expected points of training before epoch 4",
    ),
    "scored at the end in epochs": (
        "prune.methods=[magnitude@4ep]",
        "prune.methods: received ['magnitude@4ep'], expected",
    ),
    "an option of two words": (
        'cluster.options=["--comment=a --dependency=singleton"]',
        "expected --name or --name=value, as in --constraint=a100, with quotes around a value that has spaces",
    ),
    "an option with half a quotation": ('cluster.options=["--comment=\'a"]', "expected --name or --name=value"),
    "cell across nodes": ("cluster.gpus_per_cell=3", "cluster.gpus_per_cell: received 3, expected a divisor"),
}


@pytest.mark.parametrize(("override", "message"), REFUSED_OVERRIDES.values(), ids=REFUSED_OVERRIDES)
def test_a_wrong_value_is_refused_with_its_place_in_one_line(written, override, message):
    text = SMALL.replace("epochs: 4", "epochs: 4, stop_at: 0.9")
    said = refusal(lambda: written(text, override))
    assert message in said
    assert "small.yaml: " in said


FIVE = """
model: {name: resnet21}
data: {name: digits, validation: 10, pad: -1}
recipe: {epochs: 4, batch: 8, momentun: 0.9, norm_images: 3}
prune: {quantiles: [0.5], rewind: [0, 4ep]}
"""
LINES = [
    "model.name: received 'resnet21', expected one of mobilenet_v2",
    "data.pad: received -1, expected a whole number, at least 0, at most 1024",
    "recipe.momentun: no such key; did you mean momentum?",
    "recipe.norm_images: received 3, expected 0 (the whole batch) or a divisor of recipe.batch (8)",
    "prune.rewind: received ['0', '4ep'], expected points of training before epoch 4",
]


def test_a_file_with_five_mistakes_gets_five_lines(written, tmp_path):
    with pytest.raises(Refused) as caught:
        written(FIVE)
    lines = str(caught.value).split("\n")
    assert len(lines) == 5
    assert all(line.startswith(f"{tmp_path / 'small.yaml'}: {said}") for line, said in zip(lines, LINES, strict=True))


def test_rules_do_not_guess_what_a_wrong_value_was_meant_to_be(written):
    text = SMALL.replace("rewind: [0, 2ep]", "rewind: [0, 40ep]")  # beyond the epochs by default, too
    for wrong in ("epochs: many", "epoch: 50"):
        said = refusal(lambda wrong=wrong: written(text.replace("epochs: 4", wrong)))
        assert f"recipe.{wrong.partition(':')[0]}: " in said


def test_a_value_that_is_neither_of_two_types_is_one_mistake(written):
    said = refusal(lambda: written(SMALL, "cluster.trainings_per_gpu=0"))
    assert said.endswith("received 0, expected a whole number, at least 1, or auto")


def test_what_is_made_in_python_is_checked_alike():
    with pytest.raises(Refused) as caught:
        check(Experiment("x", recipe=Recipe(epochs=0, norm_images=3), prune=Prune(quantiles=(0.5, 0.5))))
    assert str(caught.value).split("\n") == [
        "recipe.epochs: received 0, expected a whole number, at least 1, at most 10000000",
        "prune.quantiles: received ['0.5', '0.5'], expected each value once",
        "recipe.norm_images: received 3, expected 0 (the whole batch) or a divisor of recipe.batch (128)",
    ]


def test_images_smaller_than_the_first_of_a_resizing_are_refused(written):
    resizing = "{epochs: 4, batch: 8, first_size: 64, full_size_epoch: 2}"
    said = refusal(lambda: written(SMALL, "data.image_size=32", f"recipe={resizing}"))
    assert "recipe.first_size: received 64, expected 0 (off) or pixels, up to 32 (data.image_size)" in said
    assert written(SMALL, "data.image_size=64", f"recipe={resizing}").recipe.first_size == 64
    source = refusal(lambda: fitting(written(SMALL, f"recipe={resizing}")))
    assert source == "recipe.first_size: received 64, expected at most the images' 8 pixels"


def test_what_is_not_rewound_may_be_retrained_or_compared(written):
    assert not written(SMALL, "prune.rewind=[]", "prune.lr_rewind=[1ep]").prune.rewind
    assert not written(SMALL, "prune.rewind=[]", "prune.finetune=[1ep]", "recipe.schedule=constant").prune.rewind
    assert not written(SMALL, "prune={rewind: [], instability: [1ep]}").prune.rewind


def test_minus_zero_is_read_as_zero(written):
    assert str(written(SMALL, "prune.quantiles=[-0.0, 0.5]").prune.quantiles) == "(0.0, 0.5)"


def test_partitions_may_be_several_and_accounts_have_signs(written):
    cluster = written(SMALL, "cluster={partition: 'gpu,gpu-long', account: 'lab_1@site:a.b+c', qos: high}").cluster
    assert (cluster.partition, cluster.account) == ("gpu,gpu-long", "lab_1@site:a.b+c")


REFUSED_FORMS = {
    "no equals sign": ("recipe.epochs", "'recipe.epochs': expected key.sub=value, such as recipe.epochs=30"),
    "bad value": ("seeds=[1, 2", "'seeds=[1, 2': not YAML: while parsing"),
    "inside a value": ("recipe.epochs.more=3", "recipe.epochs.more: 'epochs' is not a section"),
}


@pytest.mark.parametrize(("override", "message"), REFUSED_FORMS.values(), ids=REFUSED_FORMS)
def test_a_malformed_override_is_refused_with_its_text(written, override, message):
    assert message in refusal(lambda: written(SMALL, override))


REFUSED_FILES = {
    "bad YAML": ("model: [resnet20", "small.yaml: not YAML: "),
    "a list": ("- model\n- data\n", "small.yaml: expected sections such as model:, data:, recipe:, prune:"),
    "a word": ("resnet20", "small.yaml: expected sections such as"),
    "nothing": ("", "small.yaml: expected sections such as"),
    "an empty section": ("model:\n", "small.yaml: model: received None, expected a section with keys name, width"),
    "a misspelt key": ("model: {nme: resnet20}", "small.yaml: model.nme: no such key; did you mean name?"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED_FILES.values(), ids=REFUSED_FILES)
def test_a_wrong_file_is_refused_with_its_name_in_one_line(written, text, message):
    assert message in refusal(lambda: written(text))


def test_a_missing_file_and_a_folder_are_refused_with_their_name(tmp_path):
    said = refusal(lambda: load(tmp_path / "none.yaml"))
    assert said == f"{tmp_path / 'none.yaml'}: No such file or directory; expected an experiment file"
    assert "Is a directory; expected an experiment file" in refusal(lambda: load(tmp_path))


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    assert "binary.yaml: not YAML: " in refusal(lambda: load(tmp_path / "binary.yaml"))


def test_the_defaults_make_sense():
    check(Experiment(name="defaults"))


# ---- the page of all fields


def test_the_page_has_every_field_with_its_default_and_meaning():
    from sweep.experiment import reference

    text = (Path(__file__).parents[2] / "docs" / "experiment.md").read_text()
    assert text == reference.page(), "python -m sweep.experiment.reference > docs/experiment.md"
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    sections = [part for part in vars(Experiment()).values() if dataclasses.is_dataclass(part)]
    fields = [field for section in sections for field in dataclasses.fields(section)]
    count = sum(not dataclasses.is_dataclass(field.default) for field in fields)
    assert len(rows) == count + 3 and all(row[-1].strip(" |") for row in rows)
