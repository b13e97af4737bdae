"""Backends, the places where trainings run: this machine, MPI, or a SLURM cluster."""
