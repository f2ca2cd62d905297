"""Tests of files under native names: the device ``cuda`` means the current card in every function that loads one."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_torch import two_cards
from torch import nn
from torch.package import PackageExporter, PackageImporter, package_exporter

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*TorchScript")


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    """Simulate two GPUs under PyTorch's names for cards; the second one is current."""
    with two_cards(), torch.cuda.device(1):
        yield


SOURCES: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "path": Path,
    "buffer": lambda path: io.BytesIO(path.read_bytes()),
}
LOCATIONS = {"cuda": "cuda:1", "cuda:0": "cuda:0", "cpu": "cpu", None: "cuda:0"}


def _names_in_archive(path: Path) -> list[str]:
    """Return the names of the files in an archive; none of them may name a simulated GPU."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert not any(b"sim:" in archive.read(each) for each in names)
    return names


def _device(net: Any) -> str:
    (found,) = {str(each.device) for each in net.parameters()}
    return found


@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_script_is_loaded_to_the_current_card(source: str, location: str | None, tmp_path: Path) -> None:
    path = tmp_path / "cuda"  # also a name of a file
    torch.jit.save(torch.jit.script(nn.Linear(2, 2).cuda(0)), str(path), _extra_files={"note": "hello"})
    for each in (location, location and torch.device(location)):
        extra = {"note": ""}
        net = torch.jit.load(SOURCES[source](path), map_location=each, _extra_files=extra)
        assert _device(net) == LOCATIONS[location]
        assert extra == {"note": b"hello"}
    assert _device(net.to(device="cuda")) == _device(net.cuda()) == "cuda:1"


class _Moving(nn.Module):
    """A module, because PyTorch keeps the constants of a traced function as long as the process runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.ones(2, device="cuda:1"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to("cuda:1") + self.offset


@pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")
def test_the_file_of_a_script_names_cards(tmp_path: Path) -> None:
    """Another process has no simulated GPUs: C++ cannot read their own name there."""
    net = nn.Sequential(nn.Linear(2, 2).cuda(1), nn.Linear(2, 3))
    net.register_buffer("many", torch.ones(70_000, dtype=torch.int8, device="cuda:0"))
    script = torch.jit.script(net)
    script.save(str(tmp_path / "scripted"), _extra_files={"note": "hello"})
    script._save_for_lite_interpreter(str(tmp_path / "mobile"))
    torch.jit.trace(_Moving(), (torch.ones(1, 2),)).save(str(tmp_path / "traced"))
    for path in tmp_path.iterdir():
        _names_in_archive(path)
    code = (
        "import torch\n"
        "for name, extra in (('scripted', {'note': ''}), ('mobile', {}), ('traced', {})):\n"
        f"    script = torch.jit.load({str(tmp_path)!r} + '/' + name, 'cpu', extra)\n"
        "    print(len(script.state_dict()), script.code.count('cuda:1'), extra)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "5 0 {'note': b'hello'}\n5 0 {}\n1 1 {}\n", done.stderr


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # PyTorch's own, when it writes a package
def test_a_script_in_a_package_is_loaded_to_the_current_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_exporter, "_gate_torchscript_serialization", False)
    path = tmp_path / "package"
    with PackageExporter(path) as exporter:
        exporter.save_pickle("models", "net.pkl", torch.jit.script(nn.Linear(2, 2).cuda(0)))
        exporter.save_pickle("models", "tensor.pkl", torch.ones(2, device="cuda:0"))
    for location, expected in LOCATIONS.items():
        importer = PackageImporter(path)
        assert _device(importer.load_pickle("models", "net.pkl", map_location=location)) == expected
        assert str(importer.load_pickle("models", "tensor.pkl", map_location=location).device) == expected


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_the_file_of_a_package_names_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a file object that cannot be read, such as a socket."""
    monkeypatch.setattr(package_exporter, "_gate_torchscript_serialization", False)
    with (tmp_path / "object").open("wb") as file:
        for target in (str(tmp_path / "path"), file):
            with PackageExporter(target) as exporter:
                exporter.save_text("notes", "note.txt", "hello")
                exporter.save_pickle("models", "net.pkl", torch.jit.script(nn.Linear(2, 2).cuda(1)))
                exporter.save_pickle("models", "plain.pkl", {"x": torch.ones(2, device="cuda:0")})
    for path in tmp_path.iterdir():
        names = [each.partition("/")[2] for each in _names_in_archive(path)]
        assert len(set(names)) == len(names) > 8
    code = (
        "import torch.package\n"
        "for name in ('path', 'object'):\n"
        f"    package = torch.package.PackageImporter({str(tmp_path)!r} + '/' + name)\n"
        "    net, plain = (package.load_pickle('models', f'{each}.pkl', 'cpu') for each in ('net', 'plain'))\n"
        "    print(package.load_text('notes', 'note.txt'), net(torch.ones(1, 2)).device, plain['x'].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "hello cpu [1.0, 1.0]\n" * 2, done.stderr


@pytest.mark.parametrize("location", LOCATIONS)
def test_tensors_are_loaded_to_the_current_card(location: str | None, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(2, device="cuda:0")}, path)
    for options in ({"weights_only": True}, {"weights_only": False}, {"mmap": True}):
        assert str(torch.load(path, map_location=location, **options)["w"].device) == LOCATIONS[location]
    state = torch.hub.load_state_dict_from_url(path.as_uri(), str(tmp_path / "hub"), location, progress=False)
    assert str(state["w"].device) == LOCATIONS[location]


class Net(nn.Module):
    """A model that moves a buffer and creates a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("bias", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on the device of the argument."""
        return self.layer(x) + self.bias.to(x.device) + torch.ones(2, device=x.device)


def test_an_exported_model_computes_on_its_card() -> None:
    """The model contains checks of the device, which is ``cuda:1`` there."""
    net, x = Net().cuda(), torch.rand(3, 2, device="cuda:1")
    file = io.BytesIO()
    torch.export.save(torch.export.export(net, (x,)), file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert {str(each.device) for each in loaded.state_dict.values()} == {"cuda:1"}
    torch.testing.assert_close(loaded.module()(x), net(x))
    with pytest.raises(RuntimeError, match="Tensor device mismatch! Expected: cuda:0, Got: cuda:1"):
        torch.ops.aten._assert_tensor_metadata(x, device="cuda:0")
    torch.ops.aten._assert_tensor_metadata(x.cpu(), dtype=torch.float32, device="cpu")
