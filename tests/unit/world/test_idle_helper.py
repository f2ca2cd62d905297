"""Tests of the process that takes the place of two of a Ray node's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from devshim.world import cluster, idle_helper

HELPER = idle_helper.__file__
PARENT = (
    "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid, flush=True); input()"
)


def test_the_helper_reports_unused_ports_and_ends_with_its_node(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", HELPER, f"--session-dir={tmp_path}", "--node-id=ab", "one_port", "two_port"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PARENT, *words], text=True, **pipes) as parent:
        assert parent.stdout is not None
        started = Path("/proc", parent.stdout.readline().strip())
        until = time.monotonic() + 30
        while len(list(tmp_path.glob("*_ab"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
            "one_port_ab": "-1",
            "two_port_ab": "-1",
        }
        assert started.exists() or sys.platform != "linux"
        parent.kill()
    while started.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not started.exists()


def test_the_helper_ends_if_its_node_ended_first(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    words = [sys.executable, "-I", "-S", HELPER, f"--session-dir={folder}", "--node-id=ab", "one_port"]
    with subprocess.Popen(words) as helper:  # this process is not its node, and goes on
        try:
            until = time.monotonic() + 30
            while not list(folder.glob("*_ab")) and time.monotonic() < until:
                time.sleep(0.05)
            shutil.rmtree(folder)  # with the cluster
            assert helper.wait(30) == 0
        finally:
            helper.kill()


@pytest.mark.parametrize("has_services", [True, False])
def test_another_ray_starts_what_it_always_starts(monkeypatch: pytest.MonkeyPatch, has_services: bool) -> None:
    ray, private = ModuleType("ray"), ModuleType("ray._private")
    node, services = SimpleNamespace(Node=type("Node", (), {})), ModuleType("ray._private.services")
    private.node, private.services = node, services  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._private", private)
    if has_services:
        services.start_ray_process = list  # type: ignore[attr-defined]
    before = dict(vars(services))
    with cluster.disable_extra_processes():
        assert (dict(vars(services)) == before) is not has_services
    assert dict(vars(services)) == before


@pytest.mark.parametrize("name", ["--dashboard_agent_command=", "--runtime_env_agent_command="])
def test_only_a_node_that_waits_for_files_gets_it(name: str) -> None:
    known = '"--session-dir=/a folder/s" --node-id=ab'
    lighter = cluster._with_idle_helper(f"{name}python -u agent.py --log-dir=/l {known}")
    assert lighter.startswith(f"{name}{sys.executable} -I -S {HELPER} '--session-dir=/a folder/s' --node-id=ab ")
    assert lighter.endswith("_port")
    older = f"{name}python -u agent.py --session-dir=/s"
    assert cluster._with_idle_helper(older) == older
    assert cluster._with_idle_helper("--head") == "--head"
