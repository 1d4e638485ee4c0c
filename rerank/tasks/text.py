"""Text: TextDataset, queries and documents with their candidates; TextTask, a fold of it with a cross-encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from accelerate import Accelerator

from rerank.batches.batch import Batch, Packed, make_batch
from rerank.batches.passages import PassageBuilder
from rerank.batches.sampling import epoch_lists
from rerank.batches.templates import open_template
from rerank.config import Config
from rerank.data.candidates import distinct_doc_ids
from rerank.data.collections import Collection
from rerank.data.lists import TrainingLists
from rerank.data.tokens import open_store
from rerank.data.types import Candidates, Fold, Qrels, Run
from rerank.losses import LABELS
from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.memory import TokenBudget, open_budget
from rerank.models.scoring import score_candidates
from rerank.runs.layout import CollectionFolder
from rerank.tasks.collection import recorded
from rerank.tasks.first_stage import first_stage_facts
from rerank.tasks.fold_lists import judgments_of, lists_of_fold, measured_candidates, texts_of, trainable_candidates
from rerank.tasks.folds import drawn_final_fold, drawn_folds, fold_names_of, write_references
from rerank.training.device import precision_facts
from rerank.training.gradients import Loss
from rerank.training.objective import mean_loss
from rerank.training.task import Part
from rerank.utils.progress import log


@dataclass(frozen=True)
class TextDataset:
    """The candidates, in the run `first_stage`, of every query; a fold's training starts from `encoder`.

    The queries are those of `queries_to_train`, or those of a run that is only re-ranked. `lists` are those of
    `--training.lists`.
    """

    config: Config
    folder: CollectionFolder
    collection: Collection
    first_stage: Path
    candidates: Mapping[str, Candidates]
    encoder: str
    lists: TrainingLists | None = None

    @cached_property
    def folds(self) -> list[Fold]:
        """The collection's published split, its official folds, or its judged queries cut into `--collection.folds`.

        `--collection.train-queries` and `--training.validate-queries` may leave queries out.
        """
        return drawn_folds(self.config, self.collection)

    def final_fold(self) -> Fold:
        """All judged queries; some of them, drawn by `--seed`, validate."""
        return drawn_final_fold(self.config, self.collection)

    @property
    def fold_names(self) -> list[str]:
        return fold_names_of(self.collection, self.config.collection.folds)

    @property
    def model(self) -> str:
        return self.encoder

    def write_references(self) -> None:
        """Writes the judgments and the folds, which evaluation reads.

        Raises UserError if experiments with other folds are in the same folder.
        """
        write_references(self.folder, self.collection, self.config.collection.folds)

    def passages(self, tokenizer: Any, max_length: int, template: str) -> PassageBuilder:
        """Tokenises queries and documents, these once and on disk; a passage has at most `max_length` tokens.

        The documents are the candidates and those of the training lists. `template` is the text that a pair is put
        into, or "". Raises UserError for an unknown document, and if the tokenizer cannot tell the pair from it.
        """
        pair = open_template(tokenizer, template)
        in_lists, given_by_text = self.lists.doc_ids() if self.lists else ([], [])
        doc_ids = distinct_doc_ids(self.candidates)
        if self.lists:
            doc_ids = [*sorted({*in_lists, *doc_ids}), *given_by_text]
        documents = open_store(
            self.folder.tokens,
            doc_ids,
            lambda doc_ids: texts_of(doc_ids, self.collection, self.lists),
            tokenizer,
            self.config.encoder.max_doc_tokens,
            self.collection.fingerprint,
            pair.document_lead,
        )
        queries = {query_id: self.collection.queries[query_id] for query_id in self.candidates}
        if self.lists:
            queries |= self.lists.query_texts(self.collection.queries)
        return PassageBuilder.build(queries, documents, tokenizer, pair, max_length)

    def task(self, fold: Fold, accelerator: Accelerator) -> "TextTask":
        return TextTask(self, fold, accelerator)


class TextTask:
    """A fold of text and a cross-encoder: see `rerank.training.task.Task`.

    Raises UserError if no training query has a relevant candidate, or no validation or test query is judged and has a
    candidate; with `--training.lists`, if none of its lists is left for the fold. The final model has no test queries.
    """

    judged_parts: ClassVar[tuple[Part, ...]] = ("train", "valid", "test")

    def __init__(self, dataset: TextDataset, fold: Fold, accelerator: Accelerator) -> None:
        self.dataset, self.fold, self.accelerator = dataset, fold, accelerator
        self.config = config = dataset.config
        self.model, self.tokenizer, max_length = open_model(config, dataset.encoder, accelerator)
        self.model.first_stage_weight = config.encoder.first_stage_weight
        with accelerator.main_process_first():
            self.passages = dataset.passages(self.tokenizer, max_length, self.model.template)
        if accelerator.is_main_process:
            log.info(truncation_summary(self.passages, config.encoder.max_doc_tokens))
        self.memory: TokenBudget = open_budget(config.training.max_tokens_per_forward, accelerator.device)
        candidates, qrels = dataset.candidates, dataset.collection.qrels
        self.of_file: dict[str, Any] = {}  # the facts of --training.lists
        self.lists: dict[Part, Sequence[Candidates]] = {
            "valid": measured_candidates("valid", fold, candidates, qrels),
            "test": measured_candidates("test", fold, candidates, qrels),
            "train": self._lists_of_file(dataset.lists)
            if dataset.lists
            else trainable_candidates(fold, candidates, accelerator.is_main_process),
        }

    def _lists_of_file(self, file: TrainingLists) -> Sequence[Candidates]:
        """The lists of `--training.lists` that train this fold."""
        lists, facts = lists_of_fold(file, self.fold, self.dataset.collection.queries, self.config.loss.name)
        self.of_file = facts
        if self.accelerator.is_main_process:
            log.info(
                f"fold {self.fold.name}: {facts['trained_on']} of {facts['lists']} lists of {file.path}; left out: "
                f"{facts['held_out']} of validation or test queries, {facts['without_relevant']} without a label of 1 "
                "or more"
            )
        return lists

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Two groups: the encoder with `lr`, the layers on top with `head_lr`."""
        return self.model.parameter_groups(self.config.training.lr, self.config.training.head_lr)

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        """Lists drawn from the candidates of the training queries (`--lists`), or whole lists of the file."""
        lists, training = self.config.lists, self.config.training
        relevant, non_relevant = ("all", "all") if self.of_file else (lists.relevant, lists.non_relevant)
        return epoch_lists(self.lists["train"], epoch, training.lists_per_epoch, relevant, non_relevant, training.seed)

    def batch(self, lists: Sequence[Candidates]) -> Batch[Packed]:
        return make_batch(lists, self.passages, scored=LABELS[self.config.loss.name] == "scores")

    def score(self, part: Part) -> Run:
        """Scores all candidates of a part."""
        lists, what = list(self.lists[part]), "testing" if part == "test" else "validating"
        return score_candidates(self.model, self.passages, lists, self.accelerator, self.memory, what)

    def mean_loss(self, run: Run, part: Part, loss: Loss) -> float:
        return mean_loss(run, self.lists[part], loss)

    def qrels(self, part: Part) -> Qrels:
        return judgments_of(part, self.fold, self.dataset.collection.qrels)

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder that records the collection, and a first stage whose scores it adds."""
        settings = recorded(self.config.collection)
        if self.config.encoder.first_stage_weight and self.config.first_stage.run:
            settings["first_stage"] = self.dataset.first_stage.name
        save_cross_encoder(self.model, self.tokenizer, folder, self.config.encoder.max_doc_tokens, settings)

    def load(self, checkpoint: Path) -> None:
        self.model, _, _ = open_cross_encoder(str(checkpoint), self.config.encoder.pooling, self.config.training.seed)
        self.model.first_stage_weight = self.config.encoder.first_stage_weight
        self.model.place(self.accelerator.device, self.accelerator.autocast, self.config.training.precision == "auto")

    def facts(self) -> dict[str, Any]:
        """The texts, the first stage and the encoder, for the manifest."""
        dataset, documents = self.dataset, self.passages.documents
        return {
            **({"training_lists": self.of_file} if self.of_file else {}),
            "pretraining": self.model.settings.get("pretraining"),
            "texts": {**documents.statistics(), "queries_cut": self.passages.truncated_queries()},
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": documents.sha256()},
            **first_stage_facts(self.config, dataset.first_stage),
            "max_tokens_per_forward": self.memory.tokens,
            "passages": f"padded: {self.model.padding_reason}" if self.model.padding_reason else "packed",
            **precision_facts(self.accelerator, self.model),
            **({"template": self.model.template} if self.model.template else {}),
        }


def open_model(config: Config, encoder: str, accelerator: Accelerator) -> tuple[CrossEncoder, Any, int]:
    """The model of an encoder on its device, its tokenizer, and the tokens that fit into one passage."""
    settings = config.encoder
    model, tokenizer, max_length = open_cross_encoder(
        encoder, settings.pooling, config.training.seed, settings.template, settings.lora_rank
    )
    lines = model.place(accelerator.device, accelerator.autocast, config.training.precision == "auto")
    if config.training.gradient_checkpointing:
        model.checkpoint_activations()
    if accelerator.is_main_process:
        for line in lines:
            log.info(line)
        if model.is_padded:
            log.info(f"{encoder}: {model.padding_reason}, so its passages are padded, in groups of similar length")
    return model, tokenizer, max_length


def truncation_summary(passages: PassageBuilder, max_doc_tokens: int) -> str:
    """One line: how many documents and queries are longer than what the model sees of them."""
    stats = passages.documents.statistics()
    return (
        f"{stats['documents']} candidate documents, {stats['documents_cut']} cut at {max_doc_tokens} tokens "
        f"({stats['tokens_cut'] / max(1, stats['tokens']):.1%} of all tokens), {stats['documents_empty']} empty; "
        f"{passages.truncated_queries()} of {len(passages.queries)} queries cut at {passages.max_tokens // 2} tokens"
    )
