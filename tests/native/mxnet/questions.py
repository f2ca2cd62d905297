"""Questions that libraries ask before they use a GPU, and their use of arrays: threads, pickles, copies, files."""

import copy
import pickle
import threading

import mxnet as mx
from mxnet import nd

print(mx.context.num_gpus(), mx.util.get_gpu_count(), list(mx.test_utils.list_gpus()))
free, total = mx.context.gpu_memory_info(1)
print(free == total > 0, *(mx.runtime.Features().is_enabled(name) for name in ("CUDA", "CUDNN", "NCCL")))
print(mx.kv.create("nccl").type, mx.kv.create("device").type)
x = nd.ones((2, 2), ctx=mx.gpu(1))
print(x)
print(mx.context.gpu_memory_info(1)[0] < total)
print(x.context == mx.gpu(1), hash(x.context) == hash(mx.gpu(1)), x.context != mx.gpu(0), x.context.device_type)
print(isinstance(x.context, type(mx.gpu(0))), x.context.device_id, {mx.gpu(1): "one"}[x.context])
print(mx.gpu(), mx.cpu(), mx.cpu(1), nd.ones(1, ctx=mx.cpu(1)).context)

found = []
thread = threading.Thread(target=lambda: found.append(nd.ones(1, ctx=mx.gpu(1)).context))
thread.start()
thread.join()
print(found)
print(pickle.loads(pickle.dumps(x)).context, copy.deepcopy(x).context, pickle.loads(pickle.dumps(mx.gpu(1))))
nd.save("arrays", {"gpu": x, "cpu": nd.ones(2)})
print({name: array.context for name, array in sorted(nd.load("arrays").items())})
mx.random.seed(1, ctx=mx.gpu(1))
print(nd.random.uniform(shape=(2,), ctx=mx.gpu(1)).context)
print(x.astype("float16").context, (x * 2).sum().asscalar(), x.tostype("csr").context)
print(nd.ones(2, ctx=mx.gpu(1)).as_in_context(mx.cpu()).context)
mx.gpu(1).empty_cache()
