#!/bin/bash
#SBATCH --job-name=small-cells
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --qos=long
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:2
#SBATCH --mem=80G
#SBATCH --time=02:30:00
#SBATCH --array=0-3%4
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/small-0123abcdef/slurm/logs/cells-%A_%a.out
#SBATCH --constraint=a100
#SBATCH --exclusive
set -eo pipefail
module load cuda
source .venv/bin/activate
srun lottery ticket results/small-0123abcdef --index "$SLURM_ARRAY_TASK_ID"
