"""The glossary of the page, in the words of docs/glossary.md."""

from __future__ import annotations

GLOSSARY = {
    "dense network": "the network before pruning",
    "ticket": "mask × weights at a rewind point, trained to the end of the schedule",
    "rewind point": "the point of the dense run whose weights a ticket starts from: 0 is initialization, 2ep the end "
                    "of epoch 2, 500it step 500",
    "control": "a training that a ticket must beat: fresh (same mask, new initialization), shuffled (same count per "
               "layer, other positions), random (same count in all)",
    "weights remaining": "share of the prunable weights that are kept",
    "sparsity": "share of the prunable weights that are pruned: 1 − density; a quantile of 0.8 is a sparsity of 80 %",
    "multiply-adds": "share of the dense network's multiply-adds per image that remain: kept weights × output pixels "
                     "of their kernel, groups counted",
    "size": "bytes of the weights as float32: kept ones, one bit per prunable weight for the mask, and all that is "
            "never pruned",
    "fully pruned layer": "a layer whose kernel keeps no weight; its network cannot train, so the training is skipped",
    "percentage points": "difference of two accuracies given in percent",
    "margin": "the loss of accuracy that counts as none: 0.5 percentage points unless said otherwise",
    "matching": "not worse than the dense network by more than the margin, by a corrected test",
    "winning": "matching, and better than every control of the same mask",
    "undecided": "neither shown to match nor shown to be worse",
    "learning-rate rewinding": "final weights × mask, trained with the schedule from the rewind point on",
    "instability": "largest rise of the test error on the line between two trainings from one checkpoint, in "
                   "percentage points",
}  # fmt: skip
