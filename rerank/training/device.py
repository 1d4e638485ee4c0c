"""The device and the processes of a training, and their facts for a manifest."""

import contextlib
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import InitProcessGroupKwargs

from rerank.config import Config, TrainingSettings
from rerank.models.gpu import (
    AUTOCAST,
    Precision,
    autocast_of,
    bf16_gain,
    choose_precision,
    expect_usable_gpu,
    has_flash_attention,
)
from rerank.models.products import is_tf32, read_products, set_products, set_tf32
from rerank.models.reranker import Reranker
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.parallel import GPUS
from rerank.utils.texts import counted

LONGEST_WAIT = timedelta(days=1)
"""The time that a process waits for the others: only the main process downloads, indexes, retrieves and tokenises."""
CUBLAS_SETTINGS = "CUBLAS_WORKSPACE_CONFIG"
"""cuBLAS' environment variable, which deterministic products need."""
PROCESSOR = Path("/proc/cpuinfo")
"""Linux' description of the processor."""


class OwnAccelerator(Accelerator):
    """The processes of a run, with a device and a precision of its own.

    Accelerate gives every accelerator of a process the device and the precision of the first one, so it gets neither.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        self.own_device, self.own_autocast = device, autocast_of(precision, device)
        several_on_cpus = device.type == "cpu" and "LOCAL_RANK" in os.environ  # which decides how they are connected
        super().__init__(cpu=several_on_cpus, kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_WAIT)])
        self.scaler = torch.amp.GradScaler(device.type) if precision == "fp16" else None

    @property
    def device(self) -> torch.device:
        """That of the run."""
        return self.own_device

    def autocast(self, autocast_handler: object = None) -> AbstractContextManager[object]:
        """The context of a forward pass in the precision of the run."""
        return self.own_autocast()


def open_accelerator(settings: TrainingSettings) -> Accelerator:
    """The accelerator for the device and the precision of the settings, over all processes.

    In fp16 it has a gradient scaler. `settings.deterministic` selects deterministic algorithms, on CUDA also for
    attention and cuBLAS, until the end of `kept_torch_settings`; an operation without one raises RuntimeError. Raises
    UserError for a device that this machine lacks, that torch cannot run on, or that does not support the precision.
    """
    selected = select_device(settings.device)
    chosen = choose_precision(settings.precision, selected)
    if settings.deterministic:
        os.environ.setdefault(CUBLAS_SETTINGS, ":4096:8")  # read when CUDA is first used
        torch.use_deterministic_algorithms(True)
    if selected.type == "cuda":
        set_tf32(settings.tf32)
    return OwnAccelerator(selected, chosen)


@contextlib.contextmanager
def kept_torch_settings() -> Iterator[None]:
    """Restores torch's choice of algorithms and products, and cuBLAS' setting, after the block."""
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    products = read_products()
    cublas = os.environ.get(CUBLAS_SETTINGS)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        set_products(products)
        os.environ.pop(CUBLAS_SETTINGS, None)
        if cublas is not None:
            os.environ[CUBLAS_SETTINGS] = cublas


def open_reranker(config: Config, checkpoint: str) -> Reranker:
    """Loads a checkpoint or a model of the hub on the device of the settings; raises the errors of `Reranker.load`."""
    return Reranker.load(
        checkpoint,
        device=select_device(config.training.device),
        precision=config.training.precision,
        max_tokens_per_forward=config.training.max_tokens_per_forward,
        pooling=config.encoder.pooling,
        max_doc_tokens=config.encoder.max_doc_tokens,
        template=config.encoder.template,
        passage_tokens=config.encoder.passage_tokens,
        passage_overlap=config.encoder.passage_overlap,
    )


def peak_memory(device: torch.device) -> int:
    """The peak memory of this process in bytes: its tensors on a GPU, or the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, in KiB elsewhere
    return peak if sys.platform == "darwin" else peak * 1024


