"""Sessions of TensorFlow 1: tensors that a session keeps on a GPU, and operators with strings in a GPU's scope."""

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()


def show(name, compute):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        try:
            found = compute(session)
        except tf.errors.InvalidArgumentError as error:
            found = next(line for line in str(error).splitlines() if line.startswith("Cannot"))
        print(name, found, sorted({node.device for node in graph.as_graph_def().node}))


def keep(session, device="/gpu:1"):
    with tf.device(device):
        handle = session.run(v1.get_session_handle(tf.constant([1.0, 2.0]) * 2))
    text = handle.handle
    holder, x = v1.get_session_tensor(text, tf.float32)
    with tf.device("/gpu:0"):
        y = x + 1
    found = [session.run(y, {holder: text}), session.run(y, {x: handle})]
    found += [handle.eval(), text.split(";")[-1], holder.device]
    handle.delete()
    try:
        session.run(y, {holder: text})
    except tf.errors.InvalidArgumentError as error:
        found.append(type(error).__name__)
    return [x if isinstance(x, str) else x.tolist() for x in found]


def on_gpu(compute):
    with tf.device("/cpu:0"):
        words = tf.constant(["a"])
    with tf.device("/gpu:1"):
        return compute(words)


def branch(words):
    no, yes = tf.raw_ops.Switch(data=words, pred=tf.constant(True))
    return tf.raw_ops.Merge(inputs=[no, yes]).output


def loop(words):
    return tf.raw_ops.Exit(data=tf.raw_ops.Enter(data=words, frame_name="loop"))


def store(session):
    variable = on_gpu(lambda words: v1.get_variable("words", initializer=words, use_resource=True))
    session.run(variable.initializer)
    return session.run(variable)


def feed(session):
    word = on_gpu(lambda words: v1.placeholder(tf.string, []))
    with tf.device("/cpu:0"):
        return session.run(tf.identity(word), {word: "a"})


def queue(session):
    numbers = v1.FIFOQueue(2, tf.float32, [()])
    session.run(numbers.enqueue(1.0))
    return session.run(numbers.dequeue())


def call(x):
    return v1.py_func(lambda value: value + 1, [x], tf.float32)


show("gpu", keep)
show("no device", lambda session: keep(session, None))
show("word", lambda session: session.run(v1.get_session_handle(tf.constant("a"))).eval())
show("identity", lambda session: session.run(on_gpu(tf.identity)))
show("branch", lambda session: session.run(on_gpu(branch)))
show("loop", lambda session: session.run(on_gpu(loop)))
show("variable", store)
show("placeholder", feed)
show("queue", queue)
show("function", lambda session: session.run(call(tf.constant(1.0))))
show("function on a GPU", lambda session: session.run(on_gpu(lambda words: call(tf.constant(1.0)))))
show("queue on a GPU", lambda session: session.run(on_gpu(lambda words: v1.FIFOQueue(2, tf.float32, [()]).size())))
show("length on a GPU", lambda session: session.run(on_gpu(tf.strings.length)))
metadata = v1.RunMetadata()
with tf.Graph().as_default(), v1.Session() as session:
    numbers = v1.FIFOQueue(2, tf.float32, [()])
    called = call(tf.constant(1.0))
    trace = v1.RunOptions(output_partition_graphs=True)
    session.run([numbers.enqueue(1.0), called], options=trace, run_metadata=metadata)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    print(sorted((node.op, node.device[-5:]) for node in nodes if node.op in ("FIFOQueueV2", "PyFunc")))
