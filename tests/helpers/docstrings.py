"""The examples in the docstrings of public names, each run with only the imports that it shows."""

from __future__ import annotations

import doctest
import re

import devshim as ds


def examples(backend: str) -> list[doctest.DocTest]:
    """Return the examples that select a framework by `ds.use`; one that selects none counts as an example for NumPy."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    public = {"devshim": ds, **{f"devshim.{name}": getattr(ds, name) for name in ds.__all__ if name != "__version__"}}
    public |= {f"devshim.random.{name}": getattr(ds.random, name) for name in ds.random.__all__}
    found = {}
    for name, each in public.items():
        for test in finder.find(each, name, module=False, globs={}):
            chosen = re.search(r'^ds\.use\("(\w+)"\)', "".join(step.source for step in test.examples), re.MULTILINE)
            if test.examples and (chosen[1] if chosen else "numpy") == backend:
                found[test.name] = test
    return list(found.values())


def failures(test: doctest.DocTest) -> str:
    """Run an example, and return its failures, and any options that would keep it from running."""
    said: list[str] = []
    assert not any(step.options for step in test.examples), f"{test.name} is not run as it is printed"
    doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(test, out=said.append)
    return "".join(said)