def device_name(device: torch.device) -> str:
    """The name of the processor or the GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    facts = PROCESSOR.read_text(encoding="utf-8") if PROCESSOR.is_file() else ""
    found = re.search(r"^model name\s*: (.*)", facts, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def device_facts(device: torch.device) -> dict[str, object]:
    """The device and the other causes of different rounding, for a manifest.

    Sums are split among threads, and each library and instruction set adds in its own order.
    """
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    arithmetic = {
        "threads": torch.get_num_threads(),
        "blas": blas[1] if blas else None,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    return {"device": str(device), "device_name": device_name(device), "arithmetic": arithmetic}


def precision_of(accelerator: Accelerator) -> str:
    """The precision of matrix products under the accelerator: float32, bf16 or fp16."""
    kind = accelerator.device.type
    with accelerator.autocast():
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return next((name for name, half in AUTOCAST.items() if half == dtype), "float32")


def precision_facts(accelerator: Accelerator, model: object) -> dict[str, object]:
    """The precision of a model or of an exported graph, and whether float32 products use TF32, for a manifest."""
    own = "float32" if getattr(model, "in_float32", False) else getattr(model, "precision", "")
    return {"precision": own or precision_of(accelerator), "tf32": uses_tf32(accelerator)}


def uses_tf32(accelerator: Accelerator) -> bool:
    """Whether float32 products round their factors to TF32: only on CUDA, and unless `--training.tf32` is off."""
    return accelerator.device.type == "cuda" and is_tf32()


def select_device(device: str) -> torch.device:
    """The device of a run, by the name in its settings; auto is a CUDA GPU if there is one, else the CPU.

    A GPU with a number becomes the current one; each of several processes has the GPU of its number. Raises UserError
    for a device that this machine lacks, and for an NVIDIA GPU that torch cannot run on.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    if kind == "mps":
        if not torch.backends.mps.is_available():
            raise UserError("--training.device mps: PyTorch finds no Apple GPU here; expected auto or cpu")
        return torch.device("mps")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number and int(number) >= count > 0:
        valid = ", ".join(f"cuda:{n}" for n in range(count))
        raise UserError(f"--training.device {device}: no such GPU; expected {valid}")
    if number and "LOCAL_RANK" in os.environ:
        raise UserError(
            f"--training.device {device}: each of several processes has a GPU of its own; expected auto or cuda"
        )
    index = int(number or os.environ.get("LOCAL_RANK", "0"))
    expect_usable_gpu(index, f"--training.device {device}", "--device cpu takes the CPU")
    if not count:
        if kind == "cuda":
            raise UserError(f"--training.device {device}: PyTorch finds no CUDA GPU here; expected auto or cpu")
        return torch.device("cpu")
    if number:
        torch.cuda.set_device(index)
    return torch.device("cuda", index if index < count else 0)


def visible_gpus() -> list[str]:
    """The CUDA GPUs that this process sees, by their names in CUDA_VISIBLE_DEVICES."""
    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    names = [name.strip() for name in os.environ.get(GPUS, "").split(",")]
    return names[:count] if len(names) >= count and all(names[:count]) else [str(number) for number in range(count)]


def describe_device(device: str, precision: Precision) -> str:
    """One line about a device and its precision; raises the errors of `open_accelerator`."""
    selected = select_device(device)
    chosen = choose_precision(precision, selected)
    if selected.type == "cpu":
        threads = counted(torch.get_num_threads(), "thread")
        gain = f"products in bf16 are {bf16_gain():.2g} times as fast as in float32"
        return f"CPU, {threads}, {chosen}: {gain}; training bert-base needs a GPU"
    if selected.type == "mps":
        return f"Apple GPU, {chosen}"
    major, minor = torch.cuda.get_device_capability(selected)
    attention = "FlashAttention" if has_flash_attention(selected) and chosen != "float32" else "SDPA"
    return (
        f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(selected)}, compute capability {major}.{minor}, "
        f"{chosen}, {attention}"
    )


def expect_one_process(accelerator: Accelerator, what: str, instead: str = "") -> None:
    """Raises UserError if there are several processes; `what` begins its message, and `instead` ends it."""
    if accelerator.num_processes > 1:
        raise UserError(f"{what} starts its own processes: run it without accelerate or torchrun{instead}")


@contextlib.contextmanager
def exclusive(accelerator: Accelerator, folder: Path, what: str) -> Iterator[None]:
    """Holds the lock `what` on `folder` (see `locked`) for all processes together."""
    with locked(folder, what) if accelerator.is_main_process else contextlib.nullcontext():
        accelerator.wait_for_everyone()
        yield


def end_processes() -> None:
    """Ends the process group when all processes have called this; does nothing for a single process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        state = PartialState()
        state.wait_for_everyone()
        state.destroy_process_group()
