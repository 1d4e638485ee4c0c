"""The public API changes nothing that belongs to the application or to another library."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import SECONDS

APPLICATION = """
import importlib, logging, os, pkgutil, signal, sys, warnings
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
from rerank.jobs.graphs import export_checkpoint
from rerank.models.bi_encoder import BiEncoder

def use():
    encoder = BiEncoder.load("encoder", device="cpu")
    config = Config(collection="towns", encoder="encoder", training=TrainingSettings(epochs=1, lists_per_epoch=2,
                    deterministic=True))
    folder = rerank.train(config, fold="1")
    checkpoint = str(folder.fold("1").checkpoint)
    export_checkpoint(config.encoder, checkpoint, Path("int8"), "openvino", True)
    for model in (checkpoint, "int8"):
        rerank.Reranker.load(model).rank("amber0", ["amber0 good", "bad"])

use()
for what, value in state().items():
    assert value == before[what], (what, before[what], value)
for module in pkgutil.walk_packages(rerank.__path__, "rerank."):
    if not module.name.endswith((".__main__", ".triton_kernels")):  # Triton is there with CUDA alone
        importlib.import_module(module.name)
        print(module.name)

import gc, threading, time
held = [rerank.Reranker.load("int8")]
held[0].rank("amber0", ["amber0 good", "bad"])
thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
thread.start()
thread.join()
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(0.2)
assert handled
"""


def test_an_application_finds_everything_as_it_was_and_can_import_every_module(home: Path, tmp_path: Path) -> None:
    """Afterwards, a signal after a graph is released in another thread is handled.

    OpenVINO's plugin would unmap the stack on which the main thread handles signals.
    """
    pytest.importorskip("nncf")
    shutil.copytree(home, tmp_path / "home")
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{APPLICATION}"]
    done = subprocess.run(words, cwd=tmp_path / "home", capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"rerank.losses", "rerank.cli.main"} <= set(done.stdout.split())
