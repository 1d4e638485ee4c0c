"""Compiles device.cpp once for each version of it and of torch, into a folder for temporary files."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("device.cpp")
COMPILERS = ("c++", "g++", "clang++")


def compiler() -> str | None:
    """The program that compiles C++: that of the variable CXX, or the first of COMPILERS that there is."""
    return next(filter(None, map(shutil.which, filter(None, [os.environ.get("CXX"), *COMPILERS]))), None)


def why_not() -> str:
    """Why there can be no fake device here; "" if there can be one."""
    if os.uname().sysname != "Linux":
        return "LD_PRELOAD works on Linux only"
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "the stub replaces the CUDA hooks of a build of torch for CPUs, and this one has its own"
    return "" if compiler() else f"no C++ compiler: none of {', '.join(COMPILERS)} is installed"


def library() -> Path:
    """The compiled stub; raises subprocess.CalledProcessError, with the compiler's messages in `stderr`."""
    torch_folder = Path(torch.__file__).parent
    identity = hashlib.sha256(SOURCE.read_bytes() + f"{torch.__version__} {torch_folder}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rerank-fake-cuda-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    compiled = folder / f"{identity}.so"
    if not compiled.is_file():
        part = compiled.with_suffix(f".{os.getpid()}.part")
        include, libraries = torch_folder / "include", torch_folder / "lib"
        includes = [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}"]
        links = [f"-L{libraries}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}"]
        words = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", *includes, str(SOURCE), "-o", str(part), *links]
        subprocess.run([str(compiler()), *words], check=True, capture_output=True, text=True)
        part.replace(compiled)
    return compiled


def environment() -> dict[str, str]:
    """The environment of a process with the fake device."""
    one_thread = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return {**os.environ, "LD_PRELOAD": str(library()), **one_thread}
