"""A tutorial's loop for two GPUs with a session of TensorFlow 1: towers share variables, and the CPU averages."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
print(tf.test.is_gpu_available(), tf.test.gpu_device_name())
random = np.random.RandomState(0)
images = random.rand(60, 64).astype("float32")
labels = (images @ random.rand(64, 10)).argmax(1)


def make_variable(name, shape):
    values = np.random.RandomState(len(name)).normal(0, 0.1, shape).astype("float32")
    with tf.device("/cpu:0"):
        return tf.get_variable(name, initializer=tf.constant(values))


def tower_loss(x, y):
    hidden = tf.nn.relu(tf.matmul(x, make_variable("w", [64, 32])) + make_variable("bias", [32]))
    logits = tf.matmul(hidden, make_variable("weight", [32, 10]))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=y))


def average(gradients):
    return [(tf.reduce_mean(tf.stack([g for g, _ in each]), 0), each[0][1]) for each in zip(*gradients, strict=True)]


x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
step = tf.train.get_or_create_global_step()
optimizer = tf.train.AdamOptimizer(0.01)
gradients, losses = [], []
for index, (part, target) in enumerate(zip(tf.split(x, 2), tf.split(y, 2), strict=True)):
    with tf.device(f"/gpu:{index}"), tf.variable_scope("net", reuse=index > 0):
        losses.append(tower_loss(part, target))
        gradients.append(optimizer.compute_gradients(losses[-1]))
train = optimizer.apply_gradients(average(gradients), global_step=step)
print([each.device for each in losses], repr(x.device), {each.device for each in tf.trainable_variables()})
saver = tf.train.Saver()


def fit(**options):
    """Return the losses of each step, and the last weights."""
    config = tf.ConfigProto(allow_soft_placement=True, gpu_options=tf.GPUOptions(allow_growth=True), **options)
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        found = [session.run([train, *losses], {x: images, y: labels})[1:] for _ in range(20)]
        with tempfile.TemporaryDirectory() as folder:
            path = saver.save(session, os.path.join(folder, "model"), global_step=step)
            print(os.path.basename(path))
            session.run(tf.global_variables_initializer())
            saver.restore(session, path)
        return np.array(found), session.run(tf.trainable_variables())


on_gpus, weights = fit()
on_host, same_weights = fit(device_count={"GPU": 0})
print(on_gpus[0].mean() > on_gpus[-1].mean(), np.array_equal(on_gpus, on_host))
print(all(map(np.array_equal, weights, same_weights)))

with tempfile.TemporaryDirectory() as folder:
    for last in (3, 5):
        stop = tf.train.StopAtStepHook(last_step=last)
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=[stop], save_summaries_secs=None
        ) as session:
            print("from step", session.run(step))
            while not session.should_stop():
                session.run(train, {x: images, y: labels})
