"""Commands in two processes: each line once, and the group ended."""

import os
import sys

import torch

from rerank.cli.main import main
from rerank.data.trec import read_run
from rerank.jobs import train
from rerank.models.memory import ALLOCATOR_SETTINGS
from tests.support.processes import in_two_processes
from tests.support.small_collection import command, write_qrels


def ended(words):
    """The exit code of a command, and whether it leaves a group of processes."""
    try:
        main(words)
    except SystemExit as error:
        return error.code, torch.distributed.is_initialized()
    return 0, torch.distributed.is_initialized()


def lines_of(folder, rank):
    return [line for line in (folder / f"log{rank}").read_text().splitlines() if line.strip()]


def test_each_line_is_printed_once_and_the_group_is_ended(here, tmp_path):
    for name, queries in {"train": range(8), "dev": range(8, 10), "test": range(10, 15)}.items():
        write_qrels(here / "towns" / "qrels" / f"{name}.tsv", queries)
    for epochs in ("1", "2"):
        words = command("--name", f"of{epochs}", "--training.epochs", epochs)
        assert in_two_processes(tmp_path, ended, words) == [(0, False)] * 2
        told = lines_of(tmp_path, 0)
        assert sum("published split: 8 queries train" in line for line in told) == 1
        assert sum("epoch 1: loss" in line for line in told) == 1
        assert not [line for line in lines_of(tmp_path, 1) if line in told]
    assert len(read_run(here / "runs/towns/of2/foldsplit/test.run")) == 5


def test_a_command_sets_up_the_allocator_before_the_device(here, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ALLOCATOR_SETTINGS:
        monkeypatch.setenv(name, "")  # restored afterwards
    chosen = []
    open_accelerator = train.open_training_accelerator

    def opened(*arguments, **settings):
        accelerator = open_accelerator(*arguments, **settings)
        chosen.append(os.environ["PYTORCH_ALLOC_CONF"])
        return accelerator

    monkeypatch.setattr(train, "open_training_accelerator", opened)
    main(command("--fold", "1", "--training.epochs", "1"))
    assert chosen == ["expandable_segments:True"]
