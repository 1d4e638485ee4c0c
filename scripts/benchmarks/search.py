"""Benchmark: the latency of a fitted pipeline, stage by stage and behind `rerank serve`; and of a peer made by hand."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import torch

from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.collections import open_collection
from rerank.data.embeddings import COSINE, open_embeddings
from rerank.data.types import Fold, Run
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.folder import save_fitted
from rerank.pipelines.graph import in_order, prefix
from rerank.pipelines.pipeline import Pipeline
from rerank.pipelines.stages import CrossEncoderStage
from rerank.pipelines.stages.base import Stage, below
from rerank.pipelines.stages.world import World
from rerank.pipelines.vectors import vectors_folder
from rerank.utils.errors import UserError
from scripts.benchmarks.report import Count, Out, publish
from scripts.benchmarks.search_collection import CopyEncoder, write_collection
from scripts.benchmarks.serving_load import WAIT, server_process
from scripts.benchmarks.workload import SHAPES, make_encoder

CLIENTS = (1, 8)
WARMING = 60
"""Queries that are asked before any is measured: Java compiles what runs often."""
RERANKED = 20
"""Documents that the cross-encoder ranks."""
PEER_DEPTH = 1000
COLUMNS = {"what": "", "p50 (ms)": ",.1f", "p95 (ms)": ",.1f", "queries/s": ",.1f"}
NOTES = (
    "Stages one after the other in one process, whose query vectors are not kept; /search with its ten hits. Weights "
    f"are equal and the adapter is not trained; the cross-encoder ranks {RERANKED} documents.",
    "peer: bm25s, the exact search of usearch and sentence-transformers in one process, without snippets.",
)


def search(
    *collections: str,
    encoder: str,
    documents: Count = 20_000,
    queries: Count = 200,
    folder: Path = Path("search-benchmark"),
    precision: Literal["auto", "float32", "bf16"] = "auto",
    cross_encoder: str = "",
    out: Out = None,
) -> None:
    """Milliseconds of a query to a pipeline, stage by stage and behind `rerank serve`, alone and at eight clients.

    Parameters
    ----------
    collections
        Collections whose documents are copied, with other words in them, and whose queries are asked.
    encoder
        The bi-encoder of the pipeline, which encodes the originals only.
    documents
        Documents to search.
    queries
        Queries that are measured, after 60 that are not.
    folder
        Where the documents, the index and the vectors are kept for the next time.
    precision
        That of the cross-encoder.
    cross_encoder
        A trained cross-encoder; by default one of MiniLM's shape with random weights.
    """
    home = folder / str(documents)
    if not (home / "collection").exists():
        write_collection(home / "collection", collections, documents)
    config = Config(CollectionSettings(str(home / "collection")), output=OutputSettings(str(home / "runs")))
    world = World.open(config)
    originals = sum(open_collection(source).count() for source in collections)
    copies = CopyEncoder(world.encoder(encoder), originals)
    place = vectors_folder(copies, world.texts, world.folder)  # type: ignore[arg-type]
    cosine = copies.compares == COSINE
    store = open_embeddings(place, world.texts.documents, world.texts.count(), copies.encode_documents, cosine)
    texts = list(islice(cycle(world.collection.queries.values()), WARMING + queries))
    stages = prefix(default_stages(encoder, "", documents), "adapter")
    model = cross_encoder or str(folder / "cross-encoder")
    if not cross_encoder and not Path(model).exists():
        make_encoder(Path(model), own_head=True, **SHAPES["minilm"])
    with_model = stages | {"cross-encoder": CrossEncoderStage("adapter", model, trained=False, depth=RERANKED)}
    pipelines = {"bm25": prefix(stages, "bm25"), "adapter": stages, "cross-encoder": with_model}
    rows = []
    for name, some in pipelines.items():
        place = home / f"pipeline-{name}"
        save_fitted(untrained(some, world, home), place)
        if name == "adapter":
            rows += stage_rows(Pipeline.load(place).fitted, texts)
        with server_process(str(place), "--training.precision", precision) as url:
            for clients in CLIENTS:
                seconds, taken = asked(url, texts, clients)
                rows.append(_row(f"/search up to {name}, {clients} client{'s' * (clients > 1)}", seconds, taken))
    rows += peer_rows(home / "collection", store.vectors[store.offsets[:-1]], encoder, texts)
    settings = {
        "documents": documents,
        "queries": queries,
        "encoder": encoder,
        "precision": precision,
        "cross_encoder": cross_encoder,
        "collections": list(collections),
    }
    title = f"Search, {documents:,} documents"
    publish(title, rows, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def untrained(stages: Mapping[str, Stage], world: World, folder: Path) -> Fitted:
    """The pipeline of stages that have no query to learn from."""
    stages, nothing = in_order(stages), Fold("none", (), (), ())
    rankers = {name: of.fit(world, nothing, [{} for _ in below(of)], folder) for name, of in stages.items()}
    return Fitted(stages, world.changed(queries={}), rankers)


def stage_rows(pipeline: Fitted, texts: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each stage, and for the encoding of the query, which is part of the first stage that needs it."""
    seconds: dict[str, list[float]] = {name: [] for name in pipeline.stages}
    for text in texts:
        pipeline.world._query_vectors.clear()
        runs: dict[str, Run] = {}
        for name, settings in pipeline.stages.items():
            start = time.perf_counter()
            runs[name] = pipeline.rankers[name].rank({"": text}, [runs[one] for one in below(settings)])
            seconds[name].append(time.perf_counter() - start)
    return [_row(f"stage {name}", of[WARMING:]) for name, of in seconds.items()]


