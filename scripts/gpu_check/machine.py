"""The machine and the versions, for the file that is attached to an issue."""

import platform
import shutil
import subprocess
from datetime import datetime

import torch

from rerank.runs.manifest import source_commit, version
from rerank.training.device import device_name
from scripts.gpu_check.setting import opened, precision_of
from scripts.gpu_check.sizes import Setting

PACKAGES = ("ir-rerank", "torch", "transformers", "accelerate", "sentence-transformers", "triton")


def facts(setting: Setting) -> dict[str, str]:
    """What the numbers depend on: name -> value."""
    with opened(setting) as accelerator:
        device, precision = accelerator.device, precision_of(accelerator)
    found = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "device": f"{setting.device}: {device_name(device)}",
        "precision of a run": precision,
        "commit": source_commit() or "unknown",
        **{name: version(name) or "not installed" for name in PACKAGES},
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "threads": str(torch.get_num_threads()),
    }
    return found | (_cuda_facts(device) if device.type == "cuda" else {})


def _cuda_facts(device: torch.device) -> dict[str, str]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "cards": str(torch.cuda.device_count()),
        "compute capability": f"{properties.major}.{properties.minor}",
        "memory": f"{properties.total_memory / 1e9:,.1f} GB",
        "CUDA": f"{torch.version.cuda or torch.version.hip}, built for {', '.join(torch.cuda.get_arch_list())}",
        "cuDNN": str(torch.backends.cudnn.version()),
        "driver": _driver(),
    }


def _driver() -> str:
    """The version of NVIDIA's driver."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return "unknown: no nvidia-smi"
    words = [command, "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {type(error).__name__}"
    return "; ".join(ran.stdout.split("\n")).strip("; ") or "unknown"
