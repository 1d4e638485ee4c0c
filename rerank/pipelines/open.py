"""Opens the folder of a fitted pipeline, or makes a pipeline of BM25 and a cross-encoder."""

import contextlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from rerank.config import Config, sections, validate
from rerank.config.functions import flag_name
from rerank.data.collections import Source
from rerank.experiments.collection import as_trained, expect_text
from rerank.models.export.folder import is_export
from rerank.models.reranker import Reranker
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.folder import is_pipeline, load_fitted
from rerank.pipelines.pipeline import Pipeline
from rerank.pipelines.stages.base import Ranker
from rerank.pipelines.stages.bm25 import BM25Stage
from rerank.pipelines.stages.cross_encoder import CrossEncoderRanker, CrossEncoderStage, RankPassages
from rerank.pipelines.stages.world import World
from rerank.retrieval.words import find_words
from rerank.training.device import open_reranker
from rerank.utils.errors import UserError
from rerank.utils.progress import log

OPENING = 100
"""Characters of the search that opens the files of a server."""

UNCHANGED = {
    f"{section}.{key}": (value,) for section, values in sections(Config()).items() for key, value in values.items()
} | {"collection.source": ("", Config().collection.source), "first_stage.depth": (50, Config().first_stage.depth)}
"""section.key -> the values that count as unchanged; commands have their own defaults for two settings."""


def open_pipeline(path: str, config: Config, copy_to: Path | None = None) -> Pipeline:
    """Opens the pipeline in a folder, or makes one of BM25 and the cross-encoder `path`; loads documents and Java.

    The settings name the collection of a cross-encoder; a fitted pipeline has its own. `copy_to` is a folder for a copy
    of the documents, from which a server reads; it also opens all other files that a search needs, as an update of the
    folder replaces them. Raises UserError if anything cannot be opened.
    """
    if is_pipeline(Path(path)):
        pipeline = Pipeline.of(load_beside(config, Path(path), copy_to=copy_to))
    else:
        pipeline = bm25_and(open_reranker(config, path), path, config, copy_to)
    world = pipeline.fitted.world  # loaded now, as the first query would wait for the documents and for Java
    list(world.texts.get([]))
    find_words("", world.config.collection.language)
    if copy_to and (
        text := next((text for document in world.texts.documents() if (text := document.text.strip())), "")
    ):
        with contextlib.suppress(UserError):  # a pipeline that ranks only the queries of a file
            pipeline.search(text[:OPENING])
    return pipeline


def load_beside(config: Config, folder: Path, acts: Collection[str] = (), copy_to: Path | None = None) -> Fitted:
    """Opens the fitted pipeline of a folder, on the device and in the precision of the settings.

    A pipeline has its own settings: raises UserError if others are changed that `acts` does not name.
    """
    for section, values in sections(config).items():
        for key, value in values.items():
            name = f"{section}.{key}"
            acting = ("training.device", "training.precision", *acts)
            if value not in UNCHANGED.get(name, ()) and name not in acting:
                flag = "--collection" if name == "collection.source" else flag_name(section, key)
                raise UserError(f"{flag} {value}: has no effect: {folder} has its own settings; leave it out")
    return load_fitted(folder, config.training.device, config.training.precision, copy_to=copy_to)


def bm25_and(model: Reranker, checkpoint: str, config: Config, copy_to: Path | None = None) -> Pipeline:
    """A pipeline of BM25 and a model, on the collection of the settings, or on the model's training collection."""
    saved = model.model.settings
    if first_stage := saved.get("first_stage"):
        log.info(
            f"this model was trained to add the scores of {first_stage}; a search adds BM25's, which may change the "
            "ranking"
        )
    config = replace(config, collection=as_trained(config.collection, checkpoint, saved))
    validate(config)
    expect_text(config.collection.source)
    world, first = World.open(config, copy_to), config.first_stage
    bm25 = BM25Stage(first.k1, first.b, depth=first.depth)
    answer = CrossEncoderStage("bm25", checkpoint, trained=False, depth=first.depth)
    rankers: dict[str, Ranker] = {
        "bm25": bm25.open(world, Path()),
        "cross-encoder": CrossEncoderRanker(answer, world, model),
    }
    return Pipeline.of(Fitted({"bm25": bm25, "cross-encoder": answer}, world, rankers))


def _cross_encoders(fitted: Fitted) -> dict[str, CrossEncoderRanker]:
    return {name: ranker for name, ranker in fitted.rankers.items() if isinstance(ranker, CrossEncoderRanker)}


def open_to_serve(
    path: str, config: Config, max_doc_tokens: int | None, graph: Path | None = None, copy_to: Path | None = None
) -> tuple[Reranker | None, Pipeline | None]:
    """Opens the last cross-encoder, if there is one, and the pipeline.

    For a cross-encoder, there is a pipeline only if the settings name a collection. `graph` is the folder of `rerank
    export` that replaces the last cross-encoder; `copy_to` is a folder for a copy of the documents. Raises UserError as
    `open_pipeline`, and for a graph without a cross-encoder.
    """
    if is_pipeline(Path(path)) or config.collection.source:
        pipeline = open_pipeline(path, config, copy_to)
        reranker = next((ranker.reranker for ranker in reversed(_cross_encoders(pipeline.fitted).values())), None)
    else:
        pipeline, reranker = None, open_reranker(config, path)
    if graph:
        if not reranker:
            raise UserError(f"--graph {graph}: {path} has no cross-encoder that it could replace; leave it out")
        if not is_export(str(graph)):
            raise UserError(f"--graph {graph}: no graph; expected a folder that `rerank export` wrote")
        reranker = Reranker.load(graph, device="cpu")
    if reranker and max_doc_tokens:
        reranker.model.max_doc_tokens = max_doc_tokens
    return reranker, pipeline


def served_by(pipeline: Pipeline, rank_passages: RankPassages) -> Pipeline:
    """The pipeline with its last cross-encoder replaced by a function, for searches."""
    name, ranker = list(_cross_encoders(pipeline.fitted).items())[-1]
    rankers = {**pipeline.fitted.rankers, name: replace(ranker, rank_elsewhere=rank_passages)}
    return Pipeline.of(replace(pipeline.fitted, rankers=rankers))


def older_than(origin: Source) -> str:
    """A line if a server has older documents than those of the collection; "" if they are the same."""
    if not getattr(origin, "is_changed", False):
        return ""
    return (
        f"serving the documents that {origin.source} had at the start; it has others now: start the server again, for "
        "a fitted pipeline after `rerank update`"
    )
