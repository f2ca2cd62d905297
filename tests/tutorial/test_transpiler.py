"""Tests of notebooks in a framework's own code: the code of each call, and where it is put."""

from __future__ import annotations

from pathlib import Path

import pytest
import transpiler_sample as sample

import devshim as ds
from devshim.errors import DevshimError
from devshim.tutorial.record import Call
from devshim.tutorial.transpiler.calls import Ran, recorded_calls
from devshim.tutorial.transpiler.cells import Cell, Translated, changed_lines, translate_cells
from devshim.tutorial.transpiler.recording import run_cells
from devshim.tutorial.transpiler.templates import native_code

PLACE = Path("script.py")


def translated(*sources: str, on: str = "torch") -> Translated:
    """Return cells in a framework's words; they run here, on NumPy with two simulated GPUs."""
    ds.use("numpy")
    ds.simulate(2)
    native = native_code(on)
    assert native is not None
    calls = run_cells(sources, PLACE)
    return translate_cells([Cell(source, ran) for source, ran in zip(sources, calls, strict=True)], native)


def code(source: str, on: str = "torch") -> str:
    """Return the translation of one cell after a cell that makes X and Y."""
    start = "import devshim as ds\nX = ds.ones((2, 3))\nY = ds.zeros(3)"
    return translated(start, source, on=on).sources[1]


@pytest.mark.parametrize("framework", sample.FRAMEWORKS)
def test_the_program_that_the_frameworks_run_is_the_translation(framework: str) -> None:
    ds.use("numpy")
    ds.simulate(2)
    (calls,) = run_cells([sample.SOURCE], PLACE)
    assert sample.rewritten(framework, calls) == sample.file_of(framework).read_text(encoding="utf-8")


@pytest.mark.parametrize("framework", sample.FRAMEWORKS)
def test_a_notebook_prints_the_same_on_every_framework(framework: str, capsys: pytest.CaptureFixture[str]) -> None:
    ds.use("numpy")
    ds.simulate(2)
    run_cells([sample.SOURCE], PLACE)
    assert capsys.readouterr().out == sample.file_of(framework).with_suffix(".txt").read_text(encoding="utf-8")


def test_comments_and_names_of_the_author_stay() -> None:
    assert code('# to the second\nZ = ds.place( X, "gpu:1" )  # why') == '# to the second\nZ = X.to("cuda:1")  # why'


def test_keywords_in_any_order_and_columns_after_other_letters() -> None:
    source = 'Z = "äß", ds.place(device="gpu:1", x=X)'
    assert code(source) == 'Z = "äß", X.to("cuda:1")'


def test_place_with_copy_is_a_copy() -> None:
    assert code('Z = ds.place(X, "gpu:1", copy=True)') == code('Z = ds.copy(X, "gpu:1")')
    assert "copy=True" in code('Z = ds.copy(X, "gpu:1")')


def test_an_expression_gets_parentheses_before_a_dot() -> None:
    assert code('ds.place(X + 1, "gpu:1")') == '(X + 1).to("cuda:1")'


