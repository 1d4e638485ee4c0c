"""Two processes: one group that waits long enough, one line of both, and a lock that both hold."""

import os
import time
from datetime import timedelta

import torch

from rerank.config import TrainingSettings
from rerank.training.device import exclusive, open_accelerator
from rerank.utils.locks import locked
from rerank.utils.progress import log
from tests.support.patience import until
from tests.support.processes import in_two_processes


def begin(folder):
    accelerator = open_accelerator(TrainingSettings(device="cpu"))
    log.info("a line of each process")
    if accelerator.is_main_process:
        (folder / "waiting").touch()
    with exclusive(accelerator, folder, "fold"):
        backend = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
        return time.monotonic(), backend.options._timeout


def test_two_processes_hold_one_lock_together_and_wait_for_a_day_at_most(tmp_path):
    child = os.fork()
    if not child:
        with locked(tmp_path, "fold"):
            (tmp_path / "held").touch()
            until((tmp_path / "waiting").exists)
            time.sleep(0.4)
            (tmp_path / "released").write_text(str(time.monotonic()))
        os._exit(0)
    until((tmp_path / "held").exists)
    entered, longest = zip(*in_two_processes(tmp_path, begin, tmp_path), strict=True)
    os.waitpid(child, 0)
    assert min(entered) >= float((tmp_path / "released").read_text())
    assert set(longest) == {timedelta(days=1)}
    assert (tmp_path / "log0").read_text().splitlines()[0] == "a line of each process"
    assert "a line of each process" not in (tmp_path / "log1").read_text()
