"""Fine-tunes a bi-encoder by the trainer of sentence-transformers, with MultipleNegativesRankingLoss.

The loss of a query is the cross-entropy of its relevant passage among all passages of the batch, by their similarities
(Henderson et al., "Efficient natural language response suggestion for smart reply", 2017).
"""

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState, is_initialized
from torch import Tensor, nn

from rerank.data.types import Candidates
from rerank.models.bi_encoder import load_model
from rerank.models.gpu import Autocast, Precision, choose_precision
from rerank.models.hub import quiet_transformers
from rerank.models.packed_texts import pack_texts
from rerank.training.estimate import MOST_MEASURED
from rerank.training.randomness import seeded
from rerank.utils.errors import UserError
from rerank.utils.files import remove_at_once
from rerank.utils.progress import log, progress, say_how_long, timed_sample

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformerTrainer

ANCHOR = "anchor"
"""The column of the queries in the data set; this and the next two are sentence-transformers' names."""

POSITIVE = "positive"
"""The column of the relevant texts."""

NEGATIVE = "negative_{}"
"""The columns of the hard negatives, by their number."""

STATE = "state"
"""The folder with the state of an unfinished training."""

WHOLE_STATE = "trainer_state.json"
"""The file that the trainer writes last into a state."""

STEPS_BETWEEN_STATES = 100
"""Steps between two saved states: some minutes on a CPU. A state takes three times the space of the model."""

WARMUP = 0.1
"""The share of the steps in which the learning rate rises."""


@dataclass(frozen=True)
class Plan:
    """How a bi-encoder is fine-tuned.

    texts: the query, the relevant passage and the negative passages of each list; all lists have as many.
    batches: the indices of the lists of each step.
    precision: of the forward pass; weights and loss are in float32. Float32 takes the place of fp16, which would need a
        gradient scaler.
    """

    texts: Sequence[tuple[str, ...]]
    batches: Sequence[Sequence[int]]
    lr: float
    seed: int
    device: str
    precision: Precision = "auto"


def to_batches(lists: Sequence[Candidates], size: int, relevant: Mapping[str, AbstractSet[str]]) -> list[list[int]]:
    """The indices of the lists of each batch, at most `size`, in the given order as far as possible.

    The documents of a batch are negatives of its other queries. So a list waits for a later batch if its query is in
    the batch, if one of its documents is relevant to a query of the batch, and the other way round. `relevant` has the
    relevant documents of each query.

    >>> lists = [Candidates(query_id, tuple(doc_ids), (1, 0)) for query_id, *doc_ids in ("a12", "a32", "b41", "c56")]
    >>> to_batches(lists, 2, {"a": {"1", "3"}, "b": {"4"}, "c": {"5"}})
    [[0, 3], [1], [2]]
    """
    waiting, batches = list(range(len(lists))), []
    while waiting:
        batch, later, doc_ids, query_ids = list[int](), list[int](), set[str](), set[str]()
        for place, number in enumerate(waiting):
            if len(batch) == size:
                later += waiting[place:]
                break
            found = lists[number]
            is_relevant = not relevant[found.query_id].isdisjoint(doc_ids)
            if (
                found.query_id in query_ids
                or is_relevant
                or any(not relevant[query_id].isdisjoint(found.doc_ids) for query_id in query_ids)
            ):
                later.append(number)
            else:
                batch.append(number)
                query_ids.add(found.query_id)
                doc_ids.update(found.doc_ids)
        batches.append(batch)
        waiting = later
    return batches


def fine_tune(encoder: str, plan: Plan, folder: Path, out: Path) -> None:
    """Fine-tunes a bi-encoder and writes it to `out`; the state of an unfinished training is in `folder`.

    Texts are packed without padding where the model allows it; attention weights then have no dropout. The same plan
    gives the same bytes, resumed or not; without a list the bi-encoder stays as it is. Nothing of the process is
    changed: neither random numbers, loggers nor trackers. Raises UserError in one of several processes, and if
    accelerate already uses another device or a mixed precision.
    """
    with _opened(encoder, plan) as (model, autocast):
        states = folder / STATE
        if plan.batches:
            trainer = _trainer(model, autocast, plan, states)
            if log.isEnabledFor(logging.INFO):
                with seeded(plan.seed, torch.device(plan.device)):
                    _say_how_long(trainer, plan)
            trainer.train(resume_from_checkpoint=_last_state(states))
        model.eval().save(str(out), create_model_card=False)
    if states.exists():
        remove_at_once(states)


@contextmanager
def _opened(encoder: str, plan: Plan) -> Iterator[tuple[Any, Autocast]]:
    """The bi-encoder of a plan, to be fine-tuned in the block, and the autocast for its calls.

    Raises the errors of `fine_tune`.
    """
    from sentence_transformers import SentenceTransformer

    device = torch.device(plan.device)
    state = PartialState(cpu=device.type == "cpu")
    if state.num_processes > 1:
        raise UserError("fine-tuning a bi-encoder is for one process: run it without accelerate or torchrun")
    if state.device.type != device.type:
        raise UserError(
            f"--training.device {device.type}: accelerate already uses {state.device.type} in this process; expected "
            "the same device to fine-tune a bi-encoder on"
        )
    if is_initialized() and (precision := AcceleratorState().mixed_precision) != "no":
        raise UserError(
            f"accelerate already uses {precision} in this process; expected no mixed precision: fine-tune the "
            "bi-encoder in another process"
        )
    with quiet_transformers(), seeded(plan.seed, device), _kept_random():
        model = load_model(SentenceTransformer, encoder, plan.device)
        is_fp16 = choose_precision(plan.precision, device) == "fp16"
        yield model, pack_texts(model, "float32" if is_fp16 else plan.precision, trained=True)


