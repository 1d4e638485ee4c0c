"""`rerank serve`: a pipeline or a model behind HTTP."""

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.cli.arguments import OF_RANKING, Budget, Model, milliseconds
from rerank.cli.search import DEFAULTS
from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.utils.errors import UserError
from rerank.utils.parameters import LARGEST_WHOLE, Count, OptionalPath, Whole, at_least, between
from rerank.utils.progress import log

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
    speed: Literal["auto", "exact"] = "auto",
    max_doc_tokens: Annotated[Count | None, at_least(1)] = None,
    max_body_mib: AtLeastOne = 16,
    max_documents: AtLeastOne = 1000,
    max_queue: AtLeastOne = 10_000,
    config: Config,
) -> None:
    """Answers searches and re-ranking requests over HTTP, in the APIs of TEI, Jina, Cohere and vLLM.

    Parameters
    ----------
    host
        The address to listen on; 0.0.0.0 is every address of this machine.
    port
        The port; 0: any that is free.
    api_key_file
        A file with a key on each line: requests need one, in "Authorization: Bearer <key>" or "X-API-Key: <key>".
    budget
        The time of a search, such as 100ms: the last stage of a pipeline that ends in time answers.
    speed
        auto: bf16 or int8 on a CPU if that is faster and ranks alike; exact: float32.
    max_doc_tokens
        Tokens kept of a document, or all; default: those that the checkpoint was trained with.
    max_body_mib
        MiB of a request.
    max_documents
        Documents of a request.
    max_queue
        Documents of all requests that wait; more are answered with 429.
    """
    from rerank.pipelines.open import open_to_serve, served_by
    from rerank.serving.app import make_app
    from rerank.serving.metrics import Metrics
    from rerank.serving.requests import Limits
    from rerank.serving.search_page import Searches
    from rerank.serving.server import address_of, open_socket, read_keys, serve_until_interrupted
    from rerank.serving.service import Service

    if max_documents > max_queue:
        raise UserError(f"--max-documents {max_documents}: one request would not fit into the queue of {max_queue}")
    limits = Limits(max_body_mib * 2**20, max_documents, max_queue)
    keys = read_keys(api_key_file) if api_key_file else ()
    name, metrics = default_name(model), Metrics()
    quick = speed == "auto" and config.training.precision == "auto"
    if speed == "exact" and config.training.precision == "auto":
        config = replace(config, training=replace(config.training, precision="float32"))
    tokens = LARGEST_WHOLE if max_doc_tokens == "all" else max_doc_tokens
    service = searches = None
    with contextlib.ExitStack() as resources:
        bound = resources.enter_context(open_socket(host, port))
        reranker, pipeline = open_to_serve(model, config, tokens, quick)
        if reranker:
            service = Service(reranker, name, limits, metrics)
            resources.callback(service.stop)
            service.rank_passages("query", ["document"])  # the first score takes longer
        if budget and not (pipeline and pipeline.fitted.ms):
            raise UserError(f"--budget {budget}: {model} has no times of its stages; expected a folder of `rerank fit`")
        if pipeline:
            answering = served_by(pipeline, service.rank_passages) if service else pipeline
            search = partial(answering.search, budget=milliseconds(budget))
            searches = Searches(search, pipeline.fitted.world.collection.name, metrics)
            resources.callback(searches.stop)
        if not keys and not host.startswith(("127.", "localhost", "::1")):
            log.info(f"--host {host}: any client that reaches it may send requests; --api-key-file FILE asks for a key")
        address = address_of(bound)
        page = f"\nsearch page at {address}/" if searches else ""
        app = make_app(name, metrics, service, searches, keys)
        serve_until_interrupted(app, bound, f"serving {model} at {address}{page}")


def default_name(model: str) -> str:
    """The name of a model on the hub, or the last three parts of a folder's path.

    >>> default_name("cross-encoder/ms-marco-MiniLM-L6-v2")
    'cross-encoder/ms-marco-MiniLM-L6-v2'
    """
    return "/".join(Path(model).absolute().parts[-3:]).lstrip("/") if Path(model).exists() else model
