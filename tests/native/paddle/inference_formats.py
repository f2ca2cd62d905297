"""`paddle.inference` on a GPU with a model in the old format: from a folder, from two files and from memory."""

import os
import tempfile
from pathlib import Path

os.environ.update(FLAGS_enable_pir_api="0")  # saves the old format

import numpy as np
import paddle
from paddle import inference

folder = tempfile.mkdtemp()
net = paddle.nn.Linear(4, 64)
rows = np.arange(8, dtype="float32").reshape(2, 4)
expected = net(paddle.to_tensor(rows)).numpy()
paddle.jit.save(net, f"{folder}/net", input_spec=[paddle.static.InputSpec([None, 4], "float32", name="x")])
files = f"{folder}/net.pdmodel", f"{folder}/net.pdiparams"
print([os.path.exists(each) for each in files])


def check(config):
    config.disable_glog_info()
    config.enable_use_gpu(10, 1)
    config.enable_memory_optim()
    before = paddle.device.cuda.memory_allocated(1)
    predictor = inference.create_predictor(inference.Config(config))
    counted = paddle.device.cuda.memory_allocated(1) - before
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.copy_from_cpu(rows)
    predictor.run()
    found = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    print(counted >= net.weight.size * 4, np.allclose(found, expected, atol=1e-5))


check(inference.Config(*files))
later = inference.Config()
later.set_model(*files)
check(later)
values = [Path(each).read_bytes() for each in files]
memory = inference.Config()
memory.set_model_buffer(values[0], len(values[0]), values[1], len(values[1]))
print(memory.model_from_memory())
check(memory)

paddle.enable_static()
x = paddle.static.data("x", [None, 4])
y = paddle.static.nn.fc(x, 64)
executor = paddle.static.Executor(paddle.CPUPlace())
executor.run(paddle.static.default_startup_program())
main = paddle.static.default_main_program()
(expected,) = executor.run(main, {"x": rows}, [y])
whole = os.path.join(folder, "whole")
paddle.static.io.save_vars(executor, whole, main_program=main, predicate=lambda variable: variable.persistable)
Path(whole, "__model__").write_bytes(paddle.static.serialize_program([x], [y]))
check(inference.Config(whole))
