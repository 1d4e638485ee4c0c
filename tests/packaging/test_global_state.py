"""The public API changes nothing that belongs to the application or to another library."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import SECONDS

APPLICATION = """
import logging, os, signal, sys, warnings
from pathlib import Path
import torch

LOGGERS = ["", "rerank", "transformers", "sentence_transformers", "huggingface_hub", "nncf", "openvino", "ir_datasets"]

def state():
    products = torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision
    loggers = [logging.getLogger(name) for name in LOGGERS]
    return {
        "handlers": {one.name: [(handler, handler.level) for handler in one.handlers] for one in loggers},
        "levels": {one.name: (one.level, one.propagate, one.disabled) for one in loggers},
        "filters": list(warnings.filters),
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "torch": (torch.get_num_threads(), torch.get_default_dtype(), *products, torch.initial_seed(),
                  torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()),
        "bars": (hub.are_progress_bars_disabled(), transformers.utils.logging.is_progress_bar_enabled()),
        "ir_datasets": ir_datasets.log.Logger.pbar,
    }

import huggingface_hub.utils as hub, ir_datasets, nncf, openvino, sentence_transformers, transformers
ir_datasets.log.easy().logger()  # these libraries set up loggers of their own
for name in LOGGERS:
    handler = logging.StreamHandler(sys.stdout)
    handler.setLevel(logging.INFO)
    logging.getLogger(name).addHandler(handler)
    logging.getLogger(name).setLevel(logging.WARNING)
warnings.filterwarnings("default", module="application")
os.environ["APPLICATION"] = "mine"
signal.signal(signal.SIGTERM, lambda *_: None)
torch.set_num_threads(1)
before = state()

import rerank
from rerank.config import Config, TrainingSettings
from rerank.jobs.export import export_checkpoint
from rerank.models.bi_encoder import open_bi_encoder

def use():
    encoder = open_bi_encoder("encoder", "cpu")
    config = Config(collection="towns", encoder="encoder", training=TrainingSettings(epochs=1, lists_per_epoch=2,
                    deterministic=True))
    folder = rerank.train(config, fold="1")
    checkpoint = str(folder.fold("1").checkpoint)
    export_checkpoint(Config(), checkpoint, Path("int8"), "openvino", True, folder.fold("1").test_run, "")
    for model in (checkpoint, "int8"):
        rerank.Reranker.load(model).rank("amber0", ["amber0 good", "bad"])

use()
for what, value in state().items():
    assert value == before[what], (what, before[what], value)
"""

RELEASED_IN_ANOTHER_THREAD = """
import gc, signal, sys, threading, time
import rerank

held = [rerank.Reranker.load("int8")]
held[0].rank("amber0", ["amber0 good", "bad"])
thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
thread.start()
thread.join()
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(0.2)
sys.exit(0 if handled else 1)
"""


@pytest.fixture(scope="module")
def used(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the application, after it has run."""
    pytest.importorskip("nncf")
    folder = tmp_path_factory.mktemp("application") / "home"
    shutil.copytree(home, folder)
    run(folder, APPLICATION)
    return folder


def run(folder: Path, program: str) -> None:
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_application_finds_everything_as_it_was(used: Path) -> None:
    assert (used / "int8" / "model.xml").exists()


def test_a_signal_after_a_graph_is_released_in_another_thread_is_handled(used: Path) -> None:
    """OpenVINO's plugin would unmap the stack on which the main thread handles signals."""
    run(used, RELEASED_IN_ANOTHER_THREAD)
