"""GPUs in threads and in other processes."""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp


def on(index):
    with jax.default_device(jax.devices("gpu")[index]):
        return str(jnp.ones(3).device), jax.device_count("gpu")


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as pool:
        print(list(pool.map(on, [0, 1, 1])))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        print(list(pool.map(on, [0, 1])))
    code = "import jax; print(jax.devices(), jax.numpy.ones(1).device)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
