#!/bin/bash
# One training program on two nodes of a Slurm cluster, started by `devshim launch`. Not run by devshim's tests.
#
#   sbatch slurm.sh
#
# All nodes need the same Python, devshim[ray], framework and program, as from a shared file system.
#SBATCH --job-name=devshim
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00

set -euo pipefail

# The cluster's token and log: a folder of this job that you alone may read, on a file system that all nodes share.
export XDG_STATE_HOME="$PWD/devshim-$SLURM_JOB_ID"
mkdir -m 700 "$XDG_STATE_HOME"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address | cut -d ' ' -f 1)
port=$((20000 + SLURM_JOB_ID % 20000))
token=$XDG_STATE_HOME/devshim/cluster/token

# A node is kept by a step that sleeps: its end, or that of the job, ends the node.
keep='sleep infinity'
srun --nodes=1 --ntasks=1 --nodelist="$first" --overlap \
    bash -c "devshim cluster start --listen $address --port $port && $keep" &
until [ -s "$token" ]; do sleep 1; done
sleep 10
for node in "${nodes[@]:1}"; do
    # Each machine has facts of its own about its node: another folder, and the first one's token.
    srun --nodes=1 --ntasks=1 --nodelist="$node" --overlap \
        bash -c "export XDG_STATE_HOME=$XDG_STATE_HOME/$node; mkdir -p -m 700 \$XDG_STATE_HOME
                 devshim cluster join --token $token $address:$port && $keep" &
done
sleep 20

export DEVSHIM_RAY_ADDRESS=$address:$port RAY_AUTH_TOKEN_PATH=$token
srun --nodes=1 --ntasks=1 --nodelist="$first" --overlap \
    devshim launch --cards 1 --retries 1 many_ranks.py torch "$PWD/saved"
