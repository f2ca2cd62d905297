"""PaddlePaddle's own names for GPUs, for simulated GPUs (``ds.simulate(2, native_names=True)``).

A simulated GPU is a device of a plug-in: Paddle prints ``Place(sim_gpu:1)``, and computes on it as on a real one. A
program that is written for CUDA names it ``"gpu:1"`` or ``paddle.CUDAPlace(1)``. Requirements that this package meets:

* The places that the program makes and reads are the plug-in's; only their names change (`names`).
* Paddle's own modules go on to treat them as a plug-in's: what they would call for CUDA is not in a build for CPUs. So
  the answers to "is this a GPU of CUDA?" depend on who asks (`callers`).
* The functions of ``paddle.device.cuda`` and ``paddle.cuda`` answer for simulated GPUs (`runtime`).
* A program of several processes is refused (`distributed`).
* The first GPU is Paddle's default device, as in every build for CUDA.
* Switching off restores every attribute, and the default device.
"""
