"""Measurements of this machine: training steps, scaling over devices, data feeding, inference."""
