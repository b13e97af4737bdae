#!/bin/bash
#SBATCH --job-name=small-report
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --qos=long
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=6
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/slurm/logs/small-report.out
#SBATCH --constraint=a100
#SBATCH --exclusive
trap '' USR1 USR2  # a warning before the work stands would end the job
set -eo pipefail
module load cuda
source .venv/bin/activate
exec lottery supervise bash -c 'lottery rescue results/small; lottery report results/small'
