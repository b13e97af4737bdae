"""A sweep as a graph of trainings: values, names, folders, states, results."""
