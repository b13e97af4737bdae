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
#SBATCH --time=2-00:00:00
#SBATCH --array=0
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=results/slurm/logs/small-dense.out
#SBATCH --constraint=a100
#SBATCH --exclusive
trap '' USR1 USR2  # a warning before the work stands would end the job
tasks=(
    dense-seed0-016722b7ae
)
task="${tasks[$SLURM_ARRAY_TASK_ID]}"
exec >> results/slurm/logs/"$task.out" 2>&1
set -eo pipefail
module load cuda
source .venv/bin/activate
exec lottery supervise lottery train results/small "$task" --restarts 5
