"""Counts what a GPU would do: kernel launches and bytes by kind, copies and synchronisations by source line."""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

BACKWARD = "(backward pass)"
"""The line of an operation that autograd starts without Python code."""

KNOWN_SIZE = 2**17
"""The largest tensor whose values are computed too, so that lengths and positions are what they are on a GPU."""

SYNCHRONISING = {
    "_local_scalar_dense", "_unique2", "bincount", "equal", "is_nonzero", "masked_scatter_backward", "masked_select",
    "nonzero", "unique_consecutive", "unique_dim",
}  # fmt: skip
"""Operations whose result's value or shape the host waits for."""

LOOKUPS = {"embedding", "gather", "index", "index_select"}
"""Operations that read of their first tensor as much as they return."""

NO_LAUNCH = {
    "_reshape_alias", "_unsafe_view", "detach", "lift_fresh", "new_empty", "new_empty_strided", "set_", "squeeze_",
    "t_", "transpose_", "unsqueeze_",
}  # fmt: skip
"""Operations beside those that torch calls views that give a tensor another shape, or memory that nothing writes."""

PRODUCTS = {"addmm", "baddbmm", "bmm", "mm"}
FILLS = {"fill_", "full", "full_like", "new_zeros", "ones", "ones_like", "zero_", "zeros", "zeros_like"}
LOSS = ("losses/", "training/gradients.py", "batches/", "models/pooling.py")


@dataclass
class Counts:
    """`launches` and `bytes` by kind of kernel; the others by source line.

    A copy from the host blocks it unless it is made with non_blocking from pinned memory. Synchronisations wait for
    the device's queue: values that come back, and shapes that depend on values. Bytes are those of the tensors that
    each kernel reads and writes, as if none stayed in a cache.
    """

    launches: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    blocking_copies: Counter[str] = field(default_factory=Counter)
    other_copies: Counter[str] = field(default_factory=Counter)
    synchronisations: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, size: int) -> None:
        """Counts a kernel that reads and writes `size` bytes."""
        self.launches[kind] += 1
        self.bytes[kind] += size

    def minus(self, other: "Counts") -> "Counts":
        """What is counted here and not in `other`."""
        return Counts(*(of - vars(other)[name] for name, of in vars(self).items()))


