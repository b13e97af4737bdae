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
echo "$(date -Is) job ${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} on $SLURMD_NODENAME, start $((${SLURM_RESTART_COUNT:-0} + 1))"
warned= status=0
trap 'warned=yes; kill -USR1 "$work"' USR1  # the time is nearly up: save
lottery train results/small "$task" --restarts 5 &
work=$!
wait "$work" || status=$?
if [ "$warned" ]; then status=0; wait "$work" || status=$?; fi  # the signal ended the first wait
# saved itself in time (130), or was killed by a signal: another turn. 143: cancelled
again=; if [ "$status" -gt 128 ] && [ "$status" -lt 193 ]; then again=yes; fi
if [ "$status" = 143 ] || { [ "$status" = 130 ] && [ -z "$warned" ]; }; then again=; fi
for try in ${again:+1 2 3 4 5}; do
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" && sleep 60 || sleep 10
done
exit "$status"
