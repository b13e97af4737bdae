#!/bin/bash
#SBATCH --job-name=small-dense
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --qos=long
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=24
#SBATCH --gres=gpu:4
#SBATCH --mem=160G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/small-0123abcdef/slurm/logs/dense-%j.out
#SBATCH --constraint=a100
#SBATCH --exclusive
set -eo pipefail
module load cuda
source .venv/bin/activate
seeds=(0)
srun lottery train results/small-0123abcdef --seed "${seeds[${SLURM_ARRAY_TASK_ID:-0}]}"
