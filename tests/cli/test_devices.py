"""Devices, precisions and the settings of fidelity, as a user types them."""

import json

import torch

from rerank.cli.main import main
from rerank.data.trec import read_run
from rerank.training import loop
from tests.support.fake_cards import hide_card
from tests.support.small_collection import command, failed


def test_no_command_takes_the_cpu_for_a_card_that_torch_cannot_use(here, capsys, monkeypatch):
    hide_card(monkeypatch, here)
    score = ["score", "encoder", "runs/towns/bm25.run", "--collection", "towns", "--out", "out.run"]
    pretrain = ["pretrain", "--collection", "towns", "--encoder", "encoder", "--out", "pretrained"]
    distill = ["distill", "encoder", "--student", "encoder", "--collection", "towns"]
    for words in (command("--fold", "1"), score, pretrain, distill):
        assert "cannot run on the NVIDIA GPU of this machine: this PyTorch" in failed(capsys, *words)


def test_matched_pairs_and_dropout_before_the_head_are_trained_with(here):
    words = ["--fold", "1", "--loss", "hinge", "--device", "cpu"]
    others = {"two": ["--loss.pairs", "matched"], "dropped": ["--encoder.head-dropout", "0.1"], "plain": []}
    losses = {}
    for name, more in others.items():
        main(command(*words, "--name", name, *more))
        folder = here / "runs" / "towns" / name / "fold1"
        losses[name] = [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert len({tuple(values) for values in losses.values()}) == 3
    config = json.loads((here / "runs" / "towns" / "two" / "fold1" / "manifest.json").read_text())["config"]
    assert config["loss"] == {"name": "hinge", "pairs": "matched"}


def test_a_deterministic_run_on_a_cpu_is_the_run_without(here, monkeypatch):
    during, save = [], loop.save_state

    def watch(*arguments):
        during.append(torch.are_deterministic_algorithms_enabled())
        return save(*arguments)

    monkeypatch.setattr(loop, "save_state", watch)
    words = command("--fold", "1", "--device", "cpu", "--training.epochs", "1")
    main([*words, "--name", "always"])
    main([*words, "--name", "same", "--training.deterministic"])
    assert during == [False, True]
    assert not torch.are_deterministic_algorithms_enabled()
    always, deterministic = (here / "runs" / "towns" / name / "fold1" / "test.run" for name in ("always", "same"))
    assert read_run(always) == read_run(deterministic)
