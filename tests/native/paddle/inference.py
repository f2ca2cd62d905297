"""A saved model that `paddle.inference` runs on a GPU: handles, tensors, clones, a pool, and a model from memory."""

import os
import tempfile

import numpy as np
import paddle
from paddle import inference

paddle.seed(0)
net = paddle.nn.Sequential(paddle.nn.Linear(4, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 3))
net.eval()
rows = np.arange(8, dtype="float32").reshape(2, 4)
expected = net(paddle.to_tensor(rows)).numpy()
folder = tempfile.mkdtemp()
paddle.jit.save(net, f"{folder}/net", input_spec=[paddle.static.InputSpec([None, 4], "float32", name="x")])
program = next(f"{folder}/{name}" for name in os.listdir(folder) if name.endswith((".json", ".pdmodel")))
parameters = f"{folder}/net.pdiparams"


def configure(device=1, *paths):
    config = inference.Config(*(paths or (program, parameters)))
    config.disable_glog_info()
    config.enable_use_gpu(100, device)
    config.switch_ir_optim(True)
    if hasattr(config, "enable_new_executor"):
        config.enable_new_executor()  # which the next line needs
    config.enable_memory_optim()
    return config


def compute(predictor):
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.reshape([2, 4])
    handle.copy_from_cpu(rows)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def refused(call):
    try:
        print("computed", call())
    except (ValueError, RuntimeError, MemoryError) as error:
        print(type(error).__name__, str(error).splitlines()[0].partition(", which")[0].partition(", and /")[0])


config = configure()
copy = inference.Config(config)
for each in (config, copy):
    print(each.use_gpu(), each.gpu_device_id(), each.memory_pool_init_size_mb(), each.ir_optim())
print(0 < config.fraction_of_gpu_memory_for_pool() <= 1)
print([line.split() for line in config.summary().splitlines() if "gpu" in line or "pool" in line or "tensorrt" in line])
copy.disable_gpu()
print(copy.use_gpu(), copy.gpu_device_id(), config.use_gpu())

before = paddle.device.cuda.memory_allocated(1)
predictor = inference.create_predictor(config)
print(isinstance(predictor, inference.Predictor), paddle.device.cuda.memory_allocated(1) - before > 4 * 64 * 7)
print(np.allclose(compute(predictor), expected, atol=1e-5))
clone = predictor.clone()
print(np.allclose(compute(clone), expected, atol=1e-5))
for x in (paddle.to_tensor(rows, place="gpu:1"), paddle.to_tensor(rows, place="cpu")):
    (y,) = predictor.run([x])
    print(y.place, np.allclose(y.numpy(), expected, atol=1e-5))
predictor.try_shrink_memory()
del predictor
print(paddle.device.cuda.memory_allocated(1) - before > 4 * 64 * 7)
del clone
y = x = None
print(paddle.device.cuda.memory_allocated(1) - before)

pool = inference.PredictorPool(configure(0), 2)
print([np.allclose(compute(pool.retrieve(index)), expected, atol=1e-5) for index in range(2)])
print(pool.retrieve(1).run([paddle.to_tensor(rows)])[0].place)
(y,) = inference.create_predictor(copy).run([paddle.to_tensor(rows, place="cpu")])
print(y.place)

refused(lambda: inference.create_predictor(configure(7)))
refused(lambda: inference.PredictorPool(configure(2), 1))
refused(lambda: configure().enable_tensorrt_engine(1 << 30, 1, 3))
refused(lambda: inference.Config().enable_use_gpu(100, 0, inference.PrecisionType.Half))
half, on_gpu = inference.PrecisionType.Half, inference.PlaceType.GPU
refused(lambda: inference.convert_to_mixed_precision(program, parameters, "half.json", "half.params", half, on_gpu))
handle = inference.create_predictor(configure()).get_input_handle("x")
refused(lambda: handle.share_external_data(paddle.to_tensor(rows, place="gpu:1")))
