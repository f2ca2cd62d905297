"""Tests of functions as bytes for another process, which do without Ray's import."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

from devshim.world import pickles

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the pickle that Ray contains")

LOADED = """
import sys
from devshim.world import pickles
fn, name = pickles.loads(sys.stdin.buffer.read())
print(fn(3), name, "ray" in sys.modules)
"""


def loaded(data: bytes) -> str:
    """Return what another process prints that calls the function in a pickle."""
    return subprocess.run([sys.executable, "-c", LOADED], input=data, capture_output=True, check=True).stdout.decode()


def test_a_local_function_is_sent_without_the_import_of_ray() -> None:
    factor = 7
    assert loaded(pickles.dumps((lambda x: factor * x, "a"))) == "21 a False\n"


def test_a_module_that_the_other_process_cannot_import_is_sent_with_the_function() -> None:
    module = ModuleType("only_here")
    exec("def twice(x): return add(x, x)\ndef add(x, y): return x + y", vars(module))
    sys.modules["only_here"] = module
    try:
        assert loaded(pickles.dumps_by_value((vars(module)["twice"], "a"), module)) == "6 a False\n"
    finally:
        del sys.modules["only_here"]
