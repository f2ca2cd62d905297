"""Ask the driver's tools how much memory is in use: NVML, nvidia-smi, and the functions of torch.cuda for them."""

import os
import subprocess

import pynvml
import torch

x = torch.ones(1 << 22, device="cuda:1")
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetCount())
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    users = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    print(
        index, memory.used >> 20, memory.total == memory.used + memory.free, [each.pid == os.getpid() for each in users]
    )
try:
    print(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
except pynvml.NVMLError_NotSupported as error:
    print(error)
pynvml.nvmlShutdown()
print(torch.cuda.utilization(1), torch.cuda.memory_usage(0), torch.cuda.device_memory_used(1) >> 20)
print(torch.cuda.list_gpu_processes(1).splitlines()[1].split()[2:])

fields = ["--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
print(subprocess.run(["nvidia-smi", *fields], capture_output=True, text=True, check=True).stdout, end="")
free = subprocess.check_output("nvidia-smi -i 1 --query-gpu=utilization.gpu --format=csv", shell=True, text=True)
print(free, end="")
