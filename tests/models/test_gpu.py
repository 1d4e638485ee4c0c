"""What is known of a GPU before anything runs on it; the cards are made up."""

import re

import pytest
import torch

from rerank.models.gpu import choose_precision, full_float32, has_flash_attention, unusable_gpu
from rerank.utils.errors import UserError
from tests.support.fake_cards import hide_card, insert_card

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


@pytest.mark.parametrize(("device", "has_it", "precision"), [
    ("cpu", False, "float32"), ("cpu", True, "bf16"), ("mps", True, "float32"),
])  # fmt: skip
def test_without_cuda_auto_is_bf16_on_a_cpu_that_has_it(device, has_it, precision, monkeypatch):
    monkeypatch.setattr("rerank.models.gpu.multiplies_bf16", lambda: has_it)
    assert choose_precision("auto", torch.device(device)) == precision
    assert choose_precision("float32", torch.device(device)) == "float32"
    assert not has_flash_attention(torch.device(device))


def test_float16_is_not_for_the_cpu():
    with pytest.raises(UserError, match=r"--training.precision fp16: is for GPUs, got the CPU"):
        choose_precision("fp16", torch.device("cpu"))


def test_a_card_that_a_build_or_a_driver_cannot_use_has_its_reason(tmp_path, monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nPlease update it.")

    hide_card(monkeypatch, tmp_path)
    assert re.search(r"this PyTorch, .*, is built without CUDA; install a build with it", unusable_gpu())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    assert "driver on your system is too old (found version 11040). Please update it." in unusable_gpu()
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert unusable_gpu() == ""


def test_full_float32_takes_back_what_was_chosen():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with full_float32():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before
