"""A process that examines the operators whose numbers it reads, and answers each with a line of JSON.

It is a separate process, so that an operator that crashes it ends only its own examination.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict

import torch
from exam import examine

import devshim as ds


def main(max_samples: int | None, native_names: bool) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # an operator's output must not mix with the answers
    warnings.simplefilter("ignore")  # samples use deprecated functions, too
    torch.set_num_threads(1)
    ds.use("torch")
    ds.simulate(gpus=2, native_names=native_names)  # as `devshim run` does, before a program takes functions of torch
    from torch.testing._internal.common_methods_invocations import op_db

    gpu = ds.gpu(1).native()  # not the current one, so that a fallback to that is detected
    print(json.dumps([operator.formatted_name for operator in op_db]), file=answers)
    for line in sys.stdin:
        report = examine(op_db[int(line)], gpu, lambda: ds.memory("gpu:1").used or 0, max_samples)
        print(json.dumps(asdict(report)), file=answers)


if __name__ == "__main__":
    main(int(sys.argv[1]) or None, native_names=sys.argv[2:] == ["--native-names"])
