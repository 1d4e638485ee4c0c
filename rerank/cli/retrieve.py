"""`rerank retrieve`: BM25, or a bi-encoder, on a collection."""

from rerank.cli.settings import with_settings
from rerank.config import Config


@with_settings("collection", "first_stage", "training.device", "output.folder")
def retrieve(*, config: Config) -> None:
    """Retrieves the candidates of every query with BM25, or with a bi-encoder (--first-stage.encoder)."""
    from rerank.jobs.retrieve import retrieve

    print(retrieve(config))
