"""Re-ranks any run with a trained or a hub model (`rerank score`)."""

from dataclasses import replace
from pathlib import Path

from rerank.config import Config, sections, validate
from rerank.data.candidate_lists import CandidateLists
from rerank.data.collections import Collection, open_collection
from rerank.data.queries import WithQueries
from rerank.data.run_arrays import read_run_arrays
from rerank.data.trec import write_run
from rerank.experiments.checks import check_encoder
from rerank.experiments.first_stage import first_stage_run, with_texts
from rerank.experiments.source_checks import expect_text
from rerank.experiments.text import TextDataset
from rerank.experiments.text_model import truncation_summary
from rerank.experiments.trained_on import as_trained, open_trained_on
from rerank.models.checkpoints import open_trained_cross_encoder, pretraining_of, saved_settings
from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from rerank.retrieval.languages import check_language
from rerank.runs.layout import CollectionFolder
from rerank.runs.manifest import write_manifest
from rerank.training.device import arithmetic, device_name, open_accelerator, precision_facts
from rerank.training.processes import expect_shared_folder, main_process_first
from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, check_output, file_hash, output_target, short_hash
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log


def rescore(
    config: Config, checkpoint: str, run: Path | None, out: Path, collection: str | Collection | None = None
) -> Path:
    """Re-ranks the candidates of a run, to `--first-stage.depth`, and writes the run `out` and its manifest.

    The texts of the queries are those of the file `--collection.queries`, else of the collection. Queries without a
    text are left out and logged; judgments are not read.

    Args:
        config: the settings; the pooling and the length of documents of a checkpoint made by training come first.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        run: the TREC run to re-rank. None for BM25's, which is retrieved first unless it exists.
        out: the TREC run to write; `out` + ".json" is its manifest. "-" is standard output, which gets no manifest.
        collection: gives queries and texts: an id or a folder, or an open collection. None for the one that the
            checkpoint was trained on.

    Returns:
        `out`.

    Raises:
        UserError: the model has no trained head, the collection is unknown or has no text, no query of the run has a
            text, a file is missing or malformed, or `out` cannot be written or gives the run no name.
    """
    manifest, tag = _manifest(out), _tag(out)
    validate(config)
    check_encoder(config)
    if isinstance(collection, str):
        expect_text(collection)
    check_language(config.collection.language)
    if run and not run.is_file():
        raise UserError(f"{run}: no such file; expected the TREC run to re-rank")
    accelerator = open_accelerator(config.training.precision, config.training.device, tf32=config.training.tf32)
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
            encoder=replace(config.encoder, max_doc_tokens=max_doc_tokens),
            first_stage=replace(config.first_stage, run=str(run or config.first_stage.run)),
        )
        dataset, notes = _run_dataset(config, collection)
        passages = dataset.passages(tokenizer, max_length, model.template)
    for line in model.place(accelerator.device, accelerator.autocast):
        if accelerator.is_main_process:
            log.info(line)
    if accelerator.is_main_process:
        for line in (*notes, truncation_summary(passages, config.encoder.max_doc_tokens)):
            log.info(line)
    lists = [candidates for candidates in dataset.candidates.values() if candidates.doc_ids]
    memory = open_budget(config.training.max_tokens_per_forward, accelerator.device)
    scored = score_candidates(model, passages, lists, accelerator, memory)
    if accelerator.is_main_process:
        write_run(out, scored, tag)
        if manifest is None:
            return out
        facts = {
            "model": checkpoint,
            "pretraining": pretraining_of(model),
            "config": sections(config),
            "documents": {"fingerprint": collection.fingerprint, "tokens": passages.documents.sha256()},
            "first_stage": {"run": str(dataset.first_stage), "sha256": kept_hash(dataset.first_stage)},
            "queries": short_hash(*((query_id, dataset.collection.queries[query_id]) for query_id in scored)),
            "device": str(accelerator.device),
            "device_name": device_name(accelerator.device),
            "arithmetic": arithmetic(),
            **precision_facts(accelerator),
            "run": {"sha256": file_hash(out)},
        }
        write_manifest(manifest, facts)
    return out


def _run_dataset(config: Config, collection: Collection) -> tuple[TextDataset, list[str]]:
    """The data set of the queries of a run, judged or not, and a line for each kind of query that is left out.

    Raises UserError if no query of the run has a text.
    """
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    run, file, notes = first_stage_run(config, collection, folder), config.collection.queries, []
    found = read_run_arrays(run, config.first_stage.depth, collection.queries)
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
    candidates = CandidateLists(found, {}, known)
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


def _tag(out: Path) -> str:
    """The last column of the run `out`: its name without .run and .gz. Raises UserError if nothing is left."""
    if output_target(out) == STANDARD_OUTPUT:
        return "rerank"
    name = out.name.encode(errors="replace").decode()  # a name need not be UTF-8, but a run is
    tag = "-".join(name.removesuffix(".gz").removesuffix(".run").split())
    if not tag:
        raise UserError(f"--out {out}: expected a name before .run, which is the last column of the run")
    return tag


def _manifest(out: Path) -> Path | None:
    """The manifest of the run `out`; None for standard output. Raises UserError if one of the two cannot be written."""
    check_output(out)
    if output_target(out) == STANDARD_OUTPUT:
        return None
    manifest = out.with_name(f"{out.name}.json")
    check_output(manifest, "--out: its manifest")
    return manifest
