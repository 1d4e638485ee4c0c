"""Which flag a user meant: by a synonym from other libraries, by the flag's last word, or by spelling."""

import difflib
from collections.abc import Iterable

SYNONYMS = {
    "accelerator": "--training.device",
    "adapter": "--encoder.name",
    "base-model": "--encoder.name",
    "bf16": "--training.precision",
    "bi-encoder": "--first-stage.encoder",
    "bm25-b": "--first-stage.b",
    "bm25-k1": "--first-stage.k1",
    "checkpoint": "--encoder.name",
    "config-file": "--config",
    "corpus": "--collection.source",
    "cuda": "--training.device",
    "cv": "--collection.folds",
    "data": "--collection.source",
    "data-dir": "--collection.source",
    "dataset": "--collection.source",
    "dataset-name": "--collection.source",
    "dense-encoder": "--first-stage.encoder",
    "dtype": "--training.precision",
    "early-stopping": "--training.patience",
    "early-stopping-patience": "--training.patience",
    "embedding-model": "--first-stage.encoder",
    "eval-metric": "--training.measure",
    "exp-name": "--output.name",
    "experiment-name": "--output.name",
    "first-stage": "--first-stage.run",
    "fp16": "--training.precision",
    "gpu": "--training.device",
    "gpus": "--training.device",
    "grad-clip": "--training.clip",
    "gradient-accumulation-steps": "--training.lists-per-step",
    "gradient-clip-val": "--training.clip",
    "hidden-dim": "--network.hidden",
    "hidden-size": "--network.hidden",
    "hits": "--first-stage.depth",
    "initial-run": "--first-stage.run",
    "k": "--first-stage.depth",
    "lang": "--collection.language",
    "learning-rate": "--training.lr",
    "log-dir": "--output.folder",
    "loss-fn": "--loss.name",
    "loss-function": "--loss.name",
    "max-doc-len": "--encoder.max-doc-tokens",
    "max-doc-length": "--encoder.max-doc-tokens",
    "max-epochs": "--training.epochs",
    "max-grad-norm": "--training.clip",
    "max-len": "--encoder.max-doc-tokens",
    "max-length": "--encoder.max-doc-tokens",
    "max-seq-length": "--encoder.max-doc-tokens",
    "max-steps": "--training.epochs",
    "metric-for-best-model": "--training.measure",
    "mixed-precision": "--training.precision",
    "model": "--encoder.name",
    "model-name": "--encoder.name",
    "model-name-or-path": "--encoder.name",
    "monitor": "--training.measure",
    "n-epochs": "--training.epochs",
    "n-folds": "--collection.folds",
    "negatives": "--lists.non-relevant",
    "num-candidates": "--first-stage.depth",
    "num-epochs": "--training.epochs",
    "num-negatives": "--lists.non-relevant",
    "num-threads": "--first-stage.threads",
    "num-train-epochs": "--training.epochs",
    "num-workers": "--first-stage.threads",
    "output-dir": "--output.folder",
    "output-file": "--out",
    "output-path": "--out",
    "per-device-train-batch-size": "--training.lists-per-step",
    "positives": "--lists.relevant",
    "pretrained-model": "--encoder.name",
    "query-encoder": "--first-stage.encoder",
    "random-seed": "--training.seed",
    "random-state": "--training.seed",
    "retriever": "--first-stage.encoder",
    "run-name": "--output.name",
    "save-dir": "--output.folder",
    "seed-everything": "--training.seed",
    "top-k": "--first-stage.depth",
    "topics": "--collection.queries",
    "topk": "--first-stage.depth",
    "train-batch-size": "--training.lists-per-step",
    "train-data": "--training.lists",
    "train-file": "--training.lists",
}
"""Names that sentence-transformers, Hugging Face's Trainer, Lightning and retrieval toolkits use."""


def suggest_flags(word: str, flags: Iterable[str]) -> list[str]:
    """The flags that an unknown flag may mean, likeliest first; empty if none is near.

    >>> flags = ["--training.lr", "--training.lrs", "--loss.alpha", "--collection.folds"]
    >>> [suggest_flags(word, flags) for word in ("--learning-rate", "--alpha", "--collection.foldz", "--nonsense")]
    [['--training.lr'], ['--loss.alpha'], ['--collection.folds'], []]
    """
    flags = list(flags)
    name = word.partition("=")[0].lstrip("-").lower().replace("_", "-")
    last = name.rpartition(".")[2]
    if SYNONYMS.get(last) in flags:
        return [SYNONYMS[last]]
    if same := [flag for flag in flags if _last_word(flag) == last]:
        return same
    if near := difflib.get_close_matches(f"--{name}", flags, n=1, cutoff=0.7):
        return near
    by_last_word = {_last_word(flag): flag for flag in flags}
    return [by_last_word[near] for near in difflib.get_close_matches(last, by_last_word, n=1, cutoff=0.7)]


def _last_word(flag: str) -> str:
    return flag.lstrip("-").rpartition(".")[2]
