"""Sessions of TensorFlow 1 that see only the second GPU, in a process without eager code."""

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
with tf.device("/gpu:0"):
    x = tf.constant([1.0, 2.0]) * 3
for visible in ("1", " 1", "", "1,0"):
    options = v1.GPUOptions(visible_device_list=visible, allow_growth=True)
    try:
        with v1.Session(config=v1.ConfigProto(gpu_options=options)) as session:
            print([each.name[-5:] for each in session.list_devices()], session.run(x))
    except tf.errors.AlreadyExistsError as error:
        print(str(error).partition(", which")[0])
