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
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/slurm/logs/small-masks.out
#SBATCH --constraint=a100
#SBATCH --exclusive
set -eo pipefail
module load cuda
source .venv/bin/activate
echo "$(date -Is) job $SLURM_JOB_ID on $SLURMD_NODENAME, start $((${SLURM_RESTART_COUNT:-0} + 1))"
lottery masks results/small --warm-up
