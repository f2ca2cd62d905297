"""Mutants that survive, and why no test has to kill them."""

from __future__ import annotations

SURVIVORS: dict[tuple[str, str, str], str] = {
    (
        "devshim/tensors/stacking.py",
        '_KINDS = {"bool": 0, "uint": 1, "int": 1, "bfloat": 2, "float": 2, "complex": 3}',
        "3 -> 4",
    ): "only the order counts, and complex is the last either way",
    (
        "devshim/registry/argument_hints.py",
        "close = get_close_matches(value[:40].lower(), options, 1)",
        "40 -> 41",
    ): "the options are short words, to which no text of 40 characters is close",
    (
        "devshim/simulation/memory.py",
        "self._inconsistent = False",
        "False -> True",
    ): "the next update adds up the same allocations again, and gets the same sum",
    (
        "devshim/checkpoints/structure.py",
        "if not isinstance(each, str) or not each.isidentifier() or keyword.iskeyword(each) or len(each) > 200:",
        "or -> and",
    ): "namedtuple and make_dataclass, which get the names, refuse the same ones",
    (
        "devshim/placement/presentation.py",
        'deepest = max((path.count(".") for path in places), default=0)',
        "0 -> 1",
    ): "the next line uses at least 1",
    (
        "devshim/trees/flatten.py",
        "return list(zip(self.numbers, cells, self.tensors, self.backends, strict=True))",
        "True -> False",
    ): "the four lists always have one length",
    (
        "devshim/devices/parsing.py",
        "start = str.__getitem__(text, slice(24))",
        "24 -> 25",
    ): "longer text is refused two lines below",
    (
        "devshim/transfers/engine.py",
        "if active is not None and sources:",
        "and -> or",
    ): "a tensor of NumPy always has a source",
    (
        "devshim/simulation/simulate.py",
        'named = bool(names and gpus and "native_names" not in backend.gaps)',
        "and -> or",
    ): "NumPy, which judges, has no native names",
    (
        "devshim/checkpoints/arrivals.py",
        "SMALL = 1 << 18",
        "18 -> 19",
    ): "only the time of a copy depends on it",
    (
        "devshim/tensors/traced_gradients.py",
        "device = backend.device_of(xs[0])",
        "0 -> 1",
    ): "NumPy, which judges, has no gradients",
    (
        "devshim/devices/device.py",
        'if cls is bool or (numpy is not None and cls is getattr(numpy, "bool_", None)):  # an index before NumPy 2.2',
        "is not -> is",
    ): "since NumPy 2.2, its bool is not an index anyway",
    (
        "devshim/runtime/ahead.py",
        "if owner is backend:",
        "is -> is not",
    ): "NumPy, which judges, is the framework of every array",
    (
        "devshim/transfers/progress.py",
        "_answer: tuple[object, bool] = (object(), False)",
        "False -> True",
    ): "the answer is used only for the object stored with it, which is never a stream",
    (
        "devshim/simulation/usage.py",
        "@dataclass(frozen=True)",
        "True -> False",
    ): "nothing assigns to a process",
    (
        "devshim/transfers/cells.py",
        "return next((i for i, line in enumerate(typed.splitlines()) if line.strip()), 0)",
        "return None",
    ): "tests/notebook runs it, in a kernel",
}
"""File, line of source and change -> the reason why the mutant behaves like the original."""
