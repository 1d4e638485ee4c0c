"""A device of which nothing is known but that it is not the CPU: its tensors have shapes and types, and no values.

It is torch's `meta` device, from which a copy to the CPU gives zeros. A whole step or scoring pass runs on it, so a
test sees which operations and types a GPU such as Apple's would be asked for.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("meta")


class BareDevice(TorchDispatchMode):
    """Counts the operations on DEVICE by name, of those that are no views of a tensor, and what passes between it and
    the host: `copies` to it, and the times that the host `waits` for a value. `doubles` are operations that make
    float64 values there.

    `item` is what reading a number from the device gives.
    """

    def __init__(self, item: int) -> None:
        super().__init__()
        self.item = item
        self.operations: Counter[str] = Counter()
        self.doubles: set[str] = set()
        self.copies = self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.name()
        from_device = any(x.device == DEVICE for x in _tensors((args, kwargs)))
        if from_device and name == "aten::_local_scalar_dense":
            self.waits += 1
            return self.item
        if from_device and name == "aten::_to_copy" and torch.device(kwargs.get("device") or DEVICE).type == "cpu":
            self.waits += 1
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        out = func(*args, **kwargs)
        made = [x for x in _tensors(out) if x.device == DEVICE]
        if made and name == "aten::_to_copy" and not from_device:
            self.copies += 1
        elif made and not func.is_view:
            self.operations[name] += 1
        if any(x.dtype == torch.float64 for x in made):
            self.doubles.add(name)
        return out


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (x for x in tree_leaves(tree) if isinstance(x, torch.Tensor))
