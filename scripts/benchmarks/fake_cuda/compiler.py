"""torch.compile on the fake device: kernels are planned as for a GPU, counted, and never written or compiled.

Inductor fuses the operations of a graph into kernels, or leaves them to libraries (matrix products, attention), and
knows what each kernel reads and writes.
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._functorch.config
import torch._inductor.config
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import scheduler
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from scripts.benchmarks.fake_cuda.counter import CountingMode

COMPILED = "compiled"
"""The name of all kernels that Inductor writes."""

H200 = SimpleNamespace(
    name="H200", major=9, minor=0, multi_processor_count=132, max_threads_per_multi_processor=2048, warp_size=32,
    regs_per_multiprocessor=65_536, total_memory=140 * 10**9, L2_cache_size=50 * 2**20, gcnArchName="",
    shared_memory_per_block_optin=232_448, shared_memory_per_block=49_152, max_threads_per_block=1024,
)  # fmt: skip


@contextlib.contextmanager
def counted_compiler(counting: CountingMode) -> Iterator[None]:
    """In this block what torch.compile returns runs with fake tensors of the device, and `counting` has its kernels."""
    real = torch.compile

    def compile_outside_modes(*args: Any, **kwargs: Any) -> Any:
        compiled = real(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():  # torch.compile does nothing where operations are watched
                return compiled(*args, **kwargs)

        return call

    patches = [
        mock.patch.object(torch, "compile", compile_outside_modes),
        mock.patch.object(GraphLowering, "compile_to_module", lambda graph: _planned(graph, counting)),
        mock.patch.object(scheduler, "has_triton", return_value=True),
        mock.patch.object(torch.cuda, "_lazy_init", return_value=None),
        mock.patch.object(torch.cuda, "_get_device_properties", return_value=H200, create=True),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(H200.major, H200.minor)),
        mock.patch.object(torch.cuda, "device_count", return_value=1),
        mock.patch.object(torch.cuda, "current_device", return_value=0),
        mock.patch.object(CudaInterface, "current_device", return_value=0),
        mock.patch.object(CudaInterface, "is_bf16_supported", return_value=True),
        mock.patch.object(torch.cuda, "_DeviceGuard", _NoGuard),
        # Folding constants would compute on the device.
        torch._inductor.config.patch(fx_graph_cache=False, joint_graph_constant_folding=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
        torch.autograd.set_multithreading_enabled(False),
    ]
    torch._dynamo.reset()  # graphs that are known already have other counts
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


class _NoGuard(contextlib.nullcontext[None]):
    """Instead of a guard that makes a device the current one."""


def _planned(graph: GraphLowering, counting: CountingMode) -> Any:
    """Instead of the compiled module of a graph, one whose `call` runs the graph as it is and counts the kernels."""
    graph.init_wrapper_code(False)
    graph._update_scheduler()
    kernels = {node: name for node in graph.scheduler.nodes if (name := _kernel(node))}

    def call(args: list[Any]) -> Any:
        for node, name in kernels.items():
            counting.counts.add(name, _bytes(node, graph, args))
        (fake,) = {x.fake_mode for x in args if isinstance(x, FakeTensor)}
        with _disable_current_modes(), fake:
            return graph.orig_gm(*args)

    return SimpleNamespace(call=call, __file__="")


def _kernel(node: Any) -> str:
    """COMPILED for a kernel that Inductor writes, the name of the library's that it calls, or "" for none."""
    if isinstance(node, scheduler.NopKernelSchedulerNode) or type(node.node).__name__ == "MultiOutput":
        return ""  # the latter is a part of what a kernel has returned
    if not isinstance(node, scheduler.ExternKernelSchedulerNode):
        return COMPILED
    name = getattr(node.node, "op_overload", None) or getattr(node.node, "python_kernel_name", None)
    return str(name).removeprefix("extern_kernels.").removeprefix("aten.").partition(".")[0]


def _bytes(node: Any, graph: GraphLowering, args: list[Any]) -> int:
    """What a kernel reads and writes where the graph's inputs are these: a symbol has the size that its input has."""
    values: dict[Any, int] = {}
    for given, value in zip(graph.graph_inputs.values(), args, strict=True):
        if isinstance(value, int):
            values[given] = value
        elif isinstance(value, torch.Tensor):  # a symbol may be the size of a tensor alone
            values |= dict(zip(given.get_size(), value.shape, strict=True))

    def size(expression: Any, fallback: int | None = None) -> int:
        return int(expression.subs(values)) if hasattr(expression, "subs") else int(expression)

    with V.set_graph_handler(graph), mock.patch.object(graph.sizevars, "optimization_hint", size):
        return int(node.get_read_write_buffers_sizes_impl(include_reads=True, include_writes=True))
