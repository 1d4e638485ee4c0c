"""Benchmark: lists per CPU second in fine-tuning a bi-encoder, by rerank and by a plain trainer."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers import PrinterCallback

from rerank.models.gpu import AUTOCAST, Precision, choose_precision
from rerank.models.hub import quiet_transformers
from rerank.training.contrastive import Plan, fine_tune, loss_class
from scripts.benchmarks.report import Count, Encoder, Out, Rounds, publish
from scripts.benchmarks.timing import Work, interleaved, ratio
from scripts.benchmarks.workload import document_lengths, make_texts, one_piece_words, open_encoder

STEP = 8
"""Lists of a step."""
LONGEST = 256
"""Tokens of the longest documents; a query has 12 tokens."""
COLUMNS = {"what": "", "lists/CPU s": ",.2f", "rerank is × faster": ".2f"}
NOTES = (
    "A list is a query, a relevant document and a negative; a step has 8. Seconds are those of all threads on "
    "processors, with opening and writing the model; values are medians over rounds.",
)


def fine_tuning(*, encoder: Encoder = "minilm", rounds: Rounds = 3, lists: Count = 16, out: Out = None) -> None:
    """Lists per CPU second in fine-tuning a bi-encoder: rerank, and the trainer of sentence-transformers.

    Parameters
    ----------
    lists
        Training lists per round.
    """
    device, rng = torch.device("cpu"), np.random.default_rng(0)
    precisions: list[Precision] = ["float32"]
    if choose_precision("auto", device) == "bf16":
        precisions.append("bf16")
    with open_encoder(encoder) as folder, TemporaryDirectory() as place, quiet_transformers():
        words = one_piece_words(SentenceTransformer(str(folder), device="cpu").tokenizer)
        queries = make_texts([12] * lists, words, rng)
        documents = [list(make_texts(document_lengths(lists, rng, LONGEST), words, rng)) for _ in range(2)]
        texts = list(zip(queries, *documents, strict=True))
        works: dict[str, Work] = {}
        for precision in precisions:
            works[f"rerank, {precision}"] = partial(ours, folder, texts, precision, Path(place))
            works[f"SentenceTransformerTrainer, {precision}"] = partial(theirs, folder, texts, precision, Path(place))
        seconds = interleaved(works, rounds, device, cpu_seconds=True)
    rows = {what: {"what": what, "lists/CPU s": lists / median(taken)} for what, taken in seconds.items()}
    for precision in precisions:
        mine, other = f"rerank, {precision}", f"SentenceTransformerTrainer, {precision}"
        rows[other]["rerank is × faster"] = ratio(seconds[other], seconds[mine])
    settings = {"encoder": encoder, "rounds": rounds, "lists": lists, "seconds": seconds}
    publish(f"Fine-tuning the bi-encoder {encoder}", list(rows.values()), COLUMNS, settings, device, NOTES, out)


def ours(encoder: Path, texts: Sequence[tuple[str, ...]], precision: Precision, place: Path) -> None:
    """Fine-tunes as the stage `trained-encoder` does."""
    batches = [range(first, min(first + STEP, len(texts))) for first in range(0, len(texts), STEP)]
    fine_tune(str(encoder), Plan(texts, batches, 5e-5, 0, "cpu", precision), place / "work", place / "ours")


def theirs(encoder: Path, texts: Sequence[tuple[str, ...]], precision: Precision, place: Path) -> None:
    """Fine-tunes with the trainer of sentence-transformers, with the same loss and batches of the same size."""
    model = SentenceTransformer(str(encoder), device="cpu", model_kwargs={"dtype": torch.float32})
    args = SentenceTransformerTrainingArguments(
        str(place / "trainer"),
        num_train_epochs=1,
        per_device_train_batch_size=STEP,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    columns = dict(zip(("anchor", "positive", "negative"), map(list, zip(*texts, strict=True)), strict=True))
    trainer = SentenceTransformerTrainer(
        model=model, args=args, train_dataset=Dataset.from_dict(columns), loss=loss_class()(model)
    )
    trainer.remove_callback(PrinterCallback)
    # The trainer's own argument would set the precision of every accelerator in this process.
    with torch.autocast("cpu", AUTOCAST.get(precision), enabled=precision != "float32", cache_enabled=False):
        trainer.train()
    model.save(str(place / "theirs"))
