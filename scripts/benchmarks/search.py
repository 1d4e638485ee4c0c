"""Benchmark: the latency of a fitted pipeline, stage by stage and behind `rerank serve`; and of a peer made by hand."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.collections import open_collection
from rerank.data.types import Fold, Run
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.folder import save_fitted
from rerank.pipelines.graph import in_order, prefix
from rerank.pipelines.pipeline import Pipeline
from rerank.stages import CrossEncoder
from rerank.stages.base import Stage, below
from rerank.stages.world import World
from rerank.tasks.vectors import open_vectors
from rerank.utils.errors import UserError
from scripts.benchmarks.report import check, publish
from scripts.benchmarks.search_collection import CopyEncoder, write_collection
from scripts.benchmarks.serving_load import WAIT, server_process
from scripts.benchmarks.workload import SHAPES, make_encoder

CLIENTS = (1, 8)
WARMING = 60
"""Queries that are asked before any is measured: Java compiles what runs often."""
RERANKED = 20
"""Documents that the cross-encoder ranks."""
COLUMNS = {"what": "", "p50 (ms)": ",.1f", "p95 (ms)": ",.1f", "queries/s": ",.1f"}
NOTES = (
    "Stages one after the other in one process, whose query vectors are not kept; /search with its ten hits. Weights "
    f"are equal and the adapter is not trained; the cross-encoder has random weights and ranks {RERANKED} documents.",
    "peer: bm25s, the exact search of usearch and sentence-transformers in one process, without snippets.",
)


def bench_search(
    sources: Sequence[str],
    encoder: str,
    documents: int,
    queries: int,
    folder: Path,
    precision: str,
    out: Path | None = None,
) -> str:
    """Measures searches among copies of the documents of the sources, kept in `folder`, and returns the table."""
    check(1, out)
    home = folder / str(documents)
    if not (home / "collection").exists():
        write_collection(home / "collection", sources, documents)
    config = Config(CollectionSettings(str(home / "collection")), output=OutputSettings(str(home / "runs")))
    world = World.open(config)
    originals = sum(open_collection(source).count() for source in sources)
    store = open_vectors(CopyEncoder(world.encoder(encoder), originals), world.texts, world.folder)  # type: ignore
    texts = list(islice(cycle(world.collection.queries.values()), WARMING + queries))
    stages = default_stages(encoder, "", documents)
    model = folder / "cross-encoder"
    if not model.exists():
        make_encoder(model, own_head=True, **SHAPES["minilm"])
    with_model = stages | {"cross-encoder": CrossEncoder("adapter", str(model), trained=False, depth=RERANKED)}
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
        "collections": list(sources),
    }
    title = f"Search, {documents:,} documents"
    return publish(title, rows, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def untrained(stages: Mapping[str, Stage], world: World, folder: Path) -> Fitted:
    """The pipeline of stages that have no query to learn from."""
    stages, nothing = in_order(stages), Fold("none", (), (), ())
    rankers = {name: of.fit(world, nothing, [{} for _ in below(of)], folder) for name, of in stages.items()}
    return Fitted(stages, replace(world, queries={}), rankers)


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
    with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as connection:
        for text in texts[:WARMING]:
            _ask(connection, text)
    left, seconds = iter(texts[WARMING:]), list[float]()
    lock = threading.Lock()

    def client() -> None:
        with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as connection:
            while True:
                with lock:
                    text = next(left, None)
                if text is None:
                    return
                seconds.append(_ask(connection, text))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
    from scripts.benchmarks.search_peer import open_peer

    return [_row("peer, bm25 + dense + fusion", _timed(open_peer(collection, vectors, encoder), texts))]


def _timed(search: Callable[[str], object], texts: Sequence[str]) -> list[float]:
    seconds = []
    for text in texts:
        start = time.perf_counter()
        search(text)
        seconds.append(time.perf_counter() - start)
    return seconds[WARMING:]


def _row(what: str, seconds: Sequence[float], taken: float | None = None) -> dict[str, Any]:
    p50, p95 = (1000 * float(np.percentile(seconds, share)) for share in (50, 95))
    rate = len(seconds) / (taken or sum(seconds))
    return {"what": what, "p50 (ms)": p50, "p95 (ms)": p95, "queries/s": rate}
