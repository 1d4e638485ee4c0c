"""Re-ranks any run with a trained or a hub model (`rerank score`)."""

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator

from rerank.config import Config, validate
from rerank.data.candidates import select_candidates
from rerank.data.collections import Collection, open_collection
from rerank.data.queries import WithQueries
from rerank.data.trec_arrays import read_run_arrays
from rerank.experiments.checks import check_encoder
from rerank.experiments.first_stage import first_stage_run, with_texts
from rerank.experiments.score_parts import parts_folder
from rerank.experiments.score_run import Scoring, is_joined, join_parts, place, plan_parts, score_parts
from rerank.experiments.source_checks import expect_text
from rerank.experiments.text import TextDataset
from rerank.experiments.text_model import truncation_summary
from rerank.experiments.trained_on import as_trained, open_trained_on
from rerank.models.checkpoints import open_trained_cross_encoder, saved_settings
from rerank.retrieval.languages import check_language
from rerank.runs.layout import CollectionFolder
from rerank.runs.output_run import manifest_of, tag_of
from rerank.training.device import open_accelerator
from rerank.training.processes import expect_shared_folder, main_process_first
from rerank.utils.errors import UserError
from rerank.utils.progress import log


def rescore(
    config: Config,
    checkpoint: str,
    run: Path | None,
    out: Path,
    collection: str | Collection | None = None,
    parts: int | None = None,
    part: int | None = None,
) -> Path:
    """Re-ranks the candidates of a run, to `--first-stage.depth`, and writes the run `out` and its manifest.

    The texts of the queries are those of the file `--collection.queries`, else of the collection. Queries without a
    text are left out and logged; judgments are not read. Each part of the run is written to `out` + ".parts" when it is
    scored, and the same call goes on after the last one; in the end they are joined, and the folder is removed.

    Args:
        config: the settings; the pooling and the length of documents of a checkpoint made by training come first.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        run: the TREC run to re-rank. None for BM25's, which is retrieved first unless it exists.
        out: the TREC run to write; `out` + ".json" is its manifest. "-" is standard output, which gets no manifest.
        collection: gives queries and texts: an id or a folder, or an open collection. None for the one that the
            checkpoint was trained on.
        parts: how many parts of about equal size the queries are cut into; None for up to 100, by the tokens. The last
            digits of a score may depend on it, as they do on the other documents of a forward pass.
        part: the only part to score, from 1; None for all. The call that finds all parts there joins them.

    Returns:
        `out`, or the file of the part while others are missing, which is logged.

    Raises:
        UserError: the model has no trained head, the collection is unknown or has no text, no query of the run has a
            text, a file is missing or malformed, `out` cannot be written or gives the run no name, or there are parts
            of another run.
    """
    manifest, tag = manifest_of(out), tag_of(out)
    if part is not None and manifest is None:
        raise UserError("--part: its run needs a file that all parts know; expected --out FILE")
    check_scoring(config, run, collection)
    accelerator = open_accelerator(config.training.precision, config.training.device, tf32=config.training.tf32)
    scoring = open_scoring(config, checkpoint, run, collection, accelerator)
    place(scoring)
    with contextlib.ExitStack() as stack:
        folder = parts_folder(out) if manifest else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "parts"
        plan = plan_parts(scoring, out, folder, tag, parts)
        if part is not None and part > plan.count:
            raise UserError(f"--part {part}/{plan.count}: expected a part from 1 to {plan.count}")
        if part is not None and is_joined(plan, manifest):
            log.info(f"{out}: has all {plan.count} parts already")
            return out
        with main_process_first(accelerator, "plan of the parts"):
            if accelerator.is_main_process:
                plan.open()
        score_parts(scoring, plan, tag, [part] if part else None)
        if accelerator.is_main_process and not join_parts(scoring, plan, manifest):
            if part is None:
                raise UserError(f"{folder}: parts were removed while others were scored; run the command again")
            return plan.file(part)
        return out


