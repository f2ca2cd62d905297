#!/bin/bash
# One training program on two nodes of a Slurm cluster, started by srun alone. Not run by devshim's tests.
#
#   sbatch slurm-srun.sh
#
# ds.world() reads the variables of srun. PyTorch, JAX and PaddlePaddle add tensors by their own engine, which finds
# rank 0 by the two variables below. No launcher watches the ranks: an error names the rank that is late or gone.
#SBATCH --job-name=devshim
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-task=1
#SBATCH --time=01:00:00

set -euo pipefail

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
DEVSHIM_ENGINE=native
export MASTER_ADDR MASTER_PORT DEVSHIM_ENGINE

srun --kill-on-bad-exit=1 python many_ranks.py torch
