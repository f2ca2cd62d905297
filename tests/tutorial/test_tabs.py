"""Tests of `devshim tabs`: a script as a page of the book."""

from __future__ import annotations

from pathlib import Path

import pytest

import devshim as ds
from devshim.errors import DevshimError
from devshim.tutorial.tabs import tabs

SCRIPT = """\
# %% [markdown]
# # GPUs

# %%
import devshim as ds

X = ds.ones((2, 3), device="gpu:1")

# %%
X + X

# %%
print("printed")
with ds.transfers() as log:
    pass
"""
PAGE = """\
# GPUs

```{.python .input}
#@tab pytorch
import torch
import devshim as ds
```

```{.python .input}
#@tab jax
import jax
import jax.numpy as jnp
import devshim as ds
```

```{.python .input}
#@tab pytorch
X = torch.ones((2, 3), device="cuda:1")
```

```{.python .input}
#@tab jax
X = jnp.ones((2, 3), device=jax.devices("gpu")[1])
```

```{.python .input}
#@tab all
X + X
```

```{.python .input}
#@tab all
print("printed")
with ds.transfers() as log:
    pass
```
"""


def test_the_page_has_a_block_for_each_framework(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpus.py"
    path.write_text(SCRIPT)
    text, left = tabs(path, ("torch", "jax"))
    assert text == PAGE
    assert left == [f"{path}: cell 3, line 2: ds.transfers has no single native line (torch, jax)"]
    assert capsys.readouterr().out == ""


def test_a_framework_without_native_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpus.py"
    path.write_text(SCRIPT)
    with pytest.raises(DevshimError, match="no native code for numpy"):
        tabs(path, ("numpy",))


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DevshimError, match="cannot be read: No such file"):
        tabs(tmp_path / "nothing.py")
    assert ds.__version__
