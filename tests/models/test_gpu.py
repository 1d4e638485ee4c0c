"""What is known of a GPU before anything runs on it; the cards are made up."""

import re

import pytest
import torch

from rerank.models import gpu
from rerank.models.gpu import (
    bf16_gain,
    choose_precision,
    has_flash_attention,
    missing_architecture,
    unusable_gpu,
)
from rerank.utils.errors import UserError
from tests.support.fake_cards import insert_card

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("name", "capability", "precision", "flash"),
    [
        ("Tesla P100", (6, 0), "float32", False),
        ("Tesla V100", (7, 0), "fp16", False),
        ("Tesla T4", (7, 5), "fp16", False),
        ("NVIDIA A100", (8, 0), "bf16", True),
        ("NVIDIA RTX 4090", (8, 9), "bf16", True),
        ("NVIDIA H200", (9, 0), "bf16", True),
    ],
)
def test_precision_and_attention_follow_from_the_compute_capability(name, capability, precision, flash, monkeypatch):
    insert_card(monkeypatch, name, capability)
    assert choose_precision("auto", CUDA) == precision
    assert has_flash_attention(CUDA) == flash
    assert choose_precision("float32", CUDA) == "float32"
    assert choose_precision("fp16", CUDA) == "fp16"


def test_bf16_that_a_card_emulates_is_refused(monkeypatch):
    insert_card(monkeypatch, "Tesla T4", (7, 5))
    with pytest.raises(UserError, match=r"--training.precision bf16: Tesla T4 has no bf16; expected auto, float32 or"):
        choose_precision("bf16", CUDA)


@pytest.mark.parametrize(
    ("device", "gain", "rank", "precision"),
    [
        ("cpu", 1.4, None, "float32"),
        ("cpu", 2.0, None, "bf16"),
        ("cpu", 9.0, "0", "float32"),
        ("mps", 9.0, None, "float32"),
    ],
)
def test_without_cuda_auto_is_bf16_on_a_cpu_that_multiplies_it_faster(device, gain, rank, precision, monkeypatch):
    monkeypatch.setattr("rerank.models.gpu.bf16_gain", lambda: gain)
    monkeypatch.setenv("LOCAL_RANK", rank) if rank else monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert choose_precision("auto", torch.device(device)) == precision
    assert choose_precision("float32", torch.device(device)) == "float32"
    assert not has_flash_attention(torch.device(device))


def test_the_product_in_bf16_is_compared_with_that_in_float32():
    assert bf16_gain() == bf16_gain() > 0


def test_float16_is_not_for_the_cpu():
    with pytest.raises(UserError, match=r"--training.precision fp16: is for GPUs, got the CPU"):
        choose_precision("fp16", torch.device("cpu"))


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((8, 6), ("sm_80",), True),
        ((8, 0), ("sm_86",), False),
        ((9, 0), ("sm_80",), False),
        ((9, 0), ("sm_80", "compute_80"), True),
        ((7, 5), ("sm_80", "compute_80"), False),
        ((10, 0), ("sm_90a", "compute_90a"), False),
        ((9, 0), ("sm_90a",), True),
        ((12, 1), ("sm_120",), True),
        ((6, 1), (), True),
    ],
)
def test_a_build_has_code_for_a_card_or_not(capability, built_for, runs, monkeypatch):
    insert_card(monkeypatch, "a card", capability, built_for)
    reason = missing_architecture(0)
    assert (reason == "") == runs
    assert unusable_gpu() == reason
    if not runs:
        assert f"compute capability {capability[0]}.{capability[1]}" in reason
        assert ", ".join(built_for) in reason


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """The machine has a card that torch does not see."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_card_that_a_build_or_a_driver_cannot_use_has_its_reason(listed, monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nPlease update it.")

    monkeypatch.setattr(torch.version, "cuda", None)
    assert re.search(r"this PyTorch, .*, is built without CUDA; install a build with it", unusable_gpu())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    assert "driver on your system is too old (found version 11040). Please update it." in unusable_gpu()


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_card_that_is_hidden_is_none(listed, hidden, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert unusable_gpu() == ""
