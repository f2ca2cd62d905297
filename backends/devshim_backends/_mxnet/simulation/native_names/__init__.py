"""MXNet's own names for GPUs, such as ``mx.gpu(1)``, for simulated GPUs (``ds.simulate(2, native_names=True)``).

A simulated GPU is a CPU for MXNet's C++ library: its ``cpu(1)`` is ``gpu(0)`` (see `simulate`). Everything above the
library is Python, and every device crosses into it in one of these ways:

* As two numbers, the kind and the index: in the functions of `switch`, and in ``MXNDArrayGetContext``, which returns
  them. These attributes of the MXNet library object are replaced, and translate the numbers (`names`).
* As text, such as ``"gpu(1)"``, among the arguments of an operator: `hooks` translates it with `names.to_library_text`,
  and so does the replaced ``MXSymbolCreateAtomicSymbol`` for symbols.
* In saved bytes, as the device that an array was saved from (see `saved_devices`).
* As text that the library passes back: the device of a ``CustomOpProp``, in `names.to_program_text`.
* As a question: how many GPUs there are, how much memory they have, and what the build supports.

So the Python of MXNet has real ``gpu(1)`` devices in arrays, parameters, trainers and ``with`` blocks, and few of its
functions are replaced. Requirements that this package meets:

* Every other CPU of a program, such as ``mx.cpu(1)``, is the host. The library has them from ``cpu(65)`` on, behind
  all simulated GPUs, and the program sees the numbers that it wrote.
* A GPU that is not there is refused where it is first used, with an error that is both MXNet's and devshim's.
* The number of GPUs may change while native names are on: it is read at each call.
"""
