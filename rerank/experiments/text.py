"""Text: TextDataset, queries and documents with their candidates; TextTask, a fold of it with a cross-encoder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from accelerate import Accelerator

from rerank.batches.batch import Batch, Packed, make_batch
from rerank.batches.passages import PassageBuilder
from rerank.batches.sampling import epoch_lists
from rerank.config import Config, validate
from rerank.data.candidates import queries_without_relevant, select_candidates
from rerank.data.collections import Collection, queries_to_train
from rerank.data.folds import make_folds, official_folds, read_folds, write_folds
from rerank.data.tokens import open_store
from rerank.data.trec import read_run, write_qrels
from rerank.experiments.checks import check_first_stage, check_fold, expect_text
from rerank.experiments.first_stage import first_stage_run, open_settings, recorded, with_texts
from rerank.models.cross_encoder import CrossEncoder, open_cross_encoder, pretraining_of, save_cross_encoder
from rerank.models.memory import TokenBudget, open_budget
from rerank.models.scoring import Passages, score_candidates
from rerank.retrieval.java import java_facts
from rerank.retrieval.languages import check_language
from rerank.runs.layout import CollectionFolder
from rerank.training.gradients import Loss
from rerank.training.task import Part
from rerank.training.validation import mean_loss
from rerank.types import Candidates, Fold, Qrels, Run
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.progress import log


@dataclass(frozen=True)
class TextDataset:
    """The candidates, in the run `first_stage`, of every query; a fold's training starts from `encoder`.

    The queries are those of `queries_to_train`, or those of a run that is only re-ranked.
    """

    config: Config
    folder: CollectionFolder
    collection: Collection
    first_stage: Path
    candidates: dict[str, Candidates]
    encoder: str

    @cached_property
    def folds(self) -> list[Fold]:
        """The official folds of the collection, or its judged queries cut into `--collection.folds`."""
        if self.collection.official_folds:
            return official_folds([(name.removeprefix("fold"), ids) for name, ids in self.collection.official_folds])
        judged = [query_id for query_id in self.collection.queries if query_id in self.qrels]
        return make_folds(judged, self.config.collection.folds)

    @property
    def fold_names(self) -> list[str]:
        """The names of all folds."""
        return _fold_names(self.config, self.collection)

    @property
    def model(self) -> str:
        """The name or the folder of the encoder."""
        return self.encoder

    @property
    def qrels(self) -> Qrels:
        """All judgments of the collection; {} if it has none."""
        return self.collection.qrels

    @property
    def unused_queries(self) -> int:
        """How many queries of `--collection.queries` have no judgments, so that training does not use them."""
        return len(self.collection.queries) - len(self.candidates) if self.config.collection.queries else 0

    def write_references(self) -> None:
        """Writes the judgments and the folds, which evaluation reads; nothing for a collection without judgments.

        Raises UserError if experiments with other folds are in the same folder.
        """
        if not self.qrels:
            log.info(
                f"{self.collection.source}: has no judgments, so neither {self.folder.qrels.name} nor folds are made"
            )
            return
        path = self.folder.folds
        if path.exists() and self.folder.has_results and read_folds(path) != self.folds:
            raise UserError(
                f"{path}: the experiments in this folder have other folds ({len(read_folds(path))}, now "
                f"{len(self.folds)}); keep --collection.folds, or take another --output.folder"
            )
        write_qrels(self.folder.qrels, self.qrels)
        write_folds(path, self.folds)

    def passages(self, tokenizer: Any, max_length: int) -> PassageBuilder:
        """Tokenises queries and candidates, documents once and on disk; a passage has at most `max_length` tokens."""
        doc_ids = sorted({doc_id for found in self.candidates.values() for doc_id in found.doc_ids})
        documents = open_store(
            self.folder.tokens,
            doc_ids,
            lambda doc_ids: (document.text for document in self.collection.get(doc_ids)),
            tokenizer,
            self.config.encoder.max_doc_tokens,
            self.collection.fingerprint,
        )
        queries = {query_id: self.collection.queries[query_id] for query_id in self.candidates}
        return PassageBuilder.build(queries, documents, tokenizer, max_length)

    def task(self, fold: Fold, accelerator: Accelerator) -> "TextTask":
        """The task of a fold."""
        return TextTask(self, fold, accelerator)


def open_text(config: Config, fold_name: str = "all", judged: bool = False) -> TextDataset:
    """Opens the collection of the settings, and retrieves the first stage unless it exists.

    `judged` is whether judgments are needed, as for training. Raises UserError for settings that are invalid, a fold
    that does not exist, and files that are missing or malformed.
    """
    validate(config)
    expect_text(config.collection.source)
    check_first_stage(config)
    check_language(config.collection.language)
    collection = open_settings(config.collection)
    if judged:
        collection.expect_judgments()
    check_fold(fold_name, _fold_names(config, collection))
    return text_dataset(config, collection)


def text_dataset(config: Config, collection: Collection) -> TextDataset:
    """The data set of an open collection; retrieves the first stage unless it exists."""
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    queries = queries_to_train(collection)
    run = first_stage_run(config, collection, folder)
    candidates = select_candidates(read_run(run), collection.qrels, config.first_stage.depth, queries)
    collection = with_texts(config, collection, folder)
    return TextDataset(config, folder, collection, run, candidates, config.encoder.name)


def _fold_names(config: Config, collection: Collection) -> list[str]:
    official = [name.removeprefix("fold") for name, _ in collection.official_folds]
    return official or [str(number + 1) for number in range(config.collection.folds)]


def open_model(config: Config, encoder: str, accelerator: Accelerator) -> tuple[CrossEncoder, Any, int]:
    """The model of an encoder on its device, its tokenizer, and the tokens that fit into one passage."""
    model, tokenizer, max_length = open_cross_encoder(encoder, config.encoder.pooling, config.training.seed)
    model.to(accelerator.device)
    if config.training.gradient_checkpointing:
        model.checkpoint_activations()
    if accelerator.is_main_process:
        if model.is_padded:
            log.info(f"{encoder}: {model.padding_reason}, so its passages are padded, in groups of similar length")
        elif model.attention_dropout() != "0.0":
            log.info(f"attention dropout: {model.attention_dropout()}")
    return model, tokenizer, max_length


def truncation_summary(passages: PassageBuilder, max_doc_tokens: int) -> str:
    """One line: how many documents and queries are longer than what the model sees of them."""
    stats = passages.documents.statistics()
    return (
        f"{stats['documents']} candidate documents, {stats['documents_cut']} cut at {max_doc_tokens} tokens "
        f"({stats['tokens_cut'] / max(1, stats['tokens']):.1%} of all tokens), {stats['documents_empty']} empty; "
        f"{passages.truncated_queries()} of {len(passages.queries)} queries cut at {passages.max_tokens // 2} tokens"
    )


class TextTask:
    """A fold of text and a cross-encoder: see `rerank.training.task.Task`.

    Raises UserError if no training query has a relevant candidate, or no validation or test query is judged and has a
    candidate.
    """

    judged_parts: ClassVar[tuple[Part, ...]] = ("train", "valid", "test")

    def __init__(self, dataset: TextDataset, fold: Fold, accelerator: Accelerator) -> None:
        self.dataset, self.fold, self.accelerator = dataset, fold, accelerator
        self.config = config = dataset.config
        self.model, self.tokenizer, max_length = open_model(config, dataset.encoder, accelerator)
        with accelerator.main_process_first():
            self.passages = dataset.passages(self.tokenizer, max_length)
        if accelerator.is_main_process:
            log.info(truncation_summary(self.passages, config.encoder.max_doc_tokens))
        self.memory: TokenBudget = open_budget(config.training.max_tokens_per_forward, accelerator.device)
        self.lists: dict[Part, list[Candidates]] = {
            "valid": self._judged_candidates("validation", fold.valid),
            "test": self._judged_candidates("test", fold.test),
            "train": self._trainable(),
        }
        self.best_passages: Passages = {}

    def _judged_candidates(self, part: str, query_ids: Iterable[str]) -> list[Candidates]:
        """The candidates of the queries that have any."""
        lists = [self.dataset.candidates[query_id] for query_id in query_ids]
        lists = [candidates for candidates in lists if candidates.doc_ids]
        if not any(candidates.query_id in self.dataset.qrels for candidates in lists):
            raise UserError(
                f"fold {self.fold.name}: none of its {part} queries is judged and has a candidate: nothing to measure"
            )
        return lists

    def _trainable(self) -> list[Candidates]:
        """The candidates of the training queries that have a relevant one."""
        candidates = {query_id: self.dataset.candidates[query_id] for query_id in self.fold.train}
        skipped = set(queries_without_relevant(candidates))
        if skipped and self.accelerator.is_main_process:
            log.info(
                f"fold {self.fold.name}: {len(skipped)} of {len(candidates)} training queries have no relevant "
                "candidate: skipped"
            )
        if len(skipped) == len(candidates):
            raise UserError(
                f"fold {self.fold.name}: none of its {len(candidates)} training queries has a relevant candidate: "
                "nothing to learn"
            )
        return [found for query_id, found in candidates.items() if query_id not in skipped]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Two groups: the encoder with `lr`, the layers on top with `head_lr`."""
        return self.model.parameter_groups(self.config.training.lr, self.config.training.head_lr)

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        """Lists drawn from the candidates of the training queries (`--lists`)."""
        lists, training = self.config.lists, self.config.training
        return epoch_lists(
            self.lists["train"], epoch, training.lists_per_epoch, lists.relevant, lists.non_relevant, training.seed
        )

    def batch(self, lists: Sequence[Candidates]) -> Batch[Packed]:
        """Packed passages of the lists' documents."""
        return make_batch(lists, self.passages)

    def score(self, part: Part) -> Run:
        """Scores all candidates of a part; `best_passages` are those of the test queries."""
        lists, what = self.lists[part], "testing" if part == "test" else "validating"
        best_passages = self.best_passages if part == "test" else None
        return score_candidates(self.model, self.passages, lists, self.accelerator, self.memory, what, best_passages)

    def mean_loss(self, run: Run, part: Part, loss: Loss) -> float:
        """The mean over the queries of a part of the loss of all their candidates."""
        return mean_loss(run, self.lists[part], loss)

    def qrels(self, part: Part) -> Qrels:
        """The judgments of a part's queries."""
        query_ids: tuple[str, ...] = getattr(self.fold, part)
        return {query_id: self.dataset.qrels[query_id] for query_id in query_ids if query_id in self.dataset.qrels}

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder that records the collection."""
        settings = recorded(self.config.collection)
        save_cross_encoder(self.model, self.tokenizer, folder, self.config.encoder.max_doc_tokens, settings)

    def load(self, checkpoint: Path) -> None:
        """Replaces the model by that of a checkpoint."""
        self.model, _, _ = open_cross_encoder(str(checkpoint), self.config.encoder.pooling, self.config.training.seed)
        self.model.to(self.accelerator.device)

    def facts(self) -> dict[str, Any]:
        """The texts, the first stage and the encoder, for the manifest."""
        dataset, documents = self.dataset, self.passages.documents
        return {
            "pretraining": pretraining_of(self.model),
            "texts": {**documents.statistics(), "queries_cut": self.passages.truncated_queries()},
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": documents.sha256()},
            "first_stage": {"run": str(dataset.first_stage), "sha256": file_hash(dataset.first_stage)},
            "java": None if self.config.first_stage.run else java_facts(),
            "max_tokens_per_forward": self.memory.tokens,
            "passages": f"padded: {self.model.padding_reason}" if self.model.padding_reason else "packed",
            "attention_dropout": self.model.attention_dropout(),
        }
