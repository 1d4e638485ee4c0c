"""`rerank serve`: a pipeline or a model behind HTTP."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rerank.cli.budget import Budget, milliseconds
from rerank.cli.search import DEFAULTS
from rerank.cli.settings import OF_RANKING, Model, with_settings
from rerank.config import Config
from rerank.config.files import check_file, check_path
from rerank.utils.errors import UserError
from rerank.utils.parameters import LARGEST_WHOLE, Count, OptionalPath, Whole, at_least, between
from rerank.utils.progress import log

if TYPE_CHECKING:
    from starlette.routing import Route

    from rerank.serving.limits import Limits
    from rerank.serving.service import Service

SEARCHED = Parameter(
    help="Documents to search in a page at /, as `rerank search` does; without it there is no page.", show_default=False
)
AtLeastOne = Annotated[Whole, at_least(1)]


@with_settings(*OF_RANKING, flags={"collection.source": SEARCHED}, defaults=DEFAULTS)
def serve(
    model: Model,
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, between(0, 65535)] = 8080,
    api_key_file: OptionalPath = None,
    budget: Budget = "",
    max_doc_tokens: Annotated[Count | None, at_least(1)] = None,
    max_body_mib: AtLeastOne = 16,
    max_documents: AtLeastOne = 1000,
    max_tokens: AtLeastOne = 1_000_000,
    max_queue: AtLeastOne = 10_000,
    config: Config,
) -> None:
    """Answers searches and re-ranking requests over HTTP, the latter in the APIs of TEI, Jina, Cohere and vLLM.

    Parameters
    ----------
    host
        The address to listen on; 0.0.0.0 is every address of this machine.
    port
        The port; 0 for any that is free.
    api_key_file
        A file with a key: requests need the header "Authorization: Bearer <key>".
    budget
        The time of a search, such as 100ms: a pipeline answers with the last of its stages that ends in time.
    max_doc_tokens
        Tokens kept of a document, or all; default: those that the checkpoint was trained with.
    max_body_mib
        MiB of a request.
    max_documents
        Documents of a request.
    max_tokens
        Tokens of all passages of a request.
    max_queue
        Documents of all requests that wait; more are answered with 429.
    """
    check_path("model", model)
    if api_key_file:
        check_file("--api-key-file", api_key_file)
    from rerank.serving.limits import Limits
    from rerank.serving.server import address_of, open_socket, read_key, serve_until_interrupted

    limits = Limits(max_body_mib * 2**20, max_documents, max_tokens, max_queue)
    key = read_key(api_key_file) if api_key_file else None
    with (
        open_socket(host, port) as bound,
        _opened(config, model, limits, max_doc_tokens, milliseconds(budget)) as (service, routes),
    ):
        from rerank.serving.app import make_app

        if key is None and not host.startswith(("127.", "localhost", "::1")):
            log.info(f"--host {host}: any client that reaches it may send requests; --api-key-file FILE asks for a key")
        serve_until_interrupted(make_app(service, key, routes), bound, f"serving {model} at {address_of(bound)}")


@contextlib.contextmanager
def _opened(
    config: Config, model: str, limits: "Limits", max_doc_tokens: int | str | None, budget: float | None
) -> "Iterator[tuple[Service | None, list[Route]]]":
    """The service that re-ranks, None for a pipeline without a cross-encoder, and the routes of the search page."""
    from rerank.pipelines.folder import is_pipeline
    from rerank.pipelines.open import bm25_and, cross_encoder_of, open_pipeline, served_by, warm
    from rerank.serving.search_page import page_routes
    from rerank.serving.service import Service
    from rerank.training.open_reranker import open_reranker

    if is_pipeline(Path(model)):
        pipeline = open_pipeline(model, config)
        reranker = cross_encoder_of(pipeline)
    else:
        reranker, pipeline = open_reranker(config, model), None
        if config.collection.source:
            pipeline = bm25_and(reranker, model, config)
            warm(pipeline)
    service = None
    if reranker:
        if max_doc_tokens is not None:
            reranker.scorer.max_doc_tokens = LARGEST_WHOLE if max_doc_tokens == "all" else int(max_doc_tokens)
        service = Service(reranker, model, limits)
        pipeline = served_by(pipeline, service.rank_passages) if pipeline else None
    if budget is not None and not (pipeline and pipeline.fitted.ms):
        raise UserError(f"--budget {budget:g}ms: {model} has no times of its stages; expected a folder of `rerank fit`")
    routes = (
        page_routes(partial(pipeline.search, budget=budget), pipeline.fitted.world.collection.name) if pipeline else []
    )
    if service is None:
        yield None, routes
        return
    service.start()
    try:
        yield service, routes
    finally:
        service.stop()
