"""Counts what a GPU would do: kernel launches and bytes by operation, copies and synchronisations by source line."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

BACKWARD = "(backward pass)"
"""The line of an operation that autograd starts without Python code."""

LOOKUPS = {"embedding", "gather", "index", "index_select"}
"""Operations that read of their first tensor as much as they return."""

NO_LAUNCH = {
    "_reshape_alias", "_unsafe_view", "detach", "lift_fresh", "new_empty", "new_empty_strided", "set_", "squeeze_",
    "t_", "transpose_", "unsqueeze_",
}  # fmt: skip
"""Operations beside those that torch calls views that give a tensor another shape, or memory that nothing writes."""


@dataclass
class Counts:
    """`launches` and `bytes` by operation; the others by source line.

    A copy from the host blocks it unless it is made with non_blocking from pinned memory. Synchronisations wait for
    the device's queue: values that come back. Bytes are those of the tensors that each kernel reads and writes, as if
    none stayed in a cache.
    """

    launches: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    blocking_copies: Counter[str] = field(default_factory=Counter)
    other_copies: Counter[str] = field(default_factory=Counter)
    synchronisations: Counter[str] = field(default_factory=Counter)

    def add(self, operation: str, size: int) -> None:
        """Counts a kernel that reads and writes `size` bytes."""
        self.launches[operation] += 1
        self.bytes[operation] += size

    def minus(self, other: "Counts") -> "Counts":
        """What is counted here and not in `other`."""
        return Counts(*(of - vars(other)[name] for name, of in vars(self).items()))


class CountingMode(TorchDispatchMode):
    """Runs a block's operations with fake tensors of `fake`, in whose block it is entered, and counts them in `counts`.

    Tensors of the host stay real and are computed. Values that come back from the device are 1, and an operation whose
    shape follows from the device's values, for which a host would wait, is torch's DynamicOutputShapeException.
    `package` is the folder whose source lines are named.
    """

    def __init__(self, fake: FakeTensorMode, package: str) -> None:
        super().__init__()
        self.fake = fake
        self.package = package.rstrip("/") + "/"
        self.counts = Counts()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # operations made of others then come as they are
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        name = func._schema.name.split("::")[1]
        inputs, target = _tensors((args, kwargs)), kwargs.get("device")
        to_device = target is not None and torch.device(target).type == "cuda"
        if not to_device and not any(isinstance(x, FakeTensor) for x in inputs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if name == "_local_scalar_dense":
            self.counts.synchronisations[self._line()] += 1
            with unset_fake_temporarily():
                return torch.ones((), dtype=args[0].dtype).item()
        if name == "_to_copy" and target is not None and torch.device(target).type == "cpu":
            return self._copy_down(args[0], kwargs)
        if name == "copy_" and not _on_device(args[0]):
            args[0].copy_(self._copy_down(args[1], kwargs))
            return args[0]
        if not all(isinstance(x, FakeTensor) for x in inputs):
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._as_fake, (args, kwargs))
        out = func(*args, **kwargs)
        self._count(func, name, inputs, args, kwargs, out)
        return out

    def _count(self, func: Any, name: str, inputs: list[Tensor], args: Any, kwargs: Any, out: Any) -> None:
        outputs = list(filter(_on_device, _tensors(out))) or _overwritten(func, args)
        if func.is_view or name in NO_LAUNCH or name.startswith("empty") or not outputs:
            return
        source = inputs[1] if name == "copy_" else inputs[0] if name == "_to_copy" else None
        if source is not None and not _on_device(source):
            with unset_fake_temporarily():
                waits = not (_non_blocking(name, args, kwargs) and source.is_pinned())
            (self.counts.blocking_copies if waits else self.counts.other_copies)[self._line()] += 1
            return
        read = list(filter(_on_device, inputs))
        size = sum(map(_size, read)) + sum(map(_size, outputs))
        if name in LOOKUPS:
            size -= _size(read[0]) - sum(map(_size, outputs))
        self.counts.add(name, size)

    def _copy_down(self, source: Tensor, kwargs: Any) -> Tensor:
        """The copy of a device's tensor on the host: ones."""
        waits = not kwargs.get("non_blocking", False)
        (self.counts.synchronisations if waits else self.counts.other_copies)[self._line()] += 1
        with unset_fake_temporarily():
            return torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)

    def _as_fake(self, x: Tensor) -> Tensor:
        return x if isinstance(x, FakeTensor) else self.fake.from_tensor(x)

    def _line(self) -> str:
        """The innermost source line of the package, relative to its folder; BACKWARD if there is none."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "_engine_run_backward":
            if frame.f_code.co_filename.startswith(self.package):
                return f"{frame.f_code.co_filename.removeprefix(self.package)}:{frame.f_lineno}"
            frame = frame.f_back
        return BACKWARD


def _overwritten(func: Any, args: Any) -> list[Tensor]:
    """The device's tensors that an operation without a result writes; Adam only reads the gradients."""
    arguments = zip(func._schema.arguments, args, strict=False)
    written = [x for a, x in arguments if a.alias_info is not None and a.alias_info.is_write and a.name != "grads"]
    return list(filter(_on_device, _tensors(written)))


def _non_blocking(name: str, args: Any, kwargs: Any) -> bool:
    return bool(kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False))


def _on_device(x: Tensor) -> bool:
    return isinstance(x, FakeTensor) and x.fake_device.type == "cuda"


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _size(x: Tensor) -> int:
    return x.numel() * x.element_size()
