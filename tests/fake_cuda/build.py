"""The program that builds stubs of NVIDIA libraries, with g++ and nm: ``python build.py HEADERS TARGET``.

HEADERS is the folder into which ``pip install --target`` has put CUDA's headers. Functions that the installed framework
needs and the sources here do not define are generated: they report that they are not supported (CUDA), or do nothing
(cuBLAS and the others, which are only called by operators). PyTorch is linked to NVIDIA's libraries; JAX and TensorFlow
look up each function by its name when they call it, so every such name in their libraries counts as needed.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = "libcudart.so.13"
NOT_SUPPORTED = 801
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden"]
STRICT = ["-Wall", "-Wextra", "-Werror"]
"""Additional flags for the sources here."""
SOURCES = {
    RUNTIME: ["machine.cc", "runtime.cc", "driver.cc", "driver_work.cc"],
    "libcuda.so.1": [],
    "libnvidia-ml.so.1": ["nvml.cc"],
    "libnccl.so.2": ["nccl.cc"],
}
OTHERS = ["versions.cc"]
"""The sources of every other library."""
UNVERSIONED = {
    r"p?nccl[A-Z]": "libnccl.so.2",
    r"curand[A-Z]": "libcurand.so.10",
    r"cusparseLt[A-Z]": "libcusparseLt.so.0",
    r"cuFile[A-Z]": "libcufile.so.0",
    r"nvshmem": "libnvshmem_host.so.3",
    r"cu[A-Z]": RUNTIME,  # the driver
}
"""Pattern of a symbol without a library's name -> its library."""
LOOKED_UP = {
    r"cublasLt[A-Z]": "libcublasLt.so.13",
    r"cublas[A-Z]": "libcublas.so.13",
    r"cudnn[A-Z]": "libcudnn.so.9",
    r"cufft[A-Z]": "libcufft.so.12",
    r"cusolver[A-Z]": "libcusolver.so.12",
    r"cusparse[A-Z]": "libcusparse.so.12",
    r"cupti[A-Z]": "libcupti.so.13",
    r"p?nccl[A-Z]": "libnccl.so.2",
    r"nvJitLink[A-Z]": "libnvJitLink.so.13",
    r"nvrtc[A-Z]": "libnvrtc.so.13",
    r"cu(da)?[A-Z]": RUNTIME,
}
"""Pattern of a name that JAX and TensorFlow look up -> the library in which it is, by JAX's names."""
CUDA_12 = {
    "libcublasLt.so.12": "libcublasLt.so.13",
    "libcublas.so.12": "libcublas.so.13",
    "libcudart.so.12": RUNTIME,
    "libcufft.so.11": "libcufft.so.12",
    "libcupti.so.12": "libcupti.so.13",
    "libcusolver.so.11": "libcusolver.so.12",
    "libnvJitLink.so.12": "libnvJitLink.so.13",
    "libnvrtc.so.12": "libnvrtc.so.13",
}
"""The names that TensorFlow 2.21, which is built with CUDA 12, looks up."""
VERSIONS = {RUNTIME: RUNTIME, "libnvshmem_host.so.3": "NVSHMEM"}
"""The version of the symbols of a library that has versions."""


