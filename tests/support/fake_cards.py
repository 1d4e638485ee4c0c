"""A GPU as torch describes it, where there is none."""

from pathlib import Path
from typing import Any

import pytest
import torch


def insert_card(monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int]) -> None:
    """Torch then reports one card of this name and compute capability; no tensor can be put on it."""

    def supports_bf16(including_emulation: bool = True) -> bool:
        return including_emulation or capability >= (8, 0)

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: name,
        "get_device_capability": lambda device=None: capability,
        "is_bf16_supported": supports_bf16,
    }
    for function, answer in answers.items():
        monkeypatch.setattr(torch.cuda, function, answer)
    monkeypatch.setattr(torch.version, "hip", None)


def hide_card(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The system then has a card that torch, built without CUDA, does not find."""
    (folder / "nvidia0").touch()
    monkeypatch.setattr("rerank.models.gpu.DEVICES", folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