def check_scoring(config: Config, run: Path | None, collection: str | Collection | None) -> None:
    """Raises UserError, before a model is opened, for settings that are invalid and inputs that are missing."""
    validate(config)
    check_encoder(config)
    if isinstance(collection, str):
        expect_text(collection)
    check_language(config.collection.language)
    if run and not run.is_file():
        raise UserError(f"{run}: no such file; expected the TREC run to re-rank")


def open_scoring(
    config: Config, checkpoint: str, run: Path | None, collection: str | Collection | None, accelerator: Accelerator
) -> Scoring:
    """Opens the model, on the CPU, and the candidates of the run; retrieves and tokenises what is not there yet."""
    model, tokenizer, max_length, max_doc_tokens = open_trained_cross_encoder(
        checkpoint, config.encoder.pooling, config.encoder.max_doc_tokens, config.encoder.template
    )
    expect_shared_folder(accelerator, Path(config.output.folder))
    with main_process_first(accelerator, "collection, first stage and tokens of the documents"):
        if collection is None:
            collection = open_trained_on(checkpoint, saved_settings(model))
            config = replace(config, collection=as_trained(config.collection, saved_settings(model)))
        elif isinstance(collection, str):
            collection = open_collection(collection)
        config, collection = _with_queries(config, collection)
        config = replace(
            config,
            collection=replace(config.collection, source=collection.source),
            encoder=replace(config.encoder, max_doc_tokens=max_doc_tokens, first_stage_weight=model.first_stage_weight),
            first_stage=replace(config.first_stage, run=str(run) if run else config.first_stage.run),
        )
        dataset, notes = _run_dataset(config, collection)
        passages = dataset.passages(tokenizer, max_length, model.template, model.splitting)
    notes = [*notes, truncation_summary(passages, config.encoder.max_doc_tokens)]
    lists = [candidates for candidates in dataset.candidates.values() if candidates.doc_ids]
    return Scoring(checkpoint, config, collection, dataset, model, passages, lists, accelerator, notes)


def _run_dataset(config: Config, collection: Collection) -> tuple[TextDataset, list[str]]:
    """The data set of the queries of a run, judged or not, and a line for each kind of query that is left out.

    Raises UserError if no query of the run has a text.
    """
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    run, file, notes = first_stage_run(config, collection, folder), config.collection.queries, []
    depth, keep_scores = config.first_stage.depth, config.encoder.first_stage_weight > 0
    found = read_run_arrays(run, depth, collection.queries)
    known = [query_id for query_id in collection.queries if query_id in found]
    if missing := [query_id for query_id in found if query_id not in collection.queries]:
        texts, those = file or collection.source, f"the {len(found)} queries of {run}"
        if not known:
            raise UserError(
                f"{texts}: has the text of none of {those}, such as {missing[0]}; expected a run for this collection, "
                "or --collection.queries, a file of their texts"
            )
        notes.append(
            f"{texts}: has no text of {len(missing)} of {those}, such as {', '.join(missing[:3])}: they are not "
            "re-ranked, and not in the output"
        )
    unused = len(collection.queries) - len(known)
    if unused and file and config.first_stage.run:  # BM25 has said which queries find nothing
        notes.append(
            f"{file}: {unused} of its {len(collection.queries)} queries are not in {run}, so they are not used"
        )
    candidates = select_candidates(found, {}, depth, known, keep_scores)
    collection = with_texts(config, collection, folder)
    return TextDataset(config, folder, collection, run, candidates, config.encoder.name), notes


def _with_queries(config: Config, collection: Collection) -> tuple[Config, Collection]:
    """The settings and the collection with the same queries: those of the settings, else those it was opened with."""
    settings = config.collection
    if isinstance(collection, WithQueries):
        queries, field = settings.queries or collection.file, settings.query_field or collection.field
        settings, collection = replace(settings, queries=queries, query_field=field), collection.collection
    if settings.queries or settings.query_field:
        collection = WithQueries(collection, settings.queries, settings.query_field)
    return replace(config, collection=settings), collection
