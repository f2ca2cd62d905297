"""Tests of ``%%frameworks`` in a real kernel, whose own environment is that of NumPy: no other framework is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel


class Notebook:
    """A kernel with the extension."""

    def __init__(self, folder: Path) -> None:
        variables = {**os.environ, "DEVSHIM_TUTORIAL_CACHE": str(folder / "cache"), "DEVSHIM_BACKEND": "numpy"}
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder), env=variables)
        assert self.run("%load_ext devshim") == ("", [])

    def run(self, source: str) -> tuple[str, list[str]]:
        """Run a cell; return its text, and the HTML that it displays."""
        text, html = "", []

        def hear(message: dict[str, Any]) -> None:
            nonlocal text
            content = message["content"]
            if message["msg_type"] == "stream":
                text += content["text"]
            elif message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
                if not content["data"]["text/plain"].startswith("starting NumPy"):  # the results replace it
                    text += content["data"]["text/plain"]
                    html.append(content["data"].get("text/html", ""))
            elif message["msg_type"] == "error":
                text += f"{content['ename']}: {content['evalue']}"

        self.client.execute_interactive(source, timeout=120, output_hook=hear)
        return text, html

    def kernels(self) -> list[int]:
        """Return the processes of the frameworks' kernels, by the process that started them."""
        code = "import os; print([each.settings.environment.framework for each in S.kernels.values()])"
        self.run("from devshim.jupyter.frameworks import _SESSION as S\n" + code)
        text, _ = self.run("print([each._manager.provisioner.process.pid for each in S.kernels.values()])")
        return [int(each) for each in text.strip("[]\n ").split(",") if each]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "pyproject.toml").write_text('[tool.devshim.tutorial.environments]\nnumpy = "here"\n')
    made = Notebook(folder)
    yield made
    made.client.stop_channels()
    made.manager.shutdown_kernel(now=True)


