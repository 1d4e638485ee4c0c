"""A GPU as torch describes it, where there is none."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

BUILT_FOR = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
"""As of torch 2.13 for CUDA 13."""


def insert_card(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    capability: tuple[int, int],
    built_for: tuple[str, ...] = BUILT_FOR,
    others: Sequence[tuple[int, int]] = (),
) -> None:
    """Torch then reports one card of this name and compute capability; no tensor can be put on it.

    It is the current one; `others` are the compute capabilities of cuda:1 and so on.
    """
    capabilities = [capability, *others]

    def supports_bf16(including_emulation: bool = True) -> bool:
        return including_emulation or capability >= (8, 0)

    def capability_of(device: int | str | torch.device | None = None) -> tuple[int, int]:
        index = torch.device(device).index if isinstance(device, str | torch.device) else device
        return capabilities[index or 0]

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: len(capabilities),
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: name,
        "get_device_capability": capability_of,
        "get_arch_list": lambda: list(built_for),
        "is_bf16_supported": supports_bf16,
    }
    for function, answer in answers.items():
        monkeypatch.setattr(torch.cuda, function, answer)
    monkeypatch.setattr(torch.version, "hip", None)


def rounds_to_tf32() -> bool:
    """Whether torch would round the factors of a float32 product on CUDA; in the words of this version of torch."""
    matmul = torch.backends.cuda.matmul
    return bool(matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32)
