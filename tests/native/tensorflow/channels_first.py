"""Images with the channels first, for which only GPUs have all kernels, and the text of a compiled function."""

import warnings

import tensorflow as tf

images = tf.random.stateless_uniform((2, 8, 4, 6), (1, 2))
last = tf.transpose(images, (0, 2, 3, 1))


def same(first, computed):
    return bool(tf.reduce_all(first == tf.transpose(computed, (0, 3, 1, 2))))


def pool(x, data_format):
    size = (1, 2, 3, 1) if data_format == "NHWC" else (1, 1, 2, 3)
    return tf.nn.max_pool2d(x, size, 2, "SAME", data_format)


print(same(pool(images, "NCHW"), pool(last, "NHWC")), pool(images, "NCHW").device)
padded = [(0, 0), (1, 1), (0, 1), (0, 0)]
first = tf.nn.max_pool2d(images, 2, 1, [padded[i] for i in (0, 3, 1, 2)], "NCHW")
print(same(first, tf.nn.max_pool2d(last, 2, 1, padded)), first.shape)
for function in (tf.nn.space_to_depth, tf.nn.depth_to_space):
    with tf.device("/GPU:1"):
        first = function(images, 2, data_format="NCHW")
    traced = tf.function(function)(images, 2, data_format="NCHW")
    print(same(first, function(last, 2)), same(traced, function(last, 2)), first.device)
print(tf.raw_ops.SpaceToDepth(input=images, block_size=2, data_format="NCHW").shape)
print(tf.nn.max_pool3d(images[:, :, None], 2, 2, "SAME", "NCDHW").shape)
with tf.GradientTape() as tape:
    tape.watch(images)
    result = tf.reduce_sum(pool(images, "NCHW"))
print(float(tf.reduce_sum(tape.gradient(result, images))))

function = tf.function(lambda x: x + 1, jit_compile=True)
compiled = function.experimental_get_compiler_ir(images)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for options in ({}, {"device_name": "/GPU:1"}, {"platform_name": "GPU"}):
        print(compiled(stage="hlo", **options).startswith("HloModule"))
