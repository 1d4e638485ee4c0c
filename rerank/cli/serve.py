"""`rerank serve`: serves a pipeline or a model over HTTP."""

import contextlib
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.cli.arguments import Budget, Model, NamedCollection, SearchFlags, milliseconds
from rerank.config import EncoderSettings
from rerank.config.flags import only
from rerank.config.settings import often
from rerank.utils.errors import UserError
from rerank.utils.parameters import LARGEST_WHOLE, Count, OptionalPath, PathText, Whole, at_least, between
from rerank.utils.progress import log

AtLeastOne = Annotated[Whole, at_least(1)]


@Parameter(name="*")
@dataclass(frozen=True)
class ServeOptions:
    """The address and the limits of a server, and how its model is computed."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 is every address of this machine."""
    port: Annotated[Whole, between(0, 65535)] = 8080
    """The port; 0: any free port."""
    served_model_name: str = ""
    """The name of the model in answers [default: its name on the hub, or the end of its folder's path]."""
    allow_origin: Annotated[
        tuple[str, ...], Parameter(consume_multiple=(1, None), negative=(), show_default=False)
    ] = ()
    """Origins of web pages that may send requests, such as https://search.example.org, or * for all."""
    keep_alive: AtLeastOne = 65
    """Seconds that an idle connection stays open."""
    reuse_port: Annotated[bool, Parameter(negative=())] = False
    """Listen on the port beside another server with this flag, which can then be stopped without a gap."""
    api_key_file: OptionalPath = None
    """A file with a key on each line: requests need one, in "Authorization: Bearer <key>" or "X-API-Key: <key>"."""
    budget: Budget = ""
    """The time of a search, such as 100ms: the last stage of a pipeline that ends in time answers."""
    speed: Literal["auto", "exact"] = "auto"
    """auto: bf16 on a CPU where it is faster; exact: float32."""
    graph: OptionalPath = None
    """A folder of `rerank export`, such as an int8 graph, that replaces the last cross-encoder."""
    max_doc_tokens: Annotated[Count | None, at_least(1)] = None
    """Tokens kept of a document, or all; default: as the checkpoint was trained."""
    max_body_mib: AtLeastOne = 16
    """MiB of a request."""
    max_documents: AtLeastOne = 1000
    """Documents of a request."""
    max_queue: AtLeastOne = 10_000
    """Documents of all requests that wait; more are answered with 429."""


@dataclass(frozen=True)
class SearchedCollection(NamedCollection):
    """The documents of the search page."""

    source: Annotated[PathText, often("--collection"), Parameter(show_default=False)] = ""
    """The collection that the page at / searches; without it, a checkpoint has no page."""


@dataclass(frozen=True)
class ServeFlags(SearchFlags):
    """The settings of a server."""

    collection: Annotated[SearchedCollection, only("collection", "source", "language")] = SearchedCollection()
    encoder: Annotated[EncoderSettings, only("encoder", "pooling", "template")] = EncoderSettings()


def serve(model: Model, *, options: ServeOptions = ServeOptions(), flags: ServeFlags = ServeFlags()) -> None:
    """Answers searches and re-ranking requests over HTTP, in the APIs of TEI, Jina, Cohere and vLLM."""
    config = flags.config()
    from rerank.pipelines.open import older_than, open_to_serve, served_by
    from rerank.serving.app import make_app
    from rerank.serving.metrics import Metrics
    from rerank.serving.requests import Limits
    from rerank.serving.search_page import Searches
    from rerank.serving.server import address_of, open_socket, read_keys, serve_until_interrupted
    from rerank.serving.service import Service

    limits = Limits(options.max_body_mib * 2**20, options.max_documents, options.max_queue)
    if limits.max_documents > limits.max_queue:
        raise UserError(
            f"--max-documents {limits.max_documents}: a request would not fit into the queue (--max-queue "
            f"{limits.max_queue}); expected at most that"
        )
    keys = read_keys(options.api_key_file) if options.api_key_file else ()
    name, metrics = options.served_model_name or default_name(model), Metrics()
    if options.speed == "exact":
        if (precision := config.training.precision) not in ("auto", "float32"):
            raise UserError(f"--training.precision {precision}: --speed exact is float32; leave one of them out")
        config = replace(config, training=replace(config.training, precision="float32"))
    tokens = LARGEST_WHOLE if options.max_doc_tokens == "all" else options.max_doc_tokens
    service = searches = None
    host, budget = options.host, options.budget
    with contextlib.ExitStack() as resources:
        bound = resources.enter_context(open_socket(host, options.port, options.reuse_port))
        copy_to = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rerank-documents-")))
        reranker, pipeline = open_to_serve(model, config, tokens, options.graph, copy_to)
        if reranker:
            service = Service(reranker, name, limits, metrics)
            resources.callback(service.stop)
            service.warm_up()
        if budget and not (pipeline and pipeline.fitted.ms):
            raise UserError(f"--budget {budget}: {model} has no times of its stages; expected a folder of `rerank fit`")
        if pipeline:
            answering = served_by(pipeline, service.rank_passages) if service else pipeline
            search = partial(answering.find, budget=milliseconds(budget))
            origin = pipeline.fitted.world.collection.origin
            searches = Searches(search, origin.name, metrics, lambda: older_than(origin))
            resources.callback(searches.stop)
        if not keys and not host.startswith(("127.", "localhost", "::1")):
            log.info(f"--host {host}: any client that reaches it may send requests; --api-key-file FILE asks for a key")
        address = address_of(bound)
        page = f"\nsearch page at {address}/" if searches else ""
        app = make_app(name, metrics, service, searches, keys, options.allow_origin)
        serve_until_interrupted(app, bound, f"serving {model} at {address}{page}", options.keep_alive)


def default_name(model: str) -> str:
    """The name of a model on the hub, or the last three components of a folder's path.

    >>> default_name("cross-encoder/ms-marco-MiniLM-L6-v2")
    'cross-encoder/ms-marco-MiniLM-L6-v2'
    """
    return "/".join(Path(model).absolute().parts[-3:]).lstrip("/") if Path(model).exists() else model
