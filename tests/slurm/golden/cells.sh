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
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/slurm/logs/small-cells.out
#SBATCH --constraint=a100
#SBATCH --exclusive
trap '' USR1 USR2  # a warning before the work stands would end the job
tasks=(
    ticket-q0.5-k0-seed0-b6f24a1d86
    ticket-q0.9-k0-seed0-4c465f51cc
    ticket-q0.5-k2ep-seed0-99059ac771
    ticket-q0.9-k2ep-seed0-e56cf9d167
)
task="${tasks[$SLURM_ARRAY_TASK_ID]}"
exec >> results/slurm/logs/"$task.out" 2>&1
set -eo pipefail
module load cuda
source .venv/bin/activate
exec lottery supervise lottery train results/small "$task" --restarts 5
