"""A fold of text: queries, documents and an encoder, as `experiment` trains it."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.batches.sampling import epoch_lists
from rerank.budget import open_budget
from rerank.candidates import without_relevant
from rerank.config import Config
from rerank.errors import UserError
from rerank.evaluation import evaluate
from rerank.files import file_hash
from rerank.fold_work import FoldWork
from rerank.gradients import Loss
from rerank.jvm import java_facts
from rerank.models.cross_encoder import open_cross_encoder, save_cross_encoder, warmup_of
from rerank.parts import open_model, text_inputs, what_was_cut
from rerank.preparation import Prepared
from rerank.progress import say
from rerank.scoring import Passages, mean_loss, score
from rerank.types import Candidates, Fold, Qrels, Run


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
        say(what_was_cut(inputs_of, config.encoder.max_doc_tokens))
    budget = open_budget(table.tokens_per_forward, accelerator.device)
    valid, test, latest = _found(prepared, fold.valid), _found(prepared, fold.test), Run()
    for part, found in (("validation", valid), ("test", test)):
        if not any(candidates.query_id in prepared.qrels for candidates in found):
            raise UserError(
                f"fold {fold.name}: none of its {part} queries is judged and has a candidate: nothing to measure"
            )
    trainable, best_passages = _trainable(prepared, fold, accelerator), Passages()

    def validate() -> float:
        latest.clear()
        latest.update(score(model, inputs_of, valid, accelerator, budget, "validating"))
        if table.measure == "loss":
            return -mean_loss(latest, valid, loss)
        qrels = {q: prepared.qrels[q] for q in fold.valid if q in prepared.qrels}
        (values,) = evaluate(qrels, latest, [table.measure]).values()
        return sum(values.values()) / len(values)

    def test_run(checkpoint: Path) -> Run:
        best, _, _ = open_cross_encoder(str(checkpoint), config.encoder.pooling, table.seed)
        best.to(accelerator.device)
        return score(best, inputs_of, test, accelerator, budget, "testing", best_passages)

    def judgments() -> dict[str, Qrels]:
        parts = {"train": fold.train, "valid": fold.valid, "test": fold.test}
        return {part: {q: prepared.qrels[q] for q in ids if q in prepared.qrels} for part, ids in parts.items()}

    def facts() -> dict[str, Any]:
        return {
            "warmup": warmup_of(model),
            "texts": {**inputs_of.documents.statistics(), "queries_cut": inputs_of.queries_cut()},
            "documents": {"fingerprint": prepared.collection.fingerprint, "tokens": inputs_of.documents.sha256()},
            "first_stage": {"run": str(prepared.run), "sha256": file_hash(prepared.run)},
            "java": None if config.first_stage.run else java_facts(),
            "tokens_per_forward": budget.tokens,
            "passages": f"padded: {model.why_padded}" if model.why_padded else "packed",
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
    skipped = set(without_relevant(found))
    if skipped and accelerator.is_main_process:
        say(f"fold {fold.name}: {len(skipped)} of {len(found)} training queries have no relevant candidate: skipped")
    if len(skipped) == len(found):
        raise UserError(
            f"fold {fold.name}: none of its {len(found)} training queries has a relevant candidate: nothing to learn"
        )
    return [candidates for query_id, candidates in found.items() if query_id not in skipped]