def symbols(library: Path, defined: bool) -> list[tuple[str, str]]:
    """Return the names that a library defines, or needs, each with its version or an empty text."""
    which = "--defined-only" if defined else "--undefined-only"
    command = ["nm", "-D", which, "--with-symbol-versions", str(library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[-1] for line in lines if line.strip()]
    return [(name, version.lstrip("@")) for name, _, version in (name.partition("@") for name in names)]


def names_needed(folder: Path) -> dict[tuple[str, str], set[str]]:
    """Return the names that PyTorch's libraries need from NVIDIA: library and version of its symbols -> names."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for library in folder.glob("lib*.so"):
        for name, version in symbols(library, defined=False):
            if re.match(r"lib(cu|nv)\w+\.so", version):
                found[version, version].add(name)
            elif version in ("", "NVSHMEM"):
                home = next((home for pattern, home in UNVERSIONED.items() if re.match(pattern, name)), None)
                if home is not None:
                    found[home, VERSIONS.get(home, "")].add(name)
    found["libcurand.so.10", ""].add("curandCreateGenerator")  # it is linked, but not used
    return found


def names_looked_up(folders: list[Path]) -> dict[tuple[str, str], set[str]]:
    """Return the names that JAX's libraries may look up: library, and no version -> names."""
    found: dict[tuple[str, str], set[str]] = {(library, ""): set() for library in LOOKED_UP.values()}
    for library in (each for folder in folders for each in folder.glob("*.so*")):
        for name in re.findall(rb"\0((?:cu|nv|p?nccl)[A-Za-z]\w{3,})(?=\0)", library.read_bytes()):
            home = next((home for pattern, home in LOOKED_UP.items() if re.match(pattern, name.decode())), None)
            if home is not None:
                found[home, ""].add(name.decode())
    return found


def compile_source(source: Path, target: Path, *flags: str) -> Path:
    """Compile one source into a folder."""
    made = target / f"{source.stem}.o"
    subprocess.run(["g++", *FLAGS, *flags, "-c", str(source), "-o", str(made)], check=True)
    return made


def defined_functions(made: Path) -> set[str]:
    """Return the functions that a compiled source defines."""
    lines = subprocess.run(["nm", "--defined-only", str(made)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines() if " T " in line}


def write_stubs(names: set[str], answer: str, source: Path) -> Path:
    """Write a source of functions with these names that all return one answer: a number, or a function's result."""
    lines = (f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return {answer}; }}' for name in names)
    first = 'extern "C" int fake_cuda_library_called();'
    source.write_text("\n".join([first, *sorted(lines)]) + "\n")
    return source


def link(name: str, version: str, parts: list[Path], target: Path) -> None:
    """Link a library from its parts; its symbols carry a version if PyTorch requires one."""
    flags = ["-shared", f"-Wl,-soname,{name}", "-o", str(target / name), *map(str, parts), "-ldl"]
    if version:
        script = target / f"{name}.map"
        script.write_text(f"{version} {{ global: *; }};\n")
        flags.append(f"-Wl,--version-script={script}")
    if name != RUNTIME:  # it contains the machine, and the driver's functions, too
        flags += ["-Wl,--no-as-needed", f"-L{target}", f"-l:{RUNTIME}"]
    subprocess.run(["g++", *flags], check=True)


def required_names() -> dict[tuple[str, str], set[str]]:
    """Return the names that the installed framework needs from NVIDIA: library and version of its symbols -> names."""
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        return names_needed(Path(torch.origin).parent / "lib")
    packages = Path(sysconfig.get_path("platlib"))
    folders = [
        *packages.glob("jax_plugins/xla_cuda*"),
        *packages.glob("jax_cuda*_plugin"),
        *packages.glob("tensorflow"),
    ]
    if not folders:
        raise SystemExit("install PyTorch's CUDA build, JAX's or TensorFlow's first")
    return names_looked_up(folders)


def build(headers: Path, target: Path) -> None:
    """Build all libraries into a folder."""
    (target / "parts").mkdir(parents=True, exist_ok=True)
    wanted = required_names()
    wanted.setdefault(("libcuda.so.1", ""), set())
    wanted.setdefault(("libnvidia-ml.so.1", ""), set())
    include = f"-I{next(headers.rglob('driver_types.h')).parent}"
    for (name, version), names in sorted(wanted.items(), key=lambda each: each[0][0] != RUNTIME):  # the runtime first
        ours = [HERE / source for source in SOURCES.get(name, OTHERS)]
        parts = [compile_source(source, target / "parts", *STRICT, include) for source in ours]
        rest = names.difference(*map(defined_functions, parts))
        answer = str(NOT_SUPPORTED) if name == RUNTIME else "fake_cuda_library_called()"
        parts.append(compile_source(write_stubs(rest, answer, target / "parts" / f"{name}.cc"), target / "parts"))
        link(name, version, parts, target)
    for older, name in CUDA_12.items():
        if (target / name).exists() and not (target / older).exists():
            (target / older).symlink_to(name)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
