"""`rerank search`: the documents that a pipeline or a trained model ranks first for a query."""

from typing import Annotated

from cyclopts import Parameter

from rerank.cli.arguments import OF_CHECKPOINT, OF_RANKING, Model
from rerank.cli.hit_lines import print_hits
from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.data.queries import check_query
from rerank.utils.parameters import Whole, at_least
from rerank.utils.progress import log

DEFAULTS = {"collection.source": "", "first_stage.depth": 50}
"""A search shows few documents, and somebody waits for them."""


@with_settings(*OF_RANKING, "encoder.max_doc_tokens", flags={"collection.source": OF_CHECKPOINT}, defaults=DEFAULTS)
def search(
    model: Model,
    query: str,
    *,
    top: Annotated[Whole, at_least(1)] = 10,
    explain: Annotated[bool, Parameter(negative=())] = False,
    config: Config,
) -> None:
    """Searches a collection with a fitted pipeline, or with a cross-encoder that re-ranks BM25's candidates.

    Parameters
    ----------
    query
        What to search for.
    top
        How many documents to show.
    explain
        Show the rank and the score that each stage gives a document, and which words late interaction matched.
    """
    check_query(query)
    from rerank.pipelines.open import open_pipeline

    pipeline = open_pipeline(model, config)
    hits = pipeline.search(query, top, explain=explain)
    if not hits:
        log.info("no document has a word of the query; stop words do not count")
    print_hits(hits, list(pipeline.stages) if explain else ())