STATEMENTS = {
    "an assignment": ('Z = ds.place(X, "gpu:1")', 'with tf.device("/GPU:1"):\n    Z = tf.identity(X)'),
    "a value that the notebook shows": (
        'ds.ones(3, device="gpu:1")',
        'with tf.device("/GPU:1"):\n    result = tf.ones((3,))\nresult',
    ),
    "a part of an expression": (
        'print(ds.ones(3, device="gpu:1"))',
        'with tf.device("/GPU:1"):\n    result = tf.ones((3,))\nprint(result)',
    ),
    "in a block": (
        'if True:\n    # here\n    Z = ds.copy(X, "gpu:1")',
        'if True:\n    # here\n    with tf.device("/GPU:1"):\n        Z = tf.raw_ops.DeepCopy(x=X)',
    ),
    "a function's result": (
        'def f(x):\n    return ds.copy(x, "cpu")\nZ = f(X)',
        'def f(x):\n    with tf.device("/CPU:0"):\n        return tf.raw_ops.DeepCopy(x=x)\nZ = f(X)',
    ),
    "two in one line": (
        'print(ds.ones(1, device="gpu:0"), ds.ones(1, device="gpu:1"))',
        'with tf.device("/GPU:0"):\n    result = tf.ones((1,))\n'
        'with tf.device("/GPU:1"):\n    result_2 = tf.ones((1,))\n'
        "print(result, result_2)",
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_are_put_before_the_statement_of_the_call(name: str) -> None:
    source, expected = STATEMENTS[name]
    assert code(source, on="tensorflow") == expected


ORDERED = {
    "in a loop over values": "Z = [ds.ones(n, device='gpu:1') for n in (1, 2)]",
    "in a function without a name": "Z = (lambda: ds.ones(2, device='gpu:1'))()",
    "in one of two branches": "Z = ds.ones(2, device='gpu:1') if X is Y else 3",
    "after another call": "Z = [len([1]), ds.ones(2, device='gpu:1')]",
    "after an operator that may stop": "Z = X is Y and ds.ones(2, device='gpu:1')",
    "in a test": "if ds.ones(2, device='gpu:1') is None:\n    pass",
}


@pytest.mark.parametrize("name", ORDERED)
def test_a_call_that_cannot_be_moved_becomes_a_helper_function(name: str) -> None:
    found = translated("import devshim as ds\nX, Y = 1, 2", ORDERED[name], on="tensorflow")
    assert "ones_on_device(" in found.sources[1]
    assert "def ones_on_device(" in found.setup
    compile(found.setup + found.sources[1], "code", "exec")


def test_a_device_that_changes_stays_a_variable() -> None:
    assert code("for d in ds.try_all_gpus():\n    ds.place(X, d)") == "for d in try_all_gpus():\n    X.to(d)"


def test_a_variable_that_is_text_becomes_the_device_it_named() -> None:
    assert code('where = "gpu:1"\nZ = ds.place(X, where)').splitlines()[1] == 'Z = X.to("cuda:1")'


def test_text_that_names_several_devices_is_left() -> None:
    found = translated("import devshim as ds\nX = ds.ones(1)", "for w in ['cpu', 'gpu:1']:\n    ds.place(X, w)")
    assert [each.reason for each in found.left[1]] == ["its device is text, and not always the same"]


def test_a_draw_of_jax_has_a_fresh_key() -> None:
    found = translated("import devshim as ds", "ds.random.seed(7)\nX = ds.random.normal(size=2)", on="jax")
    assert found.sources[1].startswith(
        "key = jax.random.key(7)\nX = jax.device_put(jax.random.normal(next_key(), (2,))"
    )
    assert "def next_key():" in found.setup


def test_what_has_no_native_line_is_left_and_named() -> None:
    found = translated("import devshim as ds", "with ds.transfers() as log:\n    pass\nlog\nds.Device('cpu')")
    assert [(each.name, each.line) for each in found.left[1]] == [("ds.transfers", 1), ("ds.Device", 4)]
    assert found.needs_devshim
    assert "import devshim as ds" in found.setup


def test_a_call_that_did_not_run_is_left() -> None:
    found = translated("import devshim as ds", "if False:\n    ds.place(None, 'cpu')")
    assert [each.reason for each in found.left[1]] == ["did not run on this framework"]


def test_an_argument_without_a_counterpart_is_left() -> None:
    found = translated("import devshim as ds\nX = ds.ones(2)", "ds.ones(3, like=X)")
    assert [each.reason for each in found.left[1]] == ["its argument like has no native counterpart"]


def test_other_names_of_devshim() -> None:
    found = translated("import devshim as shim\nfrom devshim import ones, random as draws", "ones(2)\nshim.ones(2)")
    assert found.sources[1] == "torch.ones((2,))\ntorch.ones((2,))"


def test_magics_and_cells_that_are_not_python_stay() -> None:
    native = native_code("torch")
    assert native is not None
    cells = [Cell("%matplotlib inline\n!ls -l\nds.device_count()"), Cell("%%bash\nds.device_count()")]
    sources = translate_cells(cells, native).sources
    assert sources == ["%matplotlib inline\n!ls -l\ntorch.cuda.device_count()", "%%bash\nds.device_count()"]


def test_a_model_is_moved_in_place_where_the_framework_cannot() -> None:
    native = native_code("tensorflow")
    assert native is not None
    source = 'ds.place(net, "gpu:1")\nprint(1)'
    ran = [Ran("place_model", 1, 0, (1, 22), "gpu:1")]
    found = translate_cells([Cell(source, ran)], native).sources[0]
    assert found.endswith("    moved.set_weights(net.get_weights())\nnet = moved\nprint(1)")


def test_a_recorded_place_in_bytes_is_one_in_characters() -> None:
    call = Call("place", "x.to(...)", (1, 1, 6, 26), "gpu:1", names={"x": "x['a']"})
    (found,) = recorded_calls('"äö"; ds.place(X, "gpu:1")', [call])
    assert (found.column, found.end, found.is_tree) == (4, (1, 24), True)


def test_changed_lines_are_the_native_ones() -> None:
    before, after = "x = 1\ny = ds.ones(2)\nz", 'x = 1\nwith tf.device("/GPU:1"):\n    y = tf.ones((2,))\nz'
    assert changed_lines(before, after) == ['with tf.device("/GPU:1"):', "    y = tf.ones((2,))"]


def test_numpy_has_no_words_of_its_own_for_gpus() -> None:
    assert native_code("numpy") is None


def test_a_script_that_raises_says_where() -> None:
    with pytest.raises(DevshimError, match=r"script.py, cell 2, line 2: ZeroDivisionError"):
        run_cells(["x = 1", "\nx / 0"], PLACE)