def asked(url: str, texts: Sequence[str], clients: int) -> tuple[list[float], float]:
    """The seconds of each answer of a server to that many clients, and of all together, after the warming ones."""
    with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as connection, ThreadPoolExecutor(clients) as pool:
        for text in texts[:WARMING]:
            _ask(connection, text)
        start = time.perf_counter()
        seconds = list(pool.map(partial(_ask, connection), texts[WARMING:]))
        return seconds, time.perf_counter() - start


def _ask(connection: httpx.Client, text: str) -> float:
    start = time.perf_counter()
    response = connection.post("/search", json={"query": text})
    if response.status_code != 200 or not response.json()["hits"]:
        raise UserError(f"/search: expected hits, got {response.status_code}: {response.text[:200]}")
    return time.perf_counter() - start


def peer_rows(collection: Path, vectors: np.ndarray, encoder: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The row of the peer, with the vectors of the documents' first passages; none if its packages are not there."""
    if not all(map(find_spec, ("bm25s", "usearch", "Stemmer"))):
        return []
    find, seconds = open_peer(collection, vectors, encoder), []
    for text in texts:
        start = time.perf_counter()
        find(text)
        seconds.append(time.perf_counter() - start)
    return [_row("peer, bm25 + dense + fusion", seconds[WARMING:])]


def open_peer(collection: Path, vectors: np.ndarray, encoder: str) -> Callable[[str], list[str]]:
    """A function that finds ten documents for a query, as one would write it by hand.

    vectors: (documents, dimensions), one for each document.
    """
    import bm25s  # no extra of rerank has these
    import Stemmer
    from sentence_transformers import SentenceTransformer
    from usearch.index import MetricKind
    from usearch.index import search as search_vectors

    documents = list(open_collection(str(collection)).documents())
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=1.2, b=0.75)
    tokens = bm25s.tokenize([of.text for of in documents], stopwords="en", stemmer=stemmer, show_progress=False)
    index.index(tokens, show_progress=False)
    model = SentenceTransformer(encoder, device="cpu")

    def find(query: str) -> list[str]:
        words = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = index.retrieve(words, k=PEER_DEPTH, show_progress=False)
        vector = model.encode(query, show_progress_bar=False)
        found = search_vectors(vectors, vector, PEER_DEPTH, MetricKind.IP, exact=True)
        fused = np.zeros(len(documents))
        fused[rows[0]] += scores[0] / (scores[0].max() or 1)
        fused[found.keys] += 1 - found.distances
        return [documents[row].doc_id for row in np.argsort(-fused)[:10]]

    return find


def _row(what: str, seconds: Sequence[float], taken: float | None = None) -> dict[str, Any]:
    p50, p95 = (1000 * float(np.percentile(seconds, share)) for share in (50, 95))
    rate = len(seconds) / (taken or sum(seconds))
    return {"what": what, "p50 (ms)": p50, "p95 (ms)": p95, "queries/s": rate}
