"""`rerank retrieve`: BM25 on a collection."""

from rerank.cli.settings import with_settings
from rerank.config import Config


@with_settings("collection", "first_stage", "training.device", "output.folder")
def retrieve(*, config: Config) -> None:
    """Retrieves the candidates of every query with BM25."""
    from rerank.tasks.first_stage import retrieve

    print(retrieve(config))
