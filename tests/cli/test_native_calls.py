"""Tests of `devshim run --check`: the calls of a program that will not be simulated, found without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.cli import native_calls
from devshim.registry import discovery

if TYPE_CHECKING:
    from conftest import Run

_LOAD = "torch.utils.cpp_extension.load"
SPELLINGS = {
    "import torch\ng = torch.cuda.CUDAGraph()": ("torch.cuda.CUDAGraph", 2),
    "import torch as t\n\nwith t.cuda.graph(t.cuda.CUDAGraph()): pass": ("torch.cuda.graph", 3),
    "from torch import cuda\ncuda.current_blas_handle()": ("torch.cuda.current_blas_handle", 2),
    "from torch.cuda import CUDAGraph as G": ("torch.cuda.CUDAGraph", 1),
    "import torch.cuda.nccl\ntorch.cuda.nccl.all_reduce([])": ("torch.cuda.nccl.all_reduce", 2),
    "import torch\ndef f():\n    return torch.cuda.graphs.graph_pool_handle()": (
        "torch.cuda.graphs.graph_pool_handle",
        3,
    ),
    "import torch\n@torch.cuda.jiterator._create_jit_fn\ndef f(): pass": ("torch.cuda.jiterator._create_jit_fn", 2),
    "import torch\ncuda = torch.cuda\ncuda.MemPool()": ("torch.cuda.MemPool", 3),
    "import torch\nt = torch\nt.cuda.MemPool()": ("torch.cuda.MemPool", 3),
    "import torch\ngetattr(torch.cuda, 'CUDAGraph')()": ("torch.cuda.CUDAGraph", 2),
    "import importlib\nt = importlib.import_module('torch')\nt.cuda.MemPool()": ("torch.cuda.MemPool", 3),
    "def f(x):\n    return x.__cuda_array_interface__": ("torch.Tensor.__cuda_array_interface__", 2),
    "def f(x):\n    return getattr(x.y, '__cuda_array_interface__')": ("torch.Tensor.__cuda_array_interface__", 2),
    "from numba import cuda": ("numba.cuda", 1),
    "import cupy as cp": ("cupy", 1),
    "from apex.optimizers import FusedAdam": ("apex.optimizers.FusedAdam", 1),
    "import bitsandbytes.functional as F\nF.igemm(a, b)": ("bitsandbytes.functional.igemm", 2),
    "import jax.experimental.pallas as pl": ("jax.experimental.pallas", 1),
    "import mxnet as mx\nmx.rtc.CudaModule('')": ("mxnet.rtc.CudaModule", 2),
    "import paddle\nx = [paddle.CUDAPinnedPlace() for _ in '1']": ("paddle.CUDAPinnedPlace", 2),
    "import torch\nname = 'cudagraphs'\nf = torch.compile(f, backend=name)": ('torch.compile(backend="cudagraphs")', 3),
    "import torch\n@torch.compile(backend='cudagraphs')\ndef f(): pass": ('torch.compile(backend="cudagraphs")', 2),
    "from torch.cuda import Event\nEvent(interprocess=True).ipc_handle()": ("torch.cuda.Event(interprocess=True)", 2),
    "import torch\ntorch._C._cuda_attach_out_of_memory_observer(print)": (
        "torch._C._cuda_attach_out_of_memory_observer",
        2,
    ),
    "from torch.utils.cpp_extension import load\nload('x', ['x.cpp', f'{here}/x.cu'])": (f"{_LOAD} of CUDA sources", 2),
    "import torch.utils.cpp_extension as e\nfiles = [here / 'x.cu']\nmore = ['x.cpp', *files]\ne.load('x', more)": (
        f"{_LOAD} of CUDA sources",
        4,
    ),
    "import torch.utils.cpp_extension as e\ne.load('x', sources, with_cuda=True)": (f"{_LOAD} of CUDA sources", 2),
    "import torch.utils.cpp_extension as e\ne.load_inline('x', '', text)": (f"{_LOAD}_inline of CUDA sources", 2),
    "from torch.utils import cpp_extension\ncpp_extension.load_inline(name='x', cpp_sources='', cuda_sources=[t])": (
        f"{_LOAD}_inline of CUDA sources",
        2,
    ),
    "from torch.utils import cpp_extension as e\nsetup(ext_modules=[e.CppExtension('x', ['x.cu'])])": (
        "torch.utils.cpp_extension.CppExtension of CUDA sources",
        2,
    ),
    "from paddle.utils.cpp_extension import load\nload(name='x', sources=['x.cc', 'x.cu'])": (
        "paddle.utils.cpp_extension.load of CUDA sources",
        2,
    ),
    "import paddle.nn.functional as F\nF.margin_cross_entropy(x, y)": ("paddle.nn.functional.margin_cross_entropy", 2),
    "from paddle.incubate.nn import FusedFeedForward as Layer": ("paddle.incubate.nn.FusedFeedForward", 1),
    "def f(x):\n    return x.top_p_sampling(p)": ("paddle.Tensor.top_p_sampling", 2),
    "try:\n    import py3nvml\nexcept ImportError:\n    pass": ("py3nvml", 2),
}


@pytest.mark.parametrize("source", SPELLINGS)
def test_every_spelling_of_a_call_is_found(source: str) -> None:
    found, _ = native_calls.read(source, "script.py", Path())
    assert (found[0].name, found[0].line) == SPELLINGS[source]
    assert found[0].reason


@pytest.mark.parametrize(
    "source",
    [
        "",
        "import torch\nx = torch.ones(3, device='cuda:1').cuda()\ntorch.cuda.synchronize()",
        "class torch:\n    cuda = None\ntorch.cuda.CUDAGraph",  # not the package
        "import torch\ntorch.compile(f, backend='aot_eager')\ntorch.cuda.Event(blocking=True, interprocess=False)",
        "import cupyx_like\nimport cuda_tools",
        "import bitsandbytes as bnb\nbnb.nn.Linear4bit(2, 2)",
        "import tensorflow as tf\nwith tf.device('/GPU:1'): tf.ones(3)",
        "text = 'torch.cuda.CUDAGraph'  # torch.cuda.CUDAGraph",
        "from . import cuda\ncuda.graph()",
        "from torch.utils.cpp_extension import load\nsources = ['x.cpp']\nload(name='x', sources=sources)",
        "import torch.utils.cpp_extension as e\ne.load_inline('x', '', cuda_sources=None, with_cuda=False)",
    ],
)
def test_other_code_is_not_reported(source: str) -> None:
    assert native_calls.read(source, "script.py", Path()) == ([], [])


def test_a_name_that_is_assigned_again_and_again_is_read_in_time() -> None:
    """Each line names the variable twice, and keeps its texts once."""
    source = "df = {'a': 'x.cu'}\n" + "df = df[df['a'] > 0]\n" * 60 + "import cupy\ncupy.zeros(3, dtype='float32')\n"
    found, _ = native_calls.read(source, "script.py", Path())
    assert [(each.name, each.line) for each in found] == [("cupy", 62), ("cupy.zeros", 63)]


def test_the_modules_beside_a_program_are_read(run: Run, tmp_path: Path) -> None:
    """Also in packages and in cycles; modules elsewhere are not."""
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "train.py").write_text("import helper\nfrom package import part\nimport os, numpy\n")
    (tmp_path / "helper.py").write_text("import train\nimport torch\ntorch.cuda.CUDAGraph()\n")
    (tmp_path / "package" / "__init__.py").write_text("from .inner import deep\n")
    (tmp_path / "package" / "part.py").write_text("from numba import cuda\n")
    (tmp_path / "package" / "inner" / "__init__.py").write_text("")
    (tmp_path / "package" / "inner" / "deep.py").write_text("from ... import nothing\nimport triton.language as tl\n")
    (tmp_path / "other.py").write_text("import cupy\n")
    done = run("run", "--check", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert [line.split(" is ")[0] for line in done.stdout.splitlines()] == [
        f"{tmp_path / 'helper.py'}:3: torch.cuda.CUDAGraph",
        f"{tmp_path / 'package' / 'part.py'}:1: numba.cuda",
        f"{tmp_path / 'package' / 'inner' / 'deep.py'}:2: triton.language",
    ]


def test_nothing_runs_and_a_clean_program_passes(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')\nimport torch\ntorch.ones(3).cuda()\n")
    done = run("run", "--check", str(script))
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing that is known not to work" in done.stderr
    assert run("run", "--check", "-c", "import cupy").stdout.startswith("<string>:1: cupy is not simulated: ")
    assert run("run", "--check", "-m", "script", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.py"], "there is no file 'missing.py'"),
        (["-m", "missing.part"], "there is no module 'missing.part'"),
        (["-c", "import ("], "<string> is not valid Python at line 1"),
    ],
)
def test_what_cannot_be_read_is_an_error(run: Run, words: list[str], message: str) -> None:
    done = run("run", "--check", *words)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_each_entry_says_what_to_do(name: str) -> None:
    """An entry is below its framework, and its reason has two parts: why, and what to do instead."""
    calls = discovery.unsimulated_calls(name)
    for call, reason in calls.items():
        assert call.startswith(f"{name}.")
        assert reason.count(": ") >= 1, call


@pytest.mark.parametrize("words", [["train.py"], ["-m", "package.train"], ["-c", "import package.train"]])
def test_absolute_imports_start_at_the_folder_of_the_program(run: Run, tmp_path: Path, words: list[str]) -> None:
    """Also those of a package's modules, and importing a module runs the package's ``__init__.py``."""
    (tmp_path / "package").mkdir()
    (tmp_path / "train.py").write_text("import package.train\n")
    (tmp_path / "package" / "__init__.py").write_text("import pycuda\n")
    (tmp_path / "package" / "train.py").write_text("from package import part\nimport helper\n")
    (tmp_path / "package" / "part.py").write_text("import cupy\n")
    (tmp_path / "package" / "helper.py").write_text("import cudf\n")  # not imported: Python finds the other one
    (tmp_path / "helper.py").write_text("import cuml\n")
    done = run("run", "--check", *words, cwd=tmp_path)
    assert [line.split(" is ")[0].rpartition(" ")[2] for line in done.stdout.splitlines()] == ["pycuda", "cupy", "cuml"]


def test_files_are_read_in_their_encoding(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"\xef\xbb\xbfimport helper\n")
    (tmp_path / "helper.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\nimport cupy\n")
    done = run("run", "--check", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.partition(" is ")[0]) == (1, f"{tmp_path / 'helper.py'}:3: cupy")


@pytest.mark.parametrize("source", [b"x = '\xe9'", b"x = 1\0"])
def test_bytes_that_are_not_a_text_are_refused(source: bytes) -> None:
    with pytest.raises(ds.ArgumentError, match=r"script\.py is not valid Python"):
        native_calls.read(source, "script.py", Path())


def test_an_invalid_file_is_named() -> None:
    with pytest.raises(ds.ArgumentError, match="not valid Python at line 2"):
        native_calls.read("x = 1\ny = (", "script.py", Path())
