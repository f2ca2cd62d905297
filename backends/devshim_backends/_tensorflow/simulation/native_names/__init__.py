"""TensorFlow's own names of GPUs, such as ``/GPU:1``, for the simulated GPUs: ``ds.simulate(2, native_names=True)``.

Requirements these modules answer:

* A program sees ``GPU:0`` and ``GPU:1``; below Python, TensorFlow computes on the logical CPUs ``CPU:1`` and ``CPU:2``.
  Python reads and writes device names in few places, and these translate (`names`, and `scopes` and
  `datasets` in ``internals``).
* The lists of devices and their configuration are TensorFlow's own code, on a list that has the GPUs (`devices`).
* What has no scope runs on ``GPU:0``, as on a machine with GPUs (`operators`). The module ``internals.policies``
  decides what is copied there.
* A name of a GPU that is not there is refused. With soft placement, TensorFlow would compute on the host.

Everything is replaced through one `Patches`, which restores it. Nothing here is imported while native names are off.
"""
