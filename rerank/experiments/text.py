"""A fold of text: queries, documents and an encoder, as `experiment` trains it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.batches.pair_template import pair_template
from rerank.batches.passages import PassageBuilder
from rerank.batches.sampling import epoch_lists
from rerank.config import Config, validate
from rerank.data.candidates import queries_without_relevant, select_candidates
from rerank.data.collections import Collection, open_collection
from rerank.data.folds import make_folds, official_folds, read_folds, write_folds
from rerank.data.tokens import open_store, tokenise
from rerank.data.trec import read_run, write_qrels
from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.first_stage import _index, expect_text, first_stage_run
from rerank.models.cross_encoder import CrossEncoder, open_cross_encoder, pretraining_of, save_cross_encoder
from rerank.models.memory import open_budget
from rerank.models.scoring import Passages, score_candidates
from rerank.retrieval.indexed_texts import IndexedTexts
from rerank.retrieval.java import java_facts
from rerank.training.gradients import Loss
from rerank.training.task import FoldWork
from rerank.training.validation import mean_loss
from rerank.types import Candidates, Fold, Qrels, Run
from rerank.utils.files import file_hash
from rerank.utils.progress import log


@dataclass(frozen=True)
class Prepared:
    """`folder` is runs/<collection>; `run` is the first stage's file, `candidates` what it found for every query."""

    folder: Path
    collection: Collection
    run: Path
    candidates: dict[str, Candidates]
    folds: list[Fold]

    @property
    def qrels(self) -> Qrels:
        """All judgments of the collection."""
        return self.collection.qrels


def prepare(config: Config) -> Prepared:
    """Opens the collection, and retrieves the first stage unless it is there.

    Raises UserError for what the user can mend.
    """
    validate(config)
    expect_text(config.collection.source)
    collection = open_collection(config.collection.source)
    folder = Path(config.output.folder) / collection.name
    run_file = first_stage_run(config, collection, folder)
    found = select_candidates(read_run(run_file), collection.qrels, config.first_stage.depth, collection.queries)
    if not collection.has_documents:
        collection = IndexedTexts(collection, _index(config.first_stage, collection, folder))
    return Prepared(folder, collection, run_file, found, _folds(config, collection))


def keep_for_evaluation(prepared: Prepared) -> None:
    """Writes the judgments and the folds where `rerank eval` looks for them.

    Raises UserError where experiments with other folds lie in the same folder.
    """
    path = prepared.folder / "folds.json"
    if path.exists() and any(prepared.folder.glob("*/fold*/test.run")) and read_folds(path) != prepared.folds:
        raise UserError(
            f"{path}: the experiments here have other folds ({len(read_folds(path))}, now {len(prepared.folds)}); "
            "keep --collection.folds, or take another --output.folder"
        )
    write_qrels(prepared.folder / "qrels.txt", prepared.qrels)
    write_folds(path, prepared.folds)


def _folds(config: Config, collection: Collection) -> list[Fold]:
    if collection.official_folds:
        return official_folds([(name.removeprefix("fold"), ids) for name, ids in collection.official_folds])
    return make_folds([q for q in collection.queries if q in collection.qrels], config.collection.folds)


def open_model(config: Config, encoder: str, accelerator: Accelerator) -> tuple[CrossEncoder, Any, int]:
    """The model of an encoder on its device, its tokenizer, and the tokens that fit one passage."""
    opened = model, _, _ = open_cross_encoder(encoder, config.encoder.pooling, config.training.seed)
    model.to(accelerator.device)
    if config.training.gradient_checkpointing:
        model.checkpoint_activations()
    if accelerator.is_main_process:
        if model.is_padded:
            log.info(f"{encoder}: {model.padding_reason}, so its passages are padded, like lengths together")
        elif model.attention_dropout() != "0.0":
            log.info(f"attention dropout: {model.attention_dropout()}")
    return opened


def text_inputs(config: Config, prepared: Prepared, tokenizer: Any, max_length: int) -> PassageBuilder:
    """Tokenises queries and candidates; the documents once, on disk."""
    doc_ids = sorted({doc_id for found in prepared.candidates.values() for doc_id in found.doc_ids})
    store = open_store(
        prepared.folder / "tokens",
        doc_ids,
        lambda doc_ids: (document.text for document in prepared.collection.get(doc_ids)),
        tokenizer,
        config.encoder.max_doc_tokens,
        prepared.collection.fingerprint,
    )
    queries = dict(
        zip(
            prepared.candidates,
            tokenise([prepared.collection.queries[q] for q in prepared.candidates], tokenizer),
            strict=True,
        )
    )
    return PassageBuilder(queries, store, pair_template(tokenizer), max_length)