def loss_class() -> Any:
    """MultipleNegativesRankingLoss, which sentence-transformers 5 and 6 have in different places."""
    try:
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    except ImportError:
        from sentence_transformers.losses import MultipleNegativesRankingLoss  # type: ignore[no-redef]
    return MultipleNegativesRankingLoss


def _loss(model: Any, autocast: Autocast) -> nn.Module:
    """The loss, in float32, of vectors that are computed within `autocast`."""

    class Loss(loss_class()):  # type: ignore[misc]
        def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
            with autocast():
                vectors = [self.model(features)["sentence_embedding"] for features in sentence_features]
            loss: Tensor = self.compute_loss_from_embeddings([of_column.float() for of_column in vectors], labels)
            return loss

    return Loss(model)


def _trainer(model: Any, autocast: Autocast, plan: Plan, folder: Path) -> "SentenceTransformerTrainer":
    """The trainer of a plan, which keeps its state in `folder`, and neither reports nor prints."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from torch.utils.data import BatchSampler, SequentialSampler
    from transformers import PrinterCallback, TrainerCallback

    columns = [ANCHOR, POSITIVE, *(NEGATIVE.format(number) for number in range(1, len(plan.texts[0]) - 1))]
    kinds = {column: "query" if column == ANCHOR else "document" for column in columns}
    steps = len(plan.batches)

    class GivenBatches(BatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            return iter([list(batch) for batch in plan.batches])

        def __len__(self) -> int:
            return steps

    class Trainer(SentenceTransformerTrainer):
        def get_batch_sampler(self, dataset: Any, *args: Any, **settings: Any) -> BatchSampler:
            return GivenBatches(SequentialSampler(dataset), max(map(len, plan.batches)), drop_last=False)

        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """No model card is written."""

    class Progress(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            done = state.global_step
            self.bar = progress(range(done, steps), steps, "fine-tuning the bi-encoder", before=done)
            next(self.bar, None)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            next(self.bar, None)

    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=plan.lr,
        warmup_steps=round(WARMUP * steps),
        seed=plan.seed % 2**32,
        prompts={column: prompt for column, kind in kinds.items() if (prompt := model.prompts.get(kind))},
        router_mapping=kinds,
        use_cpu=model.device.type == "cpu",
        accelerator_config={"use_configured_state": True},
        save_strategy="steps",
        save_steps=STEPS_BETWEEN_STATES,
        save_total_limit=1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    texts_of = dict(zip(columns, map(list, zip(*plan.texts, strict=True)), strict=True))
    loss = _loss(model, autocast)
    trainer = Trainer(
        model=model, args=args, train_dataset=Dataset.from_dict(texts_of), loss=loss, callbacks=[Progress()]
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def measure(encoder: str, plan: Plan) -> float:
    """The mean seconds of the gradient of a list, measured for about a second on the lists of a plan."""
    with _opened(encoder, plan) as (model, autocast), TemporaryDirectory() as folder:
        return _list_seconds(_trainer(model, autocast, plan, Path(folder)), plan)


def _list_seconds(trainer: Any, plan: Plan) -> float:
    """The mean seconds of the gradient of a list, from some lists of a plan; the model is left without gradients."""
    model, lists = trainer.model, len(plan.texts)

    def gradient(number: int) -> None:
        inputs = trainer.data_collator([trainer.train_dataset[number]])
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in inputs.items()}
        trainer.compute_loss(model, moved).backward()

    model.train()
    seconds = timed_sample(gradient, range(0, lists, -(-lists // MOST_MEASURED)))
    model.zero_grad(set_to_none=True)
    return seconds


def _say_how_long(trainer: Any, plan: Plan) -> None:
    """Logs how many lists and steps follow, and about how long they take."""
    lists, steps = len(plan.texts), len(plan.batches)
    seconds = lists * _list_seconds(trainer, plan)
    say_how_long(f"fine-tuning the bi-encoder on {lists:,} lists in {steps:,} steps", seconds)


def _last_state(folder: Path) -> str | None:
    """The newest whole state of an interrupted training; one that a kill cut short is removed."""
    states = sorted(folder.glob("checkpoint-*"), key=lambda place: int(place.name.partition("-")[2]))
    for place in states:
        if not (place / WHOLE_STATE).is_file():
            remove_at_once(place)
    whole = [place for place in states if place.exists()]
    return str(whole[-1]) if whole else None


@contextmanager
def _kept_random() -> Iterator[None]:
    """Restores the random numbers of Python and numpy, which the trainer seeds."""
    python, numbers = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
