"""Tests of libraries with kernels that are compiled for CUDA, on simulated GPUs: small stand-ins for the real ones."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from simulated_torch import two_cards

import devshim as ds

_BITSANDBYTES = {
    "__init__": "",
    "cuda_specs": "def get_cuda_specs(): return 'CUDA'\n",
    "cextension": """
from bitsandbytes.cuda_specs import get_cuda_specs
class Compiled:
    def cquantize_cpu(self): return "computed"
class BNBNativeLibrary:
    def __init__(self, lib): self._lib = lib
    def __getattr__(self, name):
        found = getattr(self._lib, name, None)
        if found is not None: return found
        def fail(*args): raise RuntimeError("reinstall with GPU support")
        return fail
if get_cuda_specs(): raise OSError("libcublas.so.13: cannot open shared object file")
lib = BNBNativeLibrary(Compiled())
""",
    "functional": """
import torch
from bitsandbytes.cextension import lib
def get_paged(*shape, dtype=torch.float32, device=None): return lib.cget_managed_ptr()
def fill(A, value, device=None, prefetch=True): lib.cfill(A)
""",
}


_STAND_INS = {
    "bitsandbytes": _BITSANDBYTES,
    "triton": {"__init__": "", "runtime.__init__": "", "runtime.driver": "def _create_driver(): return 'driver'\n"},
    "xformers": {"__init__": "", "_cpp_lib": "_built_with_cuda = False\n"},
}


@pytest.fixture(autouse=True, scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Import the stand-ins while native names are on, and forget them at the end."""
    folder = tmp_path_factory.mktemp("libraries")
    for package, modules in _STAND_INS.items():
        for name, source in modules.items():
            path = folder.joinpath(package, *name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        with two_cards():
            for name in ("bitsandbytes.functional", "triton.runtime.driver", "xformers._cpp_lib"):
                importlib.import_module(name)
        yield
    for name in [each for each in sys.modules if each.partition(".")[0] in _STAND_INS]:
        del sys.modules[name]


def test_bitsandbytes_loads_its_library_for_the_cpu_and_refuses_the_rest() -> None:
    with two_cards():
        module = sys.modules["bitsandbytes.cextension"]
        assert module.lib.cquantize_cpu() == "computed"
        text = (
            "bitsandbytes' compiled function cgemm, which .*: simulated GPUs cannot run the kernels that bitsandbytes"
        )
        with pytest.raises(ds.UnsupportedError, match=text):
            module.lib.cgemm(1)
    with pytest.raises(RuntimeError, match="reinstall"):
        module.lib.cgemm(1)
    assert sys.modules["bitsandbytes.cuda_specs"].get_cuda_specs() == "CUDA"


def test_the_state_of_paged_optimizers_is_on_the_card() -> None:
    with two_cards():
        module = sys.modules["bitsandbytes.functional"]
        state = module.get_paged(2, 3, dtype=torch.uint8, device=torch.device("cuda", 1))
        assert (state.shape, state.dtype, str(state.device)) == ((2, 3), torch.uint8, "cuda:1")
        module.fill(state, 7)
        assert state.tolist() == [[7] * 3] * 2


def register(library: Any) -> None:
    """Register operators as bitsandbytes does."""
    for name in ("both", "only_cuda", "everywhere"):
        library.define(f"{name}(Tensor x) -> Tensor")
    library.impl("both", lambda x: x + (x.device.type == "cpu"), "CPU")
    library.impl("everywhere", lambda x: x + (x.device.type == "cuda"), "CompositeExplicitAutograd")
    for name in ("both", "only_cuda", "everywhere"):
        library.impl(name, lambda x: x - 1, "CUDA")


def check_operators() -> None:
    """Call the operators with tensors of a card."""
    operators, x = torch.ops.bitsandbytes, torch.ones(2, device="cuda:1")
    found = operators.both(x)
    assert (found.tolist(), str(found.device)) == ([2.0, 2.0], "cuda:1")
    assert operators.everywhere(x).tolist() == [2.0, 2.0]
    text = "kernels that bitsandbytes has compiled for CUDA, and bitsandbytes has none for the CPU"
    with pytest.raises(NotImplementedError, match=text):
        operators.only_cuda(x)


def test_operators_of_bitsandbytes_use_their_kernels_for_the_cpu() -> None:
    with torch.library._scoped_library("bitsandbytes", "FRAGMENT") as library, two_cards():
        register(library)
        check_operators()


def test_operators_of_bitsandbytes_that_are_older_than_native_names_do_too() -> None:
    with torch.library._scoped_library("bitsandbytes", "FRAGMENT") as library:
        register(library)
        with two_cards():
            check_operators()


def test_a_kernel_of_triton_is_refused_where_it_is_first_called() -> None:
    with two_cards():
        driver = sys.modules["triton.runtime.driver"]
        with pytest.raises(ds.UnsupportedError, match=r"(?s)a kernel of Triton.*set TRITON_INTERPRET=1"):
            driver._create_driver()
    assert driver._create_driver() == "driver"


def test_xformers_uses_the_attention_of_pytorch() -> None:
    with two_cards():
        module = sys.modules["xformers._cpp_lib"]
        assert module._built_with_cuda is True
        x = torch.randn(1, 4, 2, 8, device="cuda", dtype=torch.float16)
        out, sums, *_ = torch.ops.aten._flash_attention_forward(x, x, x, None, None, 4, 4, 0.0, False, False)
        state = None, None  # xFormers passes no state of random numbers without dropout
        call = x, x, x, x, out, sums, None, None, 4, 4, 0.0, False, *state
        assert [each.shape for each in torch.ops.aten._flash_attention_backward(*call)] == [x.shape] * 3
    assert module._built_with_cuda is False
