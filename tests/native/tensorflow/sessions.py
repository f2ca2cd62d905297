"""Sessions of TensorFlow 1: their devices, the places of operators, the log, and what they refuse."""

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()


def run(fetches, **options):
    with v1.Session(config=v1.ConfigProto(**options)) as session:
        return session.run(fetches)


def refused(call):
    try:
        print("computed", call())
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        print(type(error).__name__, next((line for line in lines if line.startswith("Cannot")), lines[0]))


with tf.device("/gpu:1"):
    a = tf.constant([1.0, 2.0], name="a")
b = tf.add(a, tf.constant(1.0, name="one"), name="b")
with tf.device("/device:GPU:0"):
    c = tf.multiply(b, 2.0, name="c")
print([x.device for x in (a, b, c)])
with v1.Session() as session:
    for each in session.list_devices():
        print(each.name, each.device_type, each.memory_limit_bytes if each.device_type == "GPU" else "")
    print(session.run(c))
print([x.device for x in (a, b, c)], [node.device for node in v1.get_default_graph().as_graph_def().node])
print(repr(b.op.node_def.device), c.op.node_def.device)
print(run(c, log_device_placement=True))
metadata = v1.RunMetadata()
with v1.Session() as session:
    every = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    session.run(c, options=every, run_metadata=metadata)
print(sorted({each.device[-5:] for each in metadata.step_stats.dev_stats}))
print(sorted({node.device[-5:] for graph in metadata.partition_graphs for node in graph.node}))
for options in (
    {"device_count": {"GPU": 1}},
    {"device_count": {"GPU": 0}},
    {"gpu_options": v1.GPUOptions(visible_device_list="0", per_process_gpu_memory_fraction=0.5)},
):
    with v1.Session(config=v1.ConfigProto(**options)) as session:
        print([(each.name[-5:], each.memory_limit_bytes) for each in session.list_devices()][1:])
    refused(lambda options=options: run(c, **options))
    print(run(c, allow_soft_placement=True, **options))
refused(lambda: run(c, device_count={"CPU": 2}))
for visible in ("0,5", "0,a", "0,0", "1"):  # the last one would give GPU:0 another GPU in the same process
    refused(lambda visible=visible: run(c, gpu_options=v1.GPUOptions(visible_device_list=visible)))
with tf.device("/gpu:7"):
    missing = tf.constant(1.0, name="missing") + 1.0
print(missing.device)
with tf.Graph().as_default(), tf.device("/task:3"):
    refused(lambda: run(tf.constant(1.0, name="elsewhere")))
refused(lambda: run(c))
print(run(missing, allow_soft_placement=True))
with tf.Graph().as_default(), tf.device("/gpu:1"):
    words = tf.strings.join(["a", "b"], name="words")
    refused(lambda: run(words))
    print(run(words, allow_soft_placement=True, log_device_placement=True))

with tf.Graph().as_default():
    # Loops, branches, datasets, queues, tables and functions, with variables that the GPU of their first user gets.
    with tf.device("/gpu:1"):
        loop = tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), [0, tf.constant([1.0, 2.0])])
        branch = tf.cond(loop[0] > 3, lambda: loop[1] + 1, lambda: loop[1] - 1)
    table = v1.get_variable("table", [2], use_resource=True, initializer=v1.ones_initializer())
    with tf.device("/gpu:1"):
        read = table + 1.0
    batches = v1.data.make_initializable_iterator(tf.data.Dataset.range(6).map(lambda n: n * 2).batch(2))
    batch = batches.get_next()
    queue = v1.FIFOQueue(10, tf.float32, [()])
    fill, first = queue.enqueue_many(([1.0, 2.0],)), queue.dequeue()
    v1.summary.scalar("mean", tf.reduce_mean(branch))
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [3.0]), 0.0)

    @tf.function
    def triple(x):
        with tf.device("/GPU:1"):
            return 3 * x

    tripled = tf.identity(triple(branch), name="tripled")
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.tables_initializer(), batches.initializer, fill])
        found = session.run([*loop, branch, read, batch, first, tripled, words.lookup(tf.constant(["a"]))])
        print([each.tolist() for each in found])
        print(len(v1.Summary.FromString(session.run(v1.summary.merge_all())).value))
        print(session.make_callable(tripled)())
        exported = v1.train.export_meta_graph()
    print(sorted({node.device for each in exported.graph_def.library.function for node in each.node_def} - {""}))
with tf.Graph().as_default(), v1.Session() as session:
    saver = v1.train.import_meta_graph(exported)
    session.run(v1.global_variables_initializer())
    print(session.run("tripled:0"), session.graph.get_operation_by_name("table").device)


def used():
    return [tf.config.experimental.get_memory_info(f"GPU:{index}")["current"] for index in range(2)]


with tf.Graph().as_default():
    with tf.device("/gpu:1"):
        weights = v1.get_variable("weights", [1000], initializer=v1.ones_initializer())
    bias = v1.get_variable("bias", [500], use_resource=True)
    train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(weights) + tf.reduce_sum(bias))
    before = used()
    with v1.Session() as session:
        for each in (weights.initializer, v1.global_variables_initializer(), train):
            session.run(each)
            print([after - first for first, after in zip(before, used(), strict=True)])
    print(used() == before)
    with v1.Session(config=v1.ConfigProto(gpu_options=v1.GPUOptions(per_process_gpu_memory_fraction=2e-7))) as session:
        print(session.list_devices()[1].memory_limit_bytes, session.run(bias.initializer))
        try:
            session.run(weights.initializer)
        except tf.errors.ResourceExhaustedError as error:
            print(type(error).__name__, str(error).partition("\n")[0])
session = v1.InteractiveSession()
with tf.device("/gpu:1"):
    print((tf.constant(2.0) * 3).eval())
session.close()
refused(lambda: v1.Session(config=3))
server = tf.distribute.Server.create_local_server()
with tf.Graph().as_default(), tf.device("/job:localhost/task:0/gpu:1"), v1.Session(server.target) as session:
    print(session.run(tf.constant(1.0) + 1), [each.name[-5:] for each in session.list_devices()])
