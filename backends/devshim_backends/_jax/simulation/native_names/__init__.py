"""JAX's own names for GPUs, which mean the simulated GPUs while ``ds.simulate(..., native_names=True)`` is in force.

Simulated GPUs are JAX's CPU devices ``cpu:1`` to ``cpu:N``. With native names, a program sees two backends, as it does
with a real GPU: ``cpu``, with the one device that is the host, and ``cuda``, with the simulated GPUs. Three things
make that:

* The attributes ``id``, ``platform``, ``device_kind`` and others of the JAX device class, and ``str`` and ``repr``,
  say for a simulated GPU what they say for a real one.
* JAX starts its backends again, at the program's next question, from replaced factories. So JAX itself chooses the
  default backend and obeys ``JAX_PLATFORMS`` and ``jax.config``, and its errors are those of a machine with GPUs.
* The CPU client of JAX lists its first device only. The client of ``cuda`` is a `GpuClient`.

XLA still compiles for its CPU: ``device.client`` is that of the CPU, and compiled code names devices by their true
numbers. JAX's caches do not depend on the default device, so they are cleared at the switch.
"""
