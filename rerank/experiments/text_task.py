"""Text: TextDataset, a collection with its candidates; TextTask, one of its folds and a cross-encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from accelerate import Accelerator

from rerank.batches.batch import Batch, Packed, make_batch
from rerank.batches.passages import PassageBuilder
from rerank.batches.sampling import epoch_lists
from rerank.batches.templates import open_template
from rerank.config import Config, TrainingSettings
from rerank.data.candidates import distinct_doc_ids, select_candidates
from rerank.data.collections import Collection
from rerank.data.folds import fold_seed, judgments_of
from rerank.data.lists import TrainingLists
from rerank.data.runs import read_run_arrays
from rerank.data.taught import write_taught
from rerank.data.tokens import Tokenisation, open_token_store
from rerank.data.types import Candidates, Fold, Qrels, Run
from rerank.experiments.checks import cut_of
from rerank.experiments.collection import (
    check_judged_documents,
    drawn_folds,
    fold_names_of,
    folder_of,
    queries_in_use,
    recorded,
    write_references,
)
from rerank.experiments.first_stage import first_stage_facts, first_stage_run, open_checked, with_texts
from rerank.experiments.fold_lists import (
    in_first_order,
    lists_of_fold,
    measured_candidates,
    texts_of,
    trainable_candidates,
)
from rerank.experiments.grades import check_grades, read_lists
from rerank.experiments.runs.layout import CollectionFolder
from rerank.losses import LABELS
from rerank.losses.shifts import changes_with_a_shift
from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from rerank.models.compiled import compile_layers
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.memory import TokenBudget, open_budget
from rerank.models.pooling import POOLINGS, moves_with_scores
from rerank.models.scoring import Scorer, score_candidates
from rerank.training.device import precision_facts
from rerank.training.objective import open_loss
from rerank.training.task import Split
from rerank.utils.files import kept_hash, short_hash_of
from rerank.utils.progress import log


@dataclass(frozen=True)
class TextDataset:
    """A collection and the candidates of its queries.

    first_stage: the run of the candidates; None if a stage of a pipeline ranked them.
    candidates: by query; the queries are those of `queries_to_train`, or of a run that is only re-ranked.
    lists: those of `--training.lists`, if given.
    folds: the folds to train.
    """

    config: Config
    folder: CollectionFolder
    collection: Collection
    first_stage: Path | None
    candidates: Mapping[str, Candidates]
    lists: TrainingLists | None = None
    folds: Sequence[Fold] = ()

    @property
    def model(self) -> str:
        """The encoder that training starts from."""
        return self.config.encoder.name

    @property
    def fold_names(self) -> list[str]:
        return fold_names_of(self.config, self.collection)

    def write_references(self) -> None:
        write_references(self.config, self.collection)

    def passages(self, model: Scorer) -> PassageBuilder:
        """Tokenises the queries, and the documents of candidates and training lists; documents are cached on disk.

        Raises UserError for an unknown document, and if the tokenizer cannot find query and document in the template.
        """
        doc_ids = distinct_doc_ids(self.candidates)
        queries = {query_id: self.collection.queries[query_id] for query_id in self.candidates}
        if self.lists:
            in_lists, given_by_text = self.lists.doc_ids()
            doc_ids = [*sorted({*in_lists, *doc_ids}), *given_by_text]
            queries |= self.lists.query_texts(self.collection.queries)
        tokenizer, template = model.tokenizer, open_template(model.tokenizer, model.template)
        documents = open_token_store(
            self.folder.tokens,
            doc_ids,
            partial(texts_of, collection=self.collection, file=self.lists),
            Tokenisation(tokenizer, model.max_doc_tokens, template.document_lead),
            self.collection.fingerprint,
        )
        return PassageBuilder.build(queries, documents, tokenizer, template, model.max_length, model.cut)

    def task(self, fold: Fold, accelerator: Accelerator) -> "TextTask":
        return TextTask(self, fold, accelerator)


def open_text(config: Config, fold_name: str) -> TextDataset:
    """Opens the data set with one fold, "all" or "final"; retrieves candidates if necessary.

    Raises UserError for a fold that does not exist, and for files, such as judgments, that are missing or malformed.
    """
    collection, file = open_checked(config, fold_name, judged=True), config.training.lists
    lists = read_lists(config.loss, file, collection) if file else None
    if not file or config.training.measure == "loss":  # the judgments of the collection teach or validate
        check_grades(config.loss, collection)
    folder = folder_of(config, collection)
    texts = with_texts(config, collection, folder)
    if line := check_judged_documents(texts):
        log.info(line)
    queries = queries_in_use(config, collection, fold_name)
    run = first_stage_run(config, collection, folder, queries)
    depth, keep_scores = config.first_stage.depth, config.encoder.first_stage_weight > 0
    found = read_run_arrays(run, depth, queries)
    candidates = select_candidates(found, collection.qrels, depth, queries, keep_scores)
    folds = [fold for fold in drawn_folds(config, collection, fold_name) if fold_name in ("all", fold.name)]
    return TextDataset(config, folder, texts, run, candidates, lists, folds)


def open_to_train(config: Config, encoder: str, accelerator: Accelerator) -> tuple[CrossEncoder, TokenBudget]:
    """A cross-encoder on its device, and its token budget; logs how it is placed and why passages are padded."""
    settings, training = config.encoder, config.training
    model = open_cross_encoder(encoder, settings.pooling, training.seed, settings.template, settings.lora_rank)
    model.max_doc_tokens, model.cut = settings.max_doc_tokens, cut_of(settings)
    _place(model, training, accelerator)
    if training.gradient_checkpointing:
        model.checkpoint_activations()
    if model.is_padded:
        log.info(f"{encoder}: {model.padding_reason}, so its passages are padded, in groups of similar length")
    return model, open_budget(training.max_tokens_per_forward, accelerator.device)


def _place(model: CrossEncoder, training: TrainingSettings, accelerator: Accelerator) -> None:
    """Moves a model to its device, and compiles it unless algorithms must be deterministic."""
    for line in model.place(accelerator.device, accelerator.autocast, training.precision == "auto"):
        log.info(line)
    if not training.deterministic and (reason := compile_layers(model, accelerator.autocast)):
        log.info(reason)


class TextTask:
    """A fold of text and a cross-encoder; `training` has the seed of the fold.

    Raises UserError if no training query has a relevant candidate, or if no validation or no test query is judged and
    has a candidate; with `--training.lists`, if no list is left for the fold. The final model has no test queries.
    """

    judged_splits: ClassVar[tuple[Split, ...]] = ("train", "valid", "test")

    def __init__(self, dataset: TextDataset, fold: Fold, accelerator: Accelerator) -> None:
        self.config, self.dataset, self.fold, self.accelerator = dataset.config, dataset, fold, accelerator
        self.training = replace(self.config.training, seed=fold_seed(self.config.training.seed, fold.name))
        config = replace(self.config, training=self.training)
        self.model, self.memory = open_to_train(config, dataset.model, accelerator)
        self.model.first_stage_weight = self.config.encoder.first_stage_weight
        self._freeze_idle_bias()
        with accelerator.main_process_first():
            self.passages = dataset.passages(self.model)
        log.info(truncation_summary(self.passages, self.config.encoder.max_doc_tokens))
        candidates, collection = dataset.candidates, dataset.collection
        self.lists: dict[Split, Sequence[Candidates]] = {
            "valid": measured_candidates("valid", fold, candidates, collection.qrels),
            "test": measured_candidates("test", fold, candidates, collection.qrels),
        }
        self.of_file: dict[str, str | int] = {}  # the facts of --training.lists
        if dataset.lists:
            loss = self.config.loss.name
            self.lists["train"], self.of_file = lists_of_fold(dataset.lists, fold, collection.queries, loss)
        else:
            self.lists["train"] = trainable_candidates(fold, candidates)

    def _freeze_idle_bias(self) -> None:
        """Freezes the bias of the scores if the loss does not depend on it: its gradient would be rounding error."""
        bias, pooling = self.model.output_bias, POOLINGS[self.model.pooling]
        if bias is not None and moves_with_scores(pooling) and not changes_with_a_shift(open_loss(self.config.loss)):
            bias.requires_grad_(False)

    def parameter_groups(self) -> list[dict[str, object]]:
        return self.model.parameter_groups(self.training.lr, self.training.head_lr)

    def batch(self, lists: Sequence[Candidates]) -> Batch[Packed]:
        return make_batch(lists, self.passages, scored=LABELS[self.config.loss.name] == "scores")

    @property
    def first_stage(self) -> Run:
        return in_first_order(self.lists["valid"])

    def documents(self, split: Split) -> int:
        return sum(len(found.doc_ids) for found in self.lists[split])

    def score(self, split: Split) -> Run:
        lists, what = list(self.lists[split]), "testing" if split == "test" else "validating"
        return score_candidates(self.model, self.passages, lists, self.accelerator, self.memory, what)

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        lists, training = self.config.lists, self.training
        relevant, non_relevant = ("all", "all") if self.of_file else (lists.relevant, lists.non_relevant)
        return epoch_lists(self.lists["train"], epoch, training.lists_per_epoch, relevant, non_relevant, training.seed)

    def qrels(self, split: Split) -> Qrels:
        return judgments_of(split, self.fold, self.dataset.collection.qrels)

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder that records the collection, its queries, the depth and the first stage."""
        settings: dict[str, str | int] = {**recorded(self.config.collection), "depth": self.config.first_stage.depth}
        if self.dataset.first_stage and self.config.encoder.first_stage_weight and self.config.first_stage.run:
            settings["first_stage"] = self.dataset.first_stage.name
        save_cross_encoder(self.model, folder, settings)
        write_taught(folder, self.dataset.collection.fingerprint, self.fold)

    def load(self, checkpoint: Path) -> None:
        self.model = open_cross_encoder(str(checkpoint), self.config.encoder.pooling, self.training.seed)
        self.model.first_stage_weight = self.config.encoder.first_stage_weight
        _place(self.model, self.training, self.accelerator)

    def inputs(self) -> dict[str, str]:
        """The hashes of what training reads, except for judgments, by name."""
        dataset = self.dataset
        query_ids = (*self.fold.train, *self.fold.valid, *self.fold.test)
        return {
            "queries": short_hash_of(dataset.collection.queries[query_id] for query_id in query_ids),
            "documents": dataset.collection.fingerprint,
            "candidates": kept_hash(dataset.first_stage) if dataset.first_stage else "",
            "training lists": dataset.lists.sha256 if dataset.lists else "",
        }

    def facts(self) -> dict[str, object]:
        dataset, documents = self.dataset, self.passages.documents
        return {
            **({"training_lists": self.of_file} if self.of_file else {}),
            "texts": {**documents.statistics(), "queries_cut": self.passages.truncated_queries()},
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": documents.sha256()},
            **(first_stage_facts(self.config, dataset.first_stage) if dataset.first_stage else {}),
            "max_tokens_per_forward": self.memory.tokens,
            "passages": f"padded: {self.model.padding_reason}" if self.model.padding_reason else "packed",
            "attention_dropout": _attention_dropout(self.model),
            **precision_facts(self.accelerator, self.model),
            **({"template": self.model.template} if self.model.template else {}),
        }


def _attention_dropout(model: CrossEncoder) -> dict[str, float]:
    """The encoder's dropout rate of attention weights, and the applied rate: 0 if passages are packed."""
    config = model.encoder.config
    names = ("attention_probs_dropout_prob", "attention_dropout")  # BERT's; other architectures'
    rate = next((float(getattr(config, name)) for name in names if hasattr(config, name)), 0.0)
    return {"encoder": rate, "applied": rate if model.is_padded else 0.0}


def truncation_summary(passages: PassageBuilder, max_doc_tokens: int) -> str:
    """One line: how many documents and queries are truncated."""
    stats = passages.documents.statistics()
    return (
        f"{stats['documents']} candidate documents, {stats['documents_cut']} cut at {max_doc_tokens} tokens "
        f"({stats['tokens_cut'] / max(1, stats['tokens']):.1%} of all tokens), {stats['documents_empty']} empty; "
        f"{passages.truncated_queries()} of {len(passages.queries)} queries cut at {passages.max_query_tokens} tokens"
    )