def truncation_summary(inputs_of: PassageBuilder, max_doc_tokens: int) -> str:
    """A line for people: how many documents and queries are longer than what the model sees of them."""
    told, queries = inputs_of.documents.statistics(), inputs_of.truncated_queries()
    return (
        f"{told['documents']} candidate documents, {told['documents_cut']} cut at {max_doc_tokens} tokens "
        f"({told['tokens_cut'] / max(1, told['tokens']):.1%} of all tokens), {told['documents_empty']} empty; "
        f"{queries} of {len(inputs_of.queries)} queries cut at {inputs_of.max_tokens // 2} tokens"
    )


def text_fold(
    config: Config, prepared: Prepared, encoder: str, loss: Loss, accelerator: Accelerator, fold: Fold
) -> FoldWork:
    """The work of a fold that begins with `encoder`, a name or a folder.

    Raises UserError where there is nothing to learn from, or nothing to measure.
    """
    table = config.training
    model, tokenizer, max_length = open_model(config, encoder, accelerator)
    with accelerator.main_process_first():
        inputs_of = text_inputs(config, prepared, tokenizer, max_length)
    if accelerator.is_main_process:
        log.info(truncation_summary(inputs_of, config.encoder.max_doc_tokens))
    budget = open_budget(table.max_tokens_per_forward, accelerator.device)
    valid, test, latest = _found(prepared, fold.valid), _found(prepared, fold.test), Run()
    for part, found in (("validation", valid), ("test", test)):
        if not any(candidates.query_id in prepared.qrels for candidates in found):
            raise UserError(
                f"fold {fold.name}: none of its {part} queries is judged and has a candidate: nothing to measure"
            )
    trainable, best_passages = _trainable(prepared, fold, accelerator), Passages()

    def validate() -> float:
        latest.clear()
        latest.update(score_candidates(model, inputs_of, valid, accelerator, budget, "validating"))
        if table.measure == "loss":
            return -mean_loss(latest, valid, loss)
        qrels = {q: prepared.qrels[q] for q in fold.valid if q in prepared.qrels}
        (values,) = evaluate(qrels, latest, [table.measure]).values()
        return sum(values.values()) / len(values)

    def test_run(checkpoint: Path) -> Run:
        best, _, _ = open_cross_encoder(str(checkpoint), config.encoder.pooling, table.seed)
        best.to(accelerator.device)
        return score_candidates(best, inputs_of, test, accelerator, budget, "testing", best_passages)

    def judgments() -> dict[str, Qrels]:
        parts = {"train": fold.train, "valid": fold.valid, "test": fold.test}
        return {part: {q: prepared.qrels[q] for q in ids if q in prepared.qrels} for part, ids in parts.items()}

    def facts() -> dict[str, Any]:
        return {
            "pretraining": pretraining_of(model),
            "texts": {**inputs_of.documents.statistics(), "queries_cut": inputs_of.truncated_queries()},
            "documents": {"fingerprint": prepared.collection.fingerprint, "tokens": inputs_of.documents.sha256()},
            "first_stage": {"run": str(prepared.run), "sha256": file_hash(prepared.run)},
            "java": None if config.first_stage.run else java_facts(),
            "max_tokens_per_forward": budget.tokens,
            "passages": f"padded: {model.padding_reason}" if model.padding_reason else "packed",
            "attention_dropout": model.attention_dropout(),
        }

    return FoldWork(
        model,
        model.parameter_groups(table.lr, table.head_lr),
        lambda epoch: epoch_lists(
            trainable, epoch, table.lists_per_epoch, config.lists.relevant, config.lists.non_relevant, table.seed
        ),
        partial(make_batch, inputs_of=inputs_of),
        validate,
        lambda: latest,
        lambda folder: save_cross_encoder(model, tokenizer, folder, config.encoder.max_doc_tokens),
        test_run,
        lambda: best_passages,
        facts,
        judgments,
        budget,
    )


def _found(prepared: Prepared, query_ids: Iterable[str]) -> list[Candidates]:
    """The candidates of those queries that the first stage found something for."""
    return [found for query_id in query_ids if (found := prepared.candidates[query_id]).doc_ids]


def _trainable(prepared: Prepared, fold: Fold, accelerator: Accelerator) -> list[Candidates]:
    found = {query_id: prepared.candidates[query_id] for query_id in fold.train}
    skipped = set(queries_without_relevant(found))
    if skipped and accelerator.is_main_process:
        log.info(
            f"fold {fold.name}: {len(skipped)} of {len(found)} training queries have no relevant candidate: skipped"
        )
    if len(skipped) == len(found):
        raise UserError(
            f"fold {fold.name}: none of its {len(found)} training queries has a relevant candidate: nothing to learn"
        )
    return [candidates for query_id, candidates in found.items() if query_id not in skipped]
