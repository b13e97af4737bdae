"""Finished trainings as models for others: evaluated, exported and checked."""
