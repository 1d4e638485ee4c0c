"""A cascade (`rerank score A RUN --then B`): a small model scores many candidates, a larger one its best ones."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from accelerate import PartialState

from rerank.config import Config
from rerank.data.collections import Collection, open_collection
from rerank.data.run_scores import strictly_decreasing
from rerank.data.trec import ranked, read_run, write_run
from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.jobs.rescore import rescore
from rerank.models.checkpoints import open_trained_cross_encoder, saved_settings
from rerank.runs.cascade_table import MEASURES, Cost, Stage, cascade_table
from rerank.runs.manifest import HASH, read_manifest, write_manifest
from rerank.runs.output_run import manifest_of, stem_of, tag_of
from rerank.tasks.source_checks import expect_text
from rerank.tasks.trained_on import as_trained, open_trained_on
from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, file_hash, output_target
from rerank.utils.progress import log

THEN_DEPTH = 100
"""The documents of a query that the second model scores, unless the user says otherwise."""


@dataclass(frozen=True)
class Then:
    """The second model, how many documents of each query it scores, and the template of its pairs if it has none."""

    checkpoint: str
    depth: int = THEN_DEPTH
    template: str = ""


class Cascaded(NamedTuple):
    """The run that was written, and what each stage cost and gained as a table."""

    run: Path
    table: str


def rescore_cascade(
    config: Config, checkpoint: str, then: Then, run: Path | None, out: Path, collection: str | Collection | None = None
) -> Cascaded:
    """Re-ranks a run with one model, and that model's best documents with another; writes `out` and its manifest.

    The first model scores `--first-stage.depth` documents of each query, the second one the best `then.depth` of these.
    In `out` they come first, with the second model's scores; below them are the others in the first model's order, with
    its scores moved below. The first model's run is kept next to `out`, as NAME.stage1.run: a cascade that ended in its
    second stage goes on with `rerank score B NAME.stage1.run`.

    The manifest has, for each stage, the documents and tokens that were scored, the seconds that it took and, over the
    judged queries of the run, the means of MEASURES.

    Args:
        config: the settings, which both models share but for the depth and the template.
        checkpoint: the first model, as for `rescore`.
        then: the second one.
        run: the TREC run to re-rank. None for BM25's, which is retrieved first unless it exists.
        out: the TREC run to write.
        collection: gives queries and texts, as for `rescore`. None for the one that the first model was trained on.

    Raises:
        UserError: as `rescore`, for either model; `out` is standard output; `then.depth` is above
            `--first-stage.depth`.
    """
    depth = config.first_stage.depth
    if not 1 <= then.depth <= depth:
        raise UserError(
            f"--then.depth {then.depth}: expected 1 to {depth}, the documents that the first model scores (--depth)"
        )
    if output_target(out) == STANDARD_OUTPUT:
        raise UserError(
            f"--out {out}: with --then, expected the name of a file, as the first model's run is kept next to it"
        )
    manifest = manifest_of(out)
    assert manifest is not None  # as it is not standard output
    tag = tag_of(out)
    first_out, second_out = (out.with_name(f"{stem_of(out)}.stage{number}.run") for number in (1, 2))
    for stage_out in (first_out, second_out):
        manifest_of(stage_out)
    config, collection = _open(config, checkpoint, then, collection)
    qrels = collection.qrels
    log.info(f"stage 1: {checkpoint} scores the first {depth} documents of each query")
    start = time.monotonic()
    rescore(config, checkpoint, run, first_out, collection)
    PartialState().wait_for_everyone()  # the main process has written the run that all read now
    seconds = [time.monotonic() - start]
    log.info(f"stage 2: {then.checkpoint} scores the first {then.depth} of these; {first_out} has stage 1")
    second = replace(
        config,
        first_stage=replace(config.first_stage, depth=then.depth),
        encoder=replace(config.encoder, template=then.template),
    )
    start = time.monotonic()
    rescore(second, then.checkpoint, first_out, second_out, collection)
    seconds.append(time.monotonic() - start)
    if not PartialState().is_main_process:
        return Cascaded(out, "")
    above, below = read_run(second_out), read_run(first_out)
    first_facts, second_facts = (_facts(stage_out) for stage_out in (first_out, second_out))
    joined = join(above, below)
    write_run(out, joined, tag)
    judged = {query_id: qrels[query_id] for query_id in below if qrels.get(query_id)}
    first_stage = Path(first_facts["first_stage"]["run"])
    stages: list[Stage] = [
        {"run": str(first_stage), "depth": depth, "means": _means(read_run(first_stage), judged)},
        {
            "model": checkpoint,
            "run": str(first_out),
            "sha256": first_facts["run"]["sha256"],
            "depth": depth,
            "cost": _cost(below, first_facts, seconds[0]),
            "means": _means(below, judged),
        },
        {
            "model": then.checkpoint,
            "run": str(out),
            "sha256": file_hash(out),
            "depth": then.depth,
            "cost": _cost(above, second_facts, seconds[1]),
            "means": _means(joined, judged),
        },
    ]
    facts = {**second_facts, "run": {"sha256": file_hash(out)}}
    facts["cascade"] = {"stages": stages, "judged": len(judged), "first": first_facts}
    write_manifest(manifest, facts)
    for file in (second_out, manifest_of(second_out)):
        if file is not None:
            file.unlink()
    return Cascaded(out, cascade_table(stages, len(judged)))


def join(above: Run, below: Run) -> Run:
    """The documents of `above`, and below them the others of `below` in its order, for every query of `below`.

    The scores of `above` stay. Those of the others are moved down by one number for each query, so that the best is 1
    below the lowest of `above`; all strictly decrease as float32.

    >>> join({"q": {"a": 5.0, "b": 4.5}}, {"q": {"a": 1.0, "b": 2.0, "c": 0.5, "d": 0.25}})
    {'q': {'a': 5.0, 'b': 4.5, 'c': 3.5, 'd': 3.25}}
    """
    joined: Run = {}
    for query_id, others in below.items():
        scores = above.get(query_id, {})
        rest = [doc_id for doc_id in ranked(others) if doc_id not in scores]
        best = ranked(scores)
        shift = scores[best[-1]] - 1 - others[rest[0]] if best and rest else 0.0
        values = [*(scores[doc_id] for doc_id in best), *(others[doc_id] + shift for doc_id in rest)]
        joined[query_id] = dict(zip([*best, *rest], strictly_decreasing(values, f"query {query_id}"), strict=True))
    return joined


def _open(
    config: Config, checkpoint: str, then: Then, collection: str | Collection | None
) -> tuple[Config, Collection]:
    """The settings with what the first model says of its collection, and the collection.

    Both models are opened, so that one that cannot score ends the command before the other one has.
    """
    encoder = config.encoder
    for name, template in ((then.checkpoint, then.template), (checkpoint, encoder.template)):
        opened = open_trained_cross_encoder(name, encoder.pooling, encoder.max_doc_tokens, template)
    saved = saved_settings(opened.model)
    if collection is None:
        config = replace(config, collection=as_trained(config.collection, saved))
        return config, open_trained_on(checkpoint, saved)
    if isinstance(collection, str):
        expect_text(collection)
        collection = open_collection(collection)
    return config, collection


def _facts(out: Path) -> dict[str, Any]:
    """The manifest of a stage's run, without what every manifest says of itself."""
    manifest = manifest_of(out)
    assert manifest is not None
    facts = read_manifest(manifest)
    return {name: value for name, value in facts.items() if name != HASH}


def _cost(scored: Run, facts: dict[str, Any], seconds: float) -> Cost:
    documents = sum(map(len, scored.values()))
    return {"queries": len(scored), "documents": documents, "tokens": facts["tokens"], "seconds": round(seconds, 3)}


def _means(run: Run, judged: Qrels, measures: Sequence[str] = MEASURES) -> dict[str, float]:
    """The means over the judged queries; {} if there are none."""
    if not judged or run.keys().isdisjoint(judged):
        return {}
    return {measure: fmean(values.values()) for measure, values in evaluate(judged, run, measures).items()}
