"""The way out: a finished training as a model for others, evaluated, exported and timed."""