class CountingMode(TorchDispatchMode):
    """Runs a block's operations with fake tensors of `fake`, in whose block it is entered, and counts them in `counts`.

    Tensors of the host stay real and are computed. On the device, the values of a small tensor are known if they
    follow from the host's alone, such as offsets and masks; other values that come back are 0. `package` is the folder
    whose source lines are named.
    """

    def __init__(self, fake: FakeTensorMode, package: str) -> None:
        super().__init__()
        self.fake = fake
        self.package = package.rstrip("/") + "/"
        self.counts = Counts()
        self.kinds: set[str] | None = None  # the only kinds to count; None: all
        self._values = WeakTensorKeyDictionary()
        self._files: dict[Any, str] = {}

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
        inputs = _tensors((args, kwargs))
        on_device = any(map(_on_device, inputs))
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == "cuda"
        if not on_device and not to_device and not any(isinstance(x, FakeTensor) for x in inputs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if name == "_to_copy" and on_device and target is not None and torch.device(target).type == "cpu":
            return self._copy_down(func, args, kwargs)
        if name == "_local_scalar_dense":
            self.counts.synchronisations[self.line()] += 1
            value = self._known(args[0])
            with unset_fake_temporarily():
                return torch.zeros((), dtype=args[0].dtype).item() if value is None else value.item()
        if name == "copy_" and not _on_device(args[0]):
            args[0].copy_(self._copy_down(torch.ops.aten._to_copy.default, args[1:2], {"device": "cpu", **kwargs}))
            return args[0]
        waits = _waits(name, args, kwargs)
        known = self._evaluate(func, waits, inputs, args, kwargs)
        if waits:
            self.counts.synchronisations[self.line()] += 1
            if known is None:
                raise NotImplementedError(f"{self.line()}: the result of {func} depends on values that are not known")
            out = pytree.tree_map_only(torch.Tensor, self._fake_like, known)
        else:
            if not all(isinstance(x, FakeTensor) for x in inputs):
                args, kwargs = pytree.tree_map_only(torch.Tensor, self._as_fake, (args, kwargs))
            out = func(*args, **kwargs)
        self._keep(func, args, out, known)
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
            (self.counts.blocking_copies if waits else self.counts.other_copies)[self.line()] += 1
            return
        read = list(filter(_on_device, inputs))
        size = sum(map(_size, read)) + sum(map(_size, outputs))
        if name in LOOKUPS:
            size -= _size(read[0]) - sum(map(_size, outputs))
        kind = kind_of(name, self.line())
        if self.kinds is None or kind in self.kinds:
            self.counts.add(kind, size)

    def _copy_down(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """The copy of a device's tensor on the host: its values if they are known, or zeros."""
        source = args[0]
        waits = not kwargs.get("non_blocking", False)
        (self.counts.synchronisations if waits else self.counts.other_copies)[self.line()] += 1
        value = self._known(source)
        with unset_fake_temporarily():
            if value is None:
                return torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
            return value.to(kwargs.get("dtype") or source.dtype, copy=True)

    def _known(self, x: Tensor) -> Tensor | None:
        if not isinstance(x, FakeTensor):
            return x
        known: Tensor | None = self._values.get(x)
        return known

    def _evaluate(self, func: Any, waits: bool, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        """The result on the host, if all values are known and small; data-dependent shapes need only masks to be."""
        if any(self._known(x) is None and not (waits and x.is_floating_point()) for x in inputs):
            return None
        if (_numel(args) if not inputs else max(x.numel() for x in inputs)) > KNOWN_SIZE:
            return None

        def on_host(x: Tensor) -> Tensor:
            value = self._known(x)
            return torch.zeros(x.shape, dtype=x.dtype) if value is None else value

        with unset_fake_temporarily():
            host_args, host_kwargs = pytree.tree_map_only(torch.Tensor, on_host, (args, kwargs))
            if "device" in host_kwargs:
                host_kwargs = {**host_kwargs, "device": "cpu"}
            return func(*host_args, **host_kwargs)

    def _keep(self, func: Any, args: Any, out: Any, known: Any) -> None:
        """Remembers the values of the results; those of a tensor that was overwritten with unknown ones are dropped."""
        if known is None:
            if func._schema.is_mutable and args:
                for x in _tensors(args[0]):
                    self._values.pop(x, None)
            return
        for x, value in zip(_tensors(out), _tensors(known), strict=True):
            if isinstance(x, FakeTensor) and value.numel() <= KNOWN_SIZE:
                self._values[x] = value

    def _as_fake(self, x: Tensor) -> Tensor:
        return x if isinstance(x, FakeTensor) else self.fake.from_tensor(x)

    def _fake_like(self, x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=x.dtype, device="cuda")

    def line(self) -> str:
        """The innermost source line of the package, relative to its folder; BACKWARD if there is none."""
        frame = sys._getframe(1)
        while frame is not None:
            file = self._files.get(frame.f_code)
            if file is None:
                path = frame.f_code.co_filename
                file = self._files[frame.f_code] = path.removeprefix(self.package) if self.package in path else ""
            if file:
                return f"{file}:{frame.f_lineno}"
            if frame.f_code.co_name == "_engine_run_backward":
                return BACKWARD
            frame = frame.f_back
        return BACKWARD


def kind_of(name: str, line: str) -> str:
    """The kind of a kernel, from the operation's name and its source line."""
    backward = ", backward" if line == BACKWARD or name.endswith("_backward") else ""
    if name in PRODUCTS:
        return "matrix products"
    if "attn" in name or "attention" in name:
        return "attention"
    if "adam" in name or "foreach" in name:
        return "optimizer"
    if "dropout" in line or "dropout" in name:
        return "dropout"
    for part, kind in (("layer_norm", "layer norm"), ("gelu", "gelu"), ("embedding", "embedding")):
        if part in name:
            return kind + backward
    if line.startswith(LOSS):
        return "loss"
    if name == "_to_copy":
        return "casts" + backward
    if name in ("add", "add_"):
        return "additions" + backward
    if name in FILLS:
        return "fills"
    return "other" + backward


def _waits(name: str, args: Any, kwargs: Any) -> bool:
    """Whether the host waits for the result: its shape depends on values."""
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_"):
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    return name in SYNCHRONISING


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


def _numel(args: Iterable[Any]) -> int:
    """At least the elements of a tensor that is made of these arguments: a shape, or an end and others."""
    count = 1
    for number in pytree.tree_leaves(args):
        if isinstance(number, int | float) and not isinstance(number, bool):
            count *= max(1, int(abs(number)))
    return count
