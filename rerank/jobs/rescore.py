"""Re-ranks any run with a trained or a hub model, part by part (`rerank score`)."""

import contextlib
import tempfile
from pathlib import Path

from rerank.config import Config, sections
from rerank.config.files import check_file
from rerank.jobs.parts import Parts
from rerank.jobs.score_parts import plan_parts, score_on_cluster, score_parts
from rerank.jobs.scoring import Scoring, open_scoring
from rerank.runs.manifest import read_manifest, write_manifest
from rerank.runs.output_run import manifest_of, tag_of
from rerank.tasks.checks import check_encoder
from rerank.tasks.source_checks import expect_text
from rerank.training.device import open_accelerator
from rerank.training.processes import expect_one_process
from rerank.utils.cluster.jobs import LOCAL, expect_engine
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash
from rerank.utils.progress import log


def rescore(
    config: Config,
    checkpoint: str,
    run: Path | None,
    out: Path,
    parts: int | None = None,
    part: int | None = None,
    engine: str = LOCAL,
) -> Path | None:
    """Re-ranks the candidates of a run, to `--first-stage.depth`, and writes the run `out` and its manifest.

    The texts of the queries are those of the file `--collection.queries`, else of the collection. Queries without a
    text are left out and logged; judgments are not read. Each part of the run is written to `out` + ".parts-<hash>"
    when it is scored, and the same call goes on after the last one; in the end they are joined, and the folder is
    removed.

    Args:
        config: the settings; the pooling and the length of documents of a checkpoint made by training come first, and
            without a collection it is the one that the checkpoint was trained on.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        run: the TREC run to re-rank. None for BM25's, which is retrieved first unless it exists.
        out: the TREC run to write; `out` + ".json" is its manifest. "-" is standard output, which gets no manifest.
        parts: how many parts the queries are cut into; None for up to 100, by the tokens. The last digits of a score
            may depend on it, as they do on the other documents of a forward pass.
        part: the only part to score, from 1; None for all. The call that finds all parts there joins them.
        engine: "local", or the Ray cluster that scores the parts: "ray" or "ray://HOST:PORT".

    Returns:
        `out`; the file of the part while others are missing, which is logged; or None if a part has failed on the
        cluster, which is printed, and which the same call scores again.

    Raises:
        UserError: the model has no trained head, the collection is unknown or has no text, no query of the run has a
            text, a file is missing or malformed, `out` cannot be written or gives the run no name, or the cluster is
            lost.
    """
    manifest, here = manifest_of(out), engine == LOCAL
    tag_of(out)  # so that a name that gives no tag is refused before any work
    if manifest is None and (part is not None or not here):
        flag = "--part" if here else f"--on {engine}"
        raise UserError(f"{flag}: the parts of a run are in a folder beside it; expected --out FILE")
    expect_engine(engine)
    check_encoder(config)
    if config.collection.source:
        expect_text(config.collection.source)
    if run:
        check_file("run", run)
    if here:
        accelerator = open_accelerator(config.training.precision, config.training.device, tf32=config.training.tf32)
    else:
        accelerator = open_accelerator(device="cpu")  # this process scores nothing
        expect_one_process(accelerator, f"--on {engine}:")
    scoring = open_scoring(config, checkpoint, run, accelerator)
    with contextlib.ExitStack() as stack:
        folder = None if manifest else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "parts"
        plan = plan_parts(scoring, out, parts, folder)
        if part is not None and _is_joined(plan, manifest):
            log.info(f"{out}: has all {len(plan.numbers)} parts already")
            return out
        if here:
            score_parts(scoring, plan, plan.numbers if part is None else [part])
        elif not score_on_cluster(config, scoring, run, plan, engine):
            return None
        if accelerator.is_main_process and not _join(scoring, plan, manifest):
            if part is None:
                raise UserError(f"{plan.folder}: parts were removed while others were scored; run the command again")
            return plan.file(part)
        return out


def _join(scoring: Scoring, plan: Parts, manifest: Path | None) -> bool:
    """Joins the parts, writes the manifest and removes the parts; returns False, and logs it, if some are missing."""
    try:
        device = plan.join()
    except FileNotFoundError:
        if _is_joined(plan, manifest):  # by another process
            return True
        missing = plan.missing(plan.numbers)
        shown = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        log.info(f"{plan.out}: is written when all {len(plan.numbers)} parts are there; missing: {shown}")
        return False
    if manifest is not None:
        facts = {
            "model": scoring.checkpoint,
            "pretraining": scoring.model.settings.get("pretraining"),
            "config": sections(scoring.config),
            "documents": {"fingerprint": scoring.collection.fingerprint, "tokens": plan.facts["documents"]},
            "first_stage": {"run": str(scoring.dataset.first_stage), "sha256": plan.facts["run"]},
            "queries": plan.facts["queries"],
            "tokens": int(scoring.tokens.sum()),
            "parts": len(plan.numbers),
            "plan": plan.plan,
            **device,
            "run": {"sha256": file_hash(plan.out)},
        }
        write_manifest(manifest, facts)
    plan.remove()
    return True


def _is_joined(plan: Parts, manifest: Path | None) -> bool:
    """Whether the run of this plan is there, with its manifest."""
    try:
        facts = read_manifest(manifest) if manifest else {}
        return facts.get("plan") == plan.plan and facts.get("run") == {"sha256": file_hash(plan.out)}
    except (OSError, UserError):  # it is missing, or is replaced right now
        return False