def gone(process: int) -> bool:
    """Return True when a process has ended, within some seconds."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # the second if it ends between opening and reading
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_a_cell_runs_in_the_framework_s_kernel_which_is_kept(notebook: Notebook) -> None:
    text, (html,) = notebook.run("%%frameworks\nx = ds.ones(3, device='gpu:1')\nprint('<b>')\nx")
    assert text.startswith("--- NumPy\n    np.ones((3,))\n<b>\narray([1., 1., 1.])")
    assert "&lt;b&gt;" in html
    text, _ = notebook.run("%%frameworks numpy\nprint(ds.device_of(x))")
    assert "gpu:1\n---" in text
    assert "NameError" in notebook.run("x")[0], "the notebook's own variables are others"
    assert len(notebook.kernels()) == 1


def test_a_framework_without_an_environment_is_a_column_and_the_others_run(notebook: Notebook) -> None:
    text, _ = notebook.run("%%frameworks numpy mxnet\nprint('fine')")
    assert "fine" in text
    assert "MXNet cannot run: there is no environment for it" in text
    assert "Hint: " in text
    assert text.endswith("MXNet did not run this cell")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("%%frameworks numppy\n1", "did you mean 'numpy'?"),
        ("%%frameworks numpy --gpu\n1", "unrecognized arguments: --gpu"),
        ("%%frameworks numpy --gpus many\n1", "invalid int value: 'many'"),
        ("%%frameworks numpy --gpus 99\n1", "it must be 0 to 64"),
        ("%%frameworks numpy --env numpy\n1", "does not name an environment"),
        ("%%frameworks 'numpy\n1", "No closing quotation"),
        ("%%frameworks --stop\n1", "runs no cell"),
    ],
)
def test_what_is_wrong_is_one_text(notebook: Notebook, source: str, said: str) -> None:
    text, html = notebook.run(source)
    assert said in text
    assert "Hint: " in text
    assert "Traceback" not in text
    assert html == []


def test_an_environment_that_is_wrong_says_so(notebook: Notebook) -> None:
    text, _ = notebook.run("%%frameworks mxnet --env mxnet=/no/such/folder\n1")
    assert "/no/such/folder (--env) has no Python" in text


def test_an_error_is_shown_as_its_text(notebook: Notebook) -> None:
    text, (html,) = notebook.run("%%frameworks numpy\nds.place(ds.ones(2), 'gpu:7')")
    assert "DeviceNotFoundError: " in text
    assert "gpu:7" in html


def test_outputs_are_html_pictures_and_text_that_is_replaced(notebook: Notebook) -> None:
    source = "from IPython.display import HTML, Image, clear_output, display\ndisplay('gone')\nclear_output()\n"
    shown = "display(HTML('<i>slanted</i>'), Image(data=b'PNG', format='png'))\nh = display('old', display_id=True)\n"
    _, (html,) = notebook.run(f"%%frameworks numpy\n{source}{shown}h.update('new')")
    assert "<i>slanted</i>" in html
    assert 'src="data:image/png;base64,UE5H"' in html
    assert "new" in html
    assert "old" not in html
    assert "gone" not in html


def test_a_kernel_that_dies_is_replaced(notebook: Notebook) -> None:
    notebook.run("%%frameworks numpy\nkept = 1")
    text, _ = notebook.run("%%frameworks numpy\nimport os; os._exit(3)")
    assert "its kernel ended with exit status 3\nThe next cell starts a new one" in text
    text, _ = notebook.run("%%frameworks numpy\nkept")
    assert "NameError" in text


def test_ctrl_c_interrupts_the_cell_and_the_kernel_lives_on(notebook: Notebook) -> None:
    notebook.run("%%frameworks numpy\nkept = 5\nimport time")
    said: list[str] = []
    asked = notebook.client.execute("%%frameworks numpy\nprint('begun', flush=True)\ntime.sleep(60)")
    time.sleep(1.5)
    notebook.manager.interrupt_kernel()
    while True:
        message = notebook.client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != asked:
            continue
        content = message["content"]
        said.append(content.get("text") or content.get("data", {}).get("text/plain", ""))
        if content.get("execution_state") == "idle":
            break
    text = "".join(said)
    assert "begun" in text
    assert "KeyboardInterrupt" in text
    assert "the cell was interrupted" in text
    assert "kept" in notebook.run("%%frameworks numpy\nprint('kept', kept)")[0]


def test_several_cells_at_once_wait_for_their_turn(notebook: Notebook) -> None:
    notebook.run("%%frameworks numpy\ncount = []")
    thread = "threading.Thread(target=get_ipython().run_cell_magic, args=('frameworks', 'numpy', 'count.append(1)'))"
    notebook.run(
        f"import threading\nall_of = [{thread} for _ in range(5)]\n[t.start() for t in all_of]\n"
        "[t.join() for t in all_of]\nNone"
    )
    assert "5\n---" in notebook.run("%%frameworks numpy\nprint(len(count))")[0]


def test_in_a_task_of_the_notebook(notebook: Notebook) -> None:
    source = "import asyncio\nasync def task():\n    get_ipython().run_cell_magic('frameworks', 'numpy', 'print(7)')\n"
    assert "7\n---" in notebook.run(f"{source}await asyncio.gather(task())\nNone")[0]


def test_other_gpus_start_another_kernel(notebook: Notebook) -> None:
    notebook.run("%%frameworks numpy\nkept = 1")
    (before,) = notebook.kernels()
    assert "3\n---" in notebook.run("%%frameworks numpy --gpus 3\nprint(ds.device_count())")[0]
    assert gone(before)
    notebook.run("%%frameworks numpy --gpus 2\n1")


def test_kernels_end_with_stop_with_the_extension_and_with_the_notebook(notebook: Notebook) -> None:
    assert notebook.run("%frameworks numpy")[0] == "kernels run for NumPy\n"
    (process,) = notebook.kernels()
    notebook.run("%frameworks --stop")
    assert gone(process)
    assert notebook.run("%frameworks")[0] == "no kernel runs\n"
    for end in ("%unload_ext devshim", "%reload_ext devshim"):
        notebook.run("%load_ext devshim")
        notebook.run("%frameworks numpy")
        (process,) = notebook.kernels()
        notebook.run(end)
        assert gone(process)
    notebook.run("%frameworks numpy")
    (process,) = notebook.kernels()
    notebook.manager.restart_kernel()
    assert gone(process)
    notebook.client.wait_for_ready(timeout=60)
    notebook.run("%load_ext devshim")
    notebook.run("%frameworks numpy")
    (process,) = notebook.kernels()
    notebook.manager.restart_kernel(now=True)
    assert gone(process), "also when the notebook's kernel is killed"
    notebook.client.wait_for_ready(timeout=60)
