"""The execution of one task: find its experiment, open its inputs, train or evaluate, write its result."""
