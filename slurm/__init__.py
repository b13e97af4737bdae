"""Places where trainings run: this machine, MPI, or a SLURM cluster."""
