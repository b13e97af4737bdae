#!/bin/bash
#SBATCH --job-name=small-masks
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --qos=long
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:2
#SBATCH --mem=80G
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/slurm/logs/small-masks.out
#SBATCH --constraint=a100
#SBATCH --exclusive
trap '' USR1 USR2  # a warning before the work stands would end the job
set -eo pipefail
module load cuda
source .venv/bin/activate
exec lottery supervise lottery masks results/small --warm-up
