"""Tests of the results of a cell on several frameworks: columns, native lines, and what differs."""

from __future__ import annotations

from typing import Any

import pytest

from devshim.jupyter.kernels import Shown
from devshim.jupyter.view import Sides, sides_of
from devshim.tutorial.record import MIME


def shown(text: str = "", dtype: str | None = None, lines: tuple[str, ...] = (), error: str = "") -> Shown:
    """Return the outputs of a cell that prints text, whose value is a tensor, or that raises."""
    outputs: list[Any] = []
    if text:
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if error:
        outputs.append({"output_type": "error", "ename": "ValueError", "evalue": error, "traceback": ["\x1b[31mlong"]})
    value = dtype and {"kind": "tensor", "dtype": dtype, "shape": [1], "device": "cpu", "numbers": [1.0], "count": 1}
    calls = [{"call": "ones", "text": line, "span": None} for line in lines]
    recorded = {MIME: {"seconds": 0.0, "value": value, "names": {}, "calls": calls}}
    outputs.append({"output_type": "display_data", "data": recorded, "metadata": {}})
    return Shown(outputs)


def sides(problems: dict[str, str] | None = None, **of: Shown) -> Sides:
    return sides_of("ds.ones(1)", of, problems or {})


def test_frameworks_that_agree_are_counted() -> None:
    found = sides(torch=shown("1\n"), jax=shown("1\n"), tensorflow=shown("1\n"), numpy=shown("1\n"))
    assert found.verdict() == (["4 agree"], True)
    assert repr(found).endswith("---\n4 agree")
    assert "4 agree" in found._repr_html_()


def test_the_odd_one_is_named_with_how_it_differs() -> None:
    found = sides(torch=shown(dtype="float32"), jax=shown(dtype="float32"), numpy=shown(dtype="float64"))
    how = "NumPy differs from PyTorch: the dtype of the value is float64, not float32"
    assert found.verdict() == (["PyTorch and JAX agree", how], False)


def test_two_that_differ_have_no_odd_one() -> None:
    said, agree = sides(torch=shown("1\n"), jax=shown("2\n")).verdict()
    assert said == ["they differ", "JAX differs from PyTorch: prints '2', not '1'"]
    assert not agree


def test_one_framework_alone_has_no_verdict() -> None:
    assert sides(torch=shown("1\n")).verdict() == ([], True)


def test_a_framework_without_kernel_and_one_that_ended_are_columns() -> None:
    found = sides(
        {"mxnet": "no environment"}, torch=shown("1\n"), jax=Shown(problem="its kernel was killed by SIGKILL")
    )
    said, agree = found.verdict()
    assert said == ["MXNet did not run this cell", "JAX did not run this cell"]
    assert not agree
    for text in ("no environment", "its kernel was killed by SIGKILL"):
        assert text in repr(found)
        assert text in found._repr_html_()


def test_native_lines_are_shown_once_with_their_number() -> None:
    found = sides(torch=shown(lines=("torch.ones(1)", "torch.ones(1)", "x.to('cpu')")))
    assert "    torch.ones(1)  # 2 times\n    x.to('cpu')" in repr(found)
    assert "torch.ones(1)  # 2 times\nx.to(&#x27;cpu&#x27;)" in found._repr_html_()


@pytest.mark.parametrize("text", ["<script>", "a & b"])
def test_texts_are_escaped_and_errors_are_one_line(text: str) -> None:
    found = sides(torch=shown(text, lines=(text,), error=text), jax=Shown(problem=text))
    assert text not in found._repr_html_()
    assert f"ValueError: {text}" in repr(found)
    assert "\x1b" not in repr(found)
