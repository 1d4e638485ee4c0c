"""Two processes: one group that waits long enough and is ended, one folder, lines that say what is waited for."""

import os
import time
from datetime import timedelta

import torch

from rerank.training import processes
from rerank.training.device import open_accelerator
from rerank.training.processes import end_processes, exclusive, expect_shared_folder, main_process_first
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import log
from tests.support.two_processes import in_two_processes


def group():
    open_accelerator(device="cpu")
    backend = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
    timeout = backend.options._timeout
    end_processes()
    end_processes()
    return timeout, torch.distributed.is_initialized()


def test_processes_wait_a_day_for_each_other_and_their_group_is_ended(tmp_path):
    assert in_two_processes(tmp_path, group) == [(timedelta(days=1), False)] * 2


def slow_start(folder):
    processes.SECONDS_BETWEEN_LINES = 0.1
    accelerator = open_accelerator(device="cpu")
    log.info("a line of each process")
    begin = time.monotonic()
    with main_process_first(accelerator, "collection and first stage"):
        waited = time.monotonic() - begin
        time.sleep(0.35 if accelerator.is_main_process else 0)
    return waited


def test_the_main_process_is_first_and_says_that_the_other_waits(tmp_path):
    first, second = in_two_processes(tmp_path, slow_start, tmp_path)
    assert first < 0.3 < second
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
    released = []

    def release_later():
        deadline = time.monotonic() + 30
        while not (tmp_path / "waiting").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.4)
        released.append(time.monotonic())

    child = os.fork()
    if not child:
        with locked(tmp_path, "fold"):
            (tmp_path / "held").touch()
            release_later()
            (tmp_path / "released").write_text(str(released[0]))
        os._exit(0)
    while not (tmp_path / "held").exists():
        time.sleep(0.02)
    entered = in_two_processes(tmp_path, locked_out, tmp_path)
    os.waitpid(child, 0)
    assert min(entered) >= float((tmp_path / "released").read_text())
    assert f"lock of the fold in {tmp_path}: 0 s so far; the other process waits" in (tmp_path / "log0").read_text()


def on_own_disks(folders, shared):
    accelerator = open_accelerator(device="cpu")
    folder = folders[0 if shared else accelerator.process_index]
    expect_shared_folder(accelerator, folder)
    return "shared"


def test_a_folder_that_one_process_does_not_see_is_refused_in_one_line(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    assert in_two_processes(tmp_path, on_own_disks, folders, True) == ["shared", "shared"]
    assert list(folders[0].iterdir()) == []
    for error in in_two_processes(tmp_path, on_own_disks, folders, False):
        assert isinstance(error, UserError)
        assert "process 1 on " in str(error)
        assert "does not see what the main process writes there; several machines need one folder" in str(error)
