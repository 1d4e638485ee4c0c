"""`rerank score`: any run re-ranked by a trained or a hub model."""

from dataclasses import replace
from pathlib import Path

from rerank.config import Config, sections
from rerank.data.trec import read_run, write_run
from rerank.errors import UserError
from rerank.experiments.first_stage import expect_text
from rerank.experiments.text import prepare, text_inputs, truncation_summary
from rerank.models.cross_encoder import HEAD_FILE, open_cross_encoder, pretraining_of
from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from rerank.runs.manifest import write_manifest
from rerank.training.device import device_name, open_accelerator
from rerank.utils.files import file_hash
from rerank.utils.progress import log


def rescore(config: Config, checkpoint: str, run: Path, out: Path) -> Path:
    """Re-ranks the candidates of a run with a trained or a hub model; the collection gives queries and texts.

    A checkpoint of ours brings its own pooling and cut. What the run was made with goes to `out` + ".json". Raises
    UserError for a model that was never taught to rank.
    """
    if out.is_dir():
        raise UserError(f"--out {out}: is a folder, expected the name of a run file to write")
    expect_text(config.collection.source)
    accelerator = open_accelerator(config.training.precision)
    model, tokenizer, max_length = open_cross_encoder(checkpoint, config.encoder.pooling, config.training.seed)
    if model.head is not None and not (Path(checkpoint) / HEAD_FILE).is_file():
        raise UserError(
            f"{checkpoint}: an encoder without a layer that scores; train it first, or take a cross-encoder"
        )
    taught = getattr(model.encoder.config, "rerank", {})
    model.pooling = taught.get("pooling", config.encoder.pooling)
    config = replace(
        config,
        encoder=replace(config.encoder, max_doc_tokens=taught.get("max_doc_tokens", config.encoder.max_doc_tokens)),
        first_stage=replace(config.first_stage, run=str(run)),
    )
    with accelerator.main_process_first():
        prepared = prepare(config)
        inputs_of = text_inputs(config, prepared, tokenizer, max_length)
    model.to(accelerator.device)
    if accelerator.is_main_process:
        log.info(truncation_summary(inputs_of, config.encoder.max_doc_tokens))
    found = [candidates for candidates in prepared.candidates.values() if candidates.doc_ids]
    if strange := read_run(run).keys() - prepared.candidates.keys():
        log.info(f"{run}: {len(strange)} queries are not among the judged ones of {config.collection.source}: left out")
    budget = open_budget(config.training.max_tokens_per_forward, accelerator.device)
    scored = score_candidates(model, inputs_of, found, accelerator, budget)
    if accelerator.is_main_process:
        write_run(out, scored, "-".join(out.name.removesuffix(".gz").removesuffix(".run").split()))
        facts = {
            "model": checkpoint,
            "pretraining": pretraining_of(model),
            "config": sections(config),
            "documents": {"fingerprint": prepared.collection.fingerprint, "tokens": inputs_of.documents.sha256()},
            "first_stage": {"run": str(run), "sha256": file_hash(run)},
            "device": str(accelerator.device),
            "device_name": device_name(accelerator.device),
            "run": {"sha256": file_hash(out)},
        }
        write_manifest(out.with_name(f"{out.name}.json"), facts)
    return out
