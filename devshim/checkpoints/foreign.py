"""Recognize files that are not devshim checkpoints, and explain how to read them.

Only a file's first bytes, and the names in a zip archive, are read; nothing in it is run or trusted.
"""

from __future__ import annotations

import os
import zipfile

__all__ = ["folder_hint", "recognize"]

_PICKLE = tuple(b"\x80" + bytes([version]) for version in range(2, 6))


def recognize(path: str) -> tuple[str, str] | None:
    """Return what a file is, as words that follow "it is", and what to type to read it; None for an unknown file."""
    with open(path, "rb") as file:
        start = file.read(64)
    name, suffix = repr(path), os.path.splitext(path)[1].lower()
    saved = repr(os.path.splitext(path)[0] + ".safetensors")
    torch = f"ds.save(torch.load({name}, map_location='cpu', weights_only=True), {saved}) converts it"
    paddle = f"ds.save(paddle.load({name}), {saved}) converts it"
    if start.startswith(b"PK\x03\x04"):
        return _describe_archive(path, name, saved, torch)
    if start.startswith(_PICKLE):
        if suffix in (".pdparams", ".pdopt"):
            return "a file of paddle.save", paddle
        if suffix in (".pt", ".pth", ".bin", ".ckpt"):
            return "a file of torch.save", torch
        return "a pickle", "read it with the program that wrote it, and save the contents with ds.save"
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return "an HDF5 file, as Keras saves weights", f"model.load_weights({name}), then ds.save(model, {saved})"
    if start.startswith(b"\x93NUMPY"):
        return "an array of numpy.save", f"ds.from_numpy(numpy.load({name})) makes a tensor from it"
    if start[:8] == (0x112).to_bytes(8, "little"):
        return "a file of mxnet.nd.save", f"ds.save(mxnet.nd.load({name}), {saved}) converts it"
    if start.startswith(b"GGUF"):
        return "a GGUF file, as llama.cpp uses", "download the model's safetensors files instead"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer instead of the file", "`git lfs pull` downloads the file itself"
    if start.lstrip()[:1] == b"<":
        return "a web page or XML", "download the file itself"
    if start[:1] == b"{" and suffix == ".json":
        return "JSON, perhaps the index of several files", "ds.load each of the .safetensors files that it names"
    return None


def _describe_archive(path: str, name: str, saved: str, torch: str) -> tuple[str, str]:
    """Return the same for a zip archive; PyTorch, NumPy and Keras write such files."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return "a zip archive that is cut off or damaged", "load another copy of it"
    if any(each.endswith("/data.pkl") for each in names):
        return "a file of torch.save", torch
    if names and all(each.endswith(".npy") for each in names):
        return "a file of numpy.savez", f"ds.save(dict(numpy.load({name})), {saved}) converts it"
    if "model.weights.h5" in names:
        model = f"keras.saving.load_model({name})"
        return "a model of Keras", f"ds.save({model}, {saved}) converts it"
    return "a zip archive", "unpack it, and ds.load the .safetensors file in it"


def folder_hint(path: str) -> str:
    """Return what to type instead of the path of a folder."""
    inside = sorted(each for each in os.listdir(path) if each.endswith(".safetensors"))
    if inside:
        more = "" if len(inside) == 1 else f", one of {len(inside)} checkpoints in it"
        return f"ds.load({os.path.join(path, inside[0])!r}){more}"
    return "pass the path of a file that ds.save wrote"
