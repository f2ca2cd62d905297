"""A program that prints the seconds of the first call of devshim: ``python -m benchmarks.first_call ENVIRONMENT``.

The framework has been imported, has made a tensor in its own code, and its objects have been collected once: PyTorch's
import leaves so many objects that the next collection takes 90 ms, in whichever call makes the next objects.
"""

from __future__ import annotations

import gc
import sys
import time
import warnings

from benchmarks.frameworks import NATIVE


def main(environment: str) -> None:
    """Print the processor time of ``import devshim`` and of the first call, in seconds."""
    warnings.simplefilter("ignore")
    native = NATIVE[environment]
    names = {**native.begin(), "shape": (1,)}
    exec(native.calls["ones"], names)
    exec(f"{native.device_scope or 'if True'}: pass", names)
    gc.collect()
    begun = time.process_time()
    import devshim as ds

    ds.use(native.backend)
    ds.ones(1)
    print(time.process_time() - begun)


if __name__ == "__main__":
    main(*sys.argv[1:])
