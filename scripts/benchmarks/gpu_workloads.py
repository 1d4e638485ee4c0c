"""What a GPU would do for a training step and for scoring, counted on the fake device of scripts.benchmarks.fake_cuda.

    LD_PRELOAD=… python -m scripts.benchmarks.gpu_workloads bert-base 12 bf16 step list150 score

prints the counts as JSON; `python -m scripts.benchmarks gpu-counts` compiles what is preloaded, and prints tables.
"""

import contextlib
import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import BertModel, BertTokenizer

import rerank
from rerank.config import TrainingSettings
from rerank.losses import create
from rerank.models.compiled import compile_parts
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.encoder import LoadedEncoder
from rerank.models.heads import Float32Linear
from rerank.models.memory import FIRST_TRIAL, TokenBudget
from rerank.models.pair_chunks import pairs_of
from rerank.models.scoring import score_chunks
from rerank.models.tiny_bert import MAX_LENGTH, random_bert
from rerank.training.loop import train
from scripts.benchmarks.fake_cuda.compiler import counted_compiler
from scripts.benchmarks.fake_cuda.counter import CountingMode, Counts
from scripts.benchmarks.fake_cuda.fake_device import FakeAccelerator, move_to_fake_device
from scripts.benchmarks.workload import SHAPES, ListsTask, Workload, fill_workload, letter_pieces

LISTS = {"step": (8, 4), "list150": (1, 150)}
"""Lists of a step and their documents."""

SCORED = 119
"""Documents that are scored: about the budget of 65,536 tokens, in one chunk."""


def random_workload(shape: dict[str, int], lists: int, documents: int) -> Workload:
    """A workload with a BERT of this shape and with random weights, which is never written to a disk."""
    pieces = letter_pieces()
    tokenizer = BertTokenizer(vocab=pieces, model_max_length=MAX_LENGTH)
    body = random_bert(lambda config: BertModel(config, add_pooling_layer=False), pieces, 0, **shape)
    loaded = LoadedEncoder(tokenizer, body, False, MAX_LENGTH, 0, body.config.hidden_size)
    model = CrossEncoder(loaded, Float32Linear(loaded.hidden_size, 1), "mean")
    return fill_workload(Path(), model, tokenizer, MAX_LENGTH, lists, documents)


def count_training(workload: Workload, precision: str, loss: str = "smoothi") -> Counts:
    """The counts of a training step: of what happens between two calls of the optimizer, which the second one ends."""
    seen: list[Counts] = []

    def work(counts: Counts) -> None:
        hook = register_optimizer_step_post_hook(lambda *_: seen.append(copy.deepcopy(counts)))
        try:
            _train(workload, 2, precision, loss)
        finally:
            hook.remove()

    _counted(workload.model, work, compiled=True)
    first, second = seen
    return second.minus(first)


def count_scoring(workload: Workload, precision: str) -> Counts:
    """The counts of a chunk of all candidates: those of scoring two such chunks without those of one."""
    model, accelerator, budget = workload.model, FakeAccelerator(precision), TokenBudget(FIRST_TRIAL["cuda"])
    chunk = pairs_of(workload.candidates)

    def score(chunks: int) -> Counts:
        def work(counts: Counts) -> None:
            list(
                score_chunks(
                    model, workload.builder, [chunk] * chunks, accelerator.device, accelerator.autocast, budget
                )
            )

        return _counted(model, work)

    return score(2).minus(score(1))


def _train(workload: Workload, steps: int, precision: str, loss: str) -> None:
    task = ListsTask(replace(workload, candidates=workload.candidates * steps), TokenBudget(FIRST_TRIAL["cuda"]))
    settings = TrainingSettings(epochs=1, lists_per_step=len(workload.candidates))
    with TemporaryDirectory() as temporary:
        folder = SimpleNamespace(state=Path(temporary, "state"))
        train(task, create(loss), folder, settings, FakeAccelerator(precision), None)


def _counted(model: CrossEncoder, work: Callable[[Counts], object], compiled: bool = False) -> Counts:
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    move_to_fake_device(model, fake)
    counting = CountingMode(fake, str(Path(rerank.__file__).parent))
    with counted_compiler(counting) if compiled else contextlib.nullcontext(), fake, counting:
        if compiled:
            compile_parts(model)
        work(counting.counts)
    return counting.counts


def main(name: str, layers: str, precision: str, *workloads: str) -> None:
    """Prints the counts of these workloads as JSON: {workload: {facts of the batch, the fields of Counts}}."""
    torch.set_num_threads(1)
    counted = {}
    for what in workloads:
        workload = random_workload(SHAPES[name] | {"num_hidden_layers": int(layers)}, *LISTS.get(what, (1, SCORED)))
        lengths = workload.passage_lengths()
        facts = {
            "documents": sum(len(c.doc_ids) for c in workload.candidates),
            "passages": len(lengths),
            "tokens": int(lengths.sum()),
        }
        counts = count_training(workload, precision) if what in LISTS else count_scoring(workload, precision)
        counted[what] = {**facts, **vars(counts)}
    print(json.dumps(counted))


if __name__ == "__main__":
    main(*sys.argv[1:])
