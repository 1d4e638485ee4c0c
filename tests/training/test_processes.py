"""Two processes: one group that waits long enough, and lines that say what is waited for."""

import os
import time
from datetime import timedelta

import torch

from rerank.training import processes
from rerank.training.device import open_accelerator
from rerank.training.processes import exclusive, main_process_first
from rerank.utils.locks import locked
from rerank.utils.progress import log
from tests.support.two_processes import in_two_processes


def slow_start(folder):
    processes.SECONDS_BETWEEN_LINES = 0.1
    accelerator = open_accelerator(device="cpu")
    log.info("a line of each process")
    begin = time.monotonic()
    with main_process_first(accelerator, "collection and first stage"):
        waited = time.monotonic() - begin
        time.sleep(0.35 if accelerator.is_main_process else 0)
    backend = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
    return waited, backend.options._timeout


def test_the_main_process_is_first_and_says_that_the_other_waits_for_a_day_at_most(tmp_path):
    (first, longest), (second, _) = in_two_processes(tmp_path, slow_start, tmp_path)
    assert first < 0.3 < second
    assert longest == timedelta(days=1)
    lines = (tmp_path / "log0").read_text().splitlines()
    assert lines[0] == "a line of each process"
    assert "collection and first stage: 0 s so far; the other process waits" in lines[1:]
    assert "a line of each process" not in (tmp_path / "log1").read_text()


def locked_out(folder):
    processes.SECONDS_BETWEEN_LINES = 0.1
    accelerator = open_accelerator(device="cpu")
    if accelerator.is_main_process:
        (folder / "waiting").touch()
    with exclusive(accelerator, folder, "fold"):
        return time.monotonic()


def test_waiting_for_the_lock_of_another_command_is_told(tmp_path):
    child = os.fork()
    if not child:
        with locked(tmp_path, "fold"):
            (tmp_path / "held").touch()
            deadline = time.monotonic() + 30
            while not (tmp_path / "waiting").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.4)
            (tmp_path / "released").write_text(str(time.monotonic()))
        os._exit(0)
    while not (tmp_path / "held").exists():
        time.sleep(0.02)
    entered = in_two_processes(tmp_path, locked_out, tmp_path)
    os.waitpid(child, 0)
    assert min(entered) >= float((tmp_path / "released").read_text())
    assert f"lock of the fold in {tmp_path}: 0 s so far; the other process waits" in (tmp_path / "log0").read_text()
