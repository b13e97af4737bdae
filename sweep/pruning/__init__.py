"""Scores, allocations and masks: which weights are pruned. numpy in, numpy out."""
