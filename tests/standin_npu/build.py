"""Builds the stand-in and lays it out as an installed package, once for each version of its source and of torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

HERE = Path(__file__).parent
SOURCES = ("backend.cpp", "torch_npu.py", "build.py")
BUILDS = HERE / ".build"
DIST_INFO = "Metadata-Version: 2.1\nName: torch_npu\nVersion: {version}\n"


def compiler() -> str | None:
    """The C++ compiler."""
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")


def folder() -> Path:
    """A folder for PYTHONPATH in which a `torch_npu` of torch's version is found.

    Raises:
        RuntimeError: it does not compile.
    """
    version = torch.__version__.partition("+")[0]
    text = version + "".join((HERE / name).read_text(encoding="utf-8") for name in SOURCES)
    built = BUILDS / hashlib.sha256(text.encode()).hexdigest()[:12]
    if built.exists():
        return built
    half = BUILDS / f"half-{os.getpid()}"
    package, info = half / "torch_npu", half / f"torch_npu-{version}.dist-info"
    for path in (package, info):
        path.mkdir(parents=True)
    (info / "METADATA").write_text(DIST_INFO.format(version=version))
    shutil.copy(HERE / "torch_npu.py", package / "__init__.py")
    command = [str(compiler()), "-std=c++20", "-O1", "-w", "-fPIC", "-shared", str(HERE / "backend.cpp")]
    command += [f"-I{path}" for path in include_paths()] + [f"-L{path}" for path in library_paths()]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += ["-lc10", "-ltorch_cpu", "-ltorch", "-o", str(package / "backend.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(half)
        raise RuntimeError(done.stderr[-4000:])
    try:
        half.rename(built)
    except OSError:  # another process was faster
        shutil.rmtree(half)
    return built
