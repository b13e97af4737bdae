"""A sweep as a graph of trainings: their values, names, folders, states and results."""
