"""Stands before TensorFlow on the path of `make quick`: what loads it there takes seconds and belongs elsewhere."""

raise ImportError("a test of make quick loads TensorFlow: give it the marker tensorflow")
