"""Which device and precision a run has, and the facts of a device that a manifest records."""

import json
import os
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from rerank.cli.main import main
from rerank.config import TrainingSettings
from rerank.models.gpu import AUTOCAST
from rerank.models.products import read_products, set_products, set_tf32
from rerank.training import device
from rerank.training.device import open_accelerator, precision_of
from rerank.utils.errors import UserError
from tests.support.fake_cards import insert_card, rounds_to_tf32
from tests.support.small_collection import command


def test_threads_blas_and_instructions_are_recorded(here):
    main(command("--fold", "1", "--name", "one", "--first-stage.threads", "2"))
    recorded = json.loads((here / "runs" / "towns" / "one" / "fold1" / "manifest.json").read_text())
    facts = device.device_facts(torch.device("cpu"))["arithmetic"]
    assert recorded["arithmetic"] == facts
    assert recorded["lucene_threads"] == 2
    assert facts["threads"] == torch.get_num_threads()
    assert facts["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert facts["blas"] is None or f"BLAS_INFO={facts['blas']}" in torch.__config__.show()


@pytest.fixture
def opened(monkeypatch):
    """The kind of device and the precision of `open_accelerator`, whatever the machine."""

    def open_it(**settings):
        accelerator = open_accelerator(TrainingSettings(**settings))
        return accelerator.device.type, precision_of(accelerator), accelerator.scaler is not None

    monkeypatch.setattr("rerank.models.gpu.bf16_gain", lambda: 1.0)
    before = read_products()
    yield open_it
    set_products(before)


def test_a_t4_trains_in_fp16_and_an_h200_in_bf16(opened, monkeypatch):
    insert_card(monkeypatch, "Tesla T4", (7, 5))
    assert opened() == ("cuda", "fp16", True)
    assert opened(precision="float32", device="cuda:0") == ("cuda", "float32", False)
    assert opened(device="cpu") == ("cpu", "float32", False)
    insert_card(monkeypatch, "NVIDIA H200", (9, 0))
    assert opened(device="cuda") == ("cuda", "bf16", False)


def test_an_accelerator_of_the_caller_changes_no_training(opened):
    Accelerator(mixed_precision=None, cpu=True)
    assert opened(device="cpu", precision="bf16") == ("cpu", "bf16", False)
    assert opened(device="cpu", precision="float32") == ("cpu", "float32", False)


@pytest.mark.parametrize("tf32", [True, False])
def test_float32_products_on_cuda_are_tf32_unless_they_are_not_to_be(opened, tf32, monkeypatch):
    insert_card(monkeypatch, "NVIDIA A100", (8, 0))
    opened(precision="float32", device="cuda", tf32=tf32)
    assert rounds_to_tf32() == tf32


@pytest.mark.parametrize(
    ("kind", "mixed", "model", "asked", "facts"),
    [
        ("cuda", "no", {}, True, {"precision": "float32", "tf32": True}),
        ("cuda", "no", {}, False, {"precision": "float32", "tf32": False}),
        ("cpu", "no", {"in_float32": False}, True, {"precision": "float32", "tf32": False}),
        ("cpu", "bf16", {"in_float32": False}, True, {"precision": "bf16", "tf32": False}),
        ("cpu", "bf16", {"in_float32": True}, True, {"precision": "float32", "tf32": False}),
        ("cpu", "bf16", {"precision": "int8"}, True, {"precision": "int8", "tf32": False}),  # an exported graph
    ],
)
def test_the_precision_of_a_manifest_is_the_one_that_was_chosen(opened, kind, mixed, model, asked, facts):
    set_tf32(asked)
    autocast = partial(torch.autocast, kind, AUTOCAST[mixed]) if mixed in AUTOCAST else nullcontext
    accelerator = SimpleNamespace(device=torch.device(kind), autocast=autocast)
    assert device.precision_facts(accelerator, SimpleNamespace(**model)) == facts


def test_deterministic_turns_on_what_torch_has(opened, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is put back
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    insert_card(monkeypatch, "NVIDIA A100", (8, 0))
    try:
        opened(device="cuda")
        assert not torch.are_deterministic_algorithms_enabled()
        opened(device="cuda", deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_card_that_torch_cannot_run_on_is_an_error_and_not_a_run_on_the_cpu(opened, monkeypatch):
    insert_card(monkeypatch, "Tesla K80", (3, 7))
    for name in ("auto", "cuda", "cuda:0"):
        with pytest.raises(
            UserError, match=rf"--training.device {name}: PyTorch cannot run on the NVIDIA GPU of this machine: it has "
            r"compute capability 3\.7, and .* built for sm_75.*; --device cpu takes the CPU",
        ):  # fmt: skip
            opened(device=name)
    assert opened(device="cpu") == ("cpu", "float32", False)


def test_a_device_that_is_not_there_is_one_clear_line(opened, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert opened() == ("cpu", "float32", False)
    with pytest.raises(UserError, match=r"--training.device cuda: PyTorch finds no CUDA GPU here; expected auto or"):
        opened(device="cuda")
    with pytest.raises(UserError, match=r"--training.device mps: PyTorch finds no Apple GPU here"):
        opened(device="mps")
    insert_card(monkeypatch, "NVIDIA A100", (8, 0))
    with pytest.raises(UserError, match=r"--training.device cuda:3: no such GPU; expected cuda:0"):
        opened(device="cuda:3")


def test_several_processes_have_a_card_each(opened, monkeypatch):
    insert_card(monkeypatch, "NVIDIA A100", (8, 0))
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert opened(device="cuda") == ("cuda", "bf16", False)
    with pytest.raises(UserError, match=r"each of several processes has a GPU of its own"):
        opened(device="cuda:0")


def test_the_device_in_one_line(monkeypatch):
    for module in ("rerank.models.gpu", "rerank.training.device"):
        monkeypatch.setattr(f"{module}.bf16_gain", lambda: 4.06)
    line = device.describe_device("cpu", "auto")
    assert ", bf16: products in bf16 are 4.1 times as fast as in float32; training bert-base" in line
    assert ", float32: " in device.describe_device("cpu", "float32")
    insert_card(monkeypatch, "Tesla T4", (7, 5))
    assert device.describe_device("auto", "auto") == "1 × Tesla T4, compute capability 7.5, fp16, SDPA"
    insert_card(monkeypatch, "NVIDIA H200", (9, 0))
    assert device.describe_device("cuda:0", "auto") == "1 × NVIDIA H200, compute capability 9.0, bf16, FlashAttention"
