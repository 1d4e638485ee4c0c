"""`rerank search`: the documents that a trained model ranks first for a query."""

from functools import partial
from typing import Annotated

from rerank.cli.checks import check_path
from rerank.cli.hit_lines import print_hits
from rerank.cli.settings import OF_CHECKPOINT, with_settings
from rerank.config import Config, validate
from rerank.data.queries import check_query
from rerank.utils.parameters import PathText, Whole, at_least
from rerank.utils.progress import log

SETTINGS = (
    "collection.source",
    "collection.language",
    "first_stage.index",
    "first_stage.depth",
    "first_stage.k1",
    "first_stage.b",
    "first_stage.threads",
    "encoder.pooling",
    "encoder.template",
    "training.device",
    "training.precision",
    "training.max_tokens_per_forward",
    "output.folder",
)
"""The settings that act on a search."""
DEFAULTS = {"collection.source": "", "first_stage.depth": 50}
"""A search shows few documents, and somebody waits for them."""


@with_settings(*SETTINGS, "encoder.max_doc_tokens", flags={"collection.source": OF_CHECKPOINT}, defaults=DEFAULTS)
def search(
    checkpoint: PathText,
    query: str,
    *,
    top: Annotated[Whole, at_least(1)] = 10,
    config: Config,
) -> None:
    """Searches a collection: BM25 retrieves, and a trained model or a cross-encoder of the hub re-ranks.

    Parameters
    ----------
    checkpoint
        runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging Face cross-encoder.
    query
        What to search for.
    top
        How many documents to show.
    """
    validate(config)
    check_path("checkpoint", checkpoint)
    check_query(query)
    from rerank.jobs.search import as_model_was_trained, open_searched, say_other_first_stage
    from rerank.jobs.search import search as search_collection
    from rerank.training.open_reranker import open_reranker

    model = open_reranker(config, checkpoint)
    say_other_first_stage(model)
    if not config.collection.source:
        config = as_model_was_trained(config, checkpoint, model)
    searched = open_searched(config)
    hits = search_collection(query, searched, partial(model.rank_passages, show=True), top)
    if not hits:
        log.info(f"no document of {searched.collection.source} has a word of the query; stop words do not count")
    print_hits(hits)
