"""The launcher of Paddle starts a process for a GPU, which is the default device there."""

import os
import subprocess
import sys
from pathlib import Path

import paddle
from paddle.distributed import fleet

SELECTED = "FLAGS_selected_gpus"

if SELECTED not in os.environ:
    command = ["-m", "paddle.distributed.launch", "--devices", "1", "--log_dir", "logs", __file__]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    lines = Path("logs/workerlog.0").read_text().splitlines()
    print(done.returncode, *(line for line in lines if line.startswith("launched ")), sep="\n")
else:
    print("launched", os.environ[SELECTED], paddle.get_device(), paddle.ones([1]).place)
    fleet.init(is_collective=True)
    print("launched", fleet.worker_num(), paddle.nn.Linear(2, 1)(paddle.ones([1, 2])).place)
