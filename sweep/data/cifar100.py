"""CIFAR-100 (Krizhevsky 2009): 100 classes, in the forms of CIFAR-10."""

from __future__ import annotations

from sweep.data import Dataset, cifar10
from sweep.experiment import Data

CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
FORM = cifar10.Form(tuple(CLASSES.split()), ("train",), "test", b"fine_labels", 2)  # the coarse label comes first


def read(data: Data) -> Dataset:
    return cifar10.read(data, FORM)
