"""How similar words of a query and of documents are by chance, and how far gibberish is from all documents.

`LEAST_SIMILARITY` of `rerank/pipelines/fitted.py` and `FAR_SHARE` of `rerank/pipelines/fit.py` follow from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.trec import ranked
from rerank.data.types import Document
from rerank.pipelines.fit import FAR_SHARE
from rerank.pipelines.fitted import LEAST_SIMILARITY
from rerank.pipelines.stages.bm25 import BM25Stage
from rerank.pipelines.stages.dense import DenseStage
from rerank.pipelines.stages.world import World
from rerank.retrieval.words import content_words
from scripts.benchmarks.report import Count, Out, publish
from scripts.benchmarks.search import untrained

TOP = 3
"""Documents of a query whose words are compared: BM25's best, and as many at random."""
GIBBERISH = 200
LETTERS = "bcdfghjklmnpqrstvwxz"
SHARES = (0.5, 0.95, 0.99)
SHOWN = 4
"""Examples of matches above and below the threshold."""
COLUMNS = {"collection": "", "documents": "", "pairs": ",d"} | {f"{share:.0%}": ".3f" for share in SHARES}
COLUMNS |= {"shown": ".1%", "examples": ""}
NEAR_COLUMNS = {"collection": "", "queries": ",d", "far below": ".3f", "own, least": ".3f"}
NEAR_COLUMNS |= {"gibberish, 5%": ".3f", "gibberish, 95%": ".3f", "gibberish that is far": ".1%"}
NOTES = (
    "pairs: a content word of a query and the most similar word of a document, where it is another word. random: of "
    f"documents drawn at random. shown: pairs at or above {LEAST_SIMILARITY}; examples: the least similar of these, "
    "and after the bar the most similar of the others, in the best documents.",
)
NEAR_NOTES = (
    f"far below: the similarity that the best documents of {FAR_SHARE:.0%} of the collection's queries do not reach. "
    f"gibberish: {GIBBERISH} queries of one to five words of consonants drawn at random.",
)


class Pair(NamedTuple):
    """A word of a query, another word of a document, and their similarity."""

    similarity: float
    asked: str
    found: str


def matches(
    *collections: str,
    encoder: str,
    queries: Count = 100,
    folder: Path = Path("matches-benchmark"),
    out: Out = None,
) -> None:
    """Similarities of words that match by chance, and of gibberish, which the thresholds of a search follow from.

    Parameters
    ----------
    collections
        Collections with queries, without need of judgments.
    encoder
        The bi-encoder whose tokens and vectors are compared.
    queries
        Queries of each collection whose words are compared.
    folder
        Where indexes and vectors are kept for the next time.
    """
    words: list[dict[str, Any]] = []
    near: list[dict[str, Any]] = []
    for source in collections:
        config = Config(CollectionSettings(source), output=OutputSettings(str(folder)))
        world = World.open(config)
        words += rows_of_words(world, encoder, queries)
        near.append(row_of_vectors(world, encoder))
    settings = {"collections": list(collections), "encoder": encoder, "queries": queries}
    publish("Words that match", words, COLUMNS, settings, torch.device("cpu"), NOTES, out)
    publish("Gibberish", near, NEAR_COLUMNS, settings, torch.device("cpu"), NEAR_NOTES)


def rows_of_words(world: World, encoder: str, queries: int) -> list[dict[str, Any]]:
    """A row of the pairs in the best documents of the queries, and one of those in documents drawn at random."""
    rng = np.random.default_rng(0)
    known = list(world.collection.queries.items())
    asked = dict(known[int(place)] for place in rng.permutation(len(known))[:queries])
    run = untrained({"bm25": BM25Stage(depth=TOP)}, world, world.folder.path).rank_all(asked)["bm25"]
    every = [document.doc_id for document in world.texts.documents()]
    best = {query_id: ranked(run.get(query_id, {}))[:TOP] for query_id in asked}
    drawn = {query_id: [every[int(place)] for place in rng.integers(len(every), size=TOP)] for query_id in asked}
    rows = []
    for name, documents in (("best", best), ("random", drawn)):
        pairs = sorted(set(pairs_of(world, encoder, asked, documents)))
        values = np.array([pair.similarity for pair in pairs])
        border = int(np.searchsorted(values, LEAST_SIMILARITY))
        row: dict[str, Any] = {"collection": world.collection.name, "documents": name, "pairs": len(pairs)}
        row |= {f"{share:.0%}": float(np.quantile(values, share)) for share in SHARES}
        row |= {"shown": 1 - border / len(values)}
        if name == "best":
            row["examples"] = f"{_examples(pairs[border:][:SHOWN])} | {_examples(pairs[:border][: -SHOWN - 1 : -1])}"
        rows.append(row)
    return rows


def pairs_of(
    world: World, encoder: str, queries: Mapping[str, str], documents: Mapping[str, Sequence[str]]
) -> Iterator[Pair]:
    """The content words of the queries with the most similar words of their documents that are other words."""
    matcher = world.late_interaction(encoder)
    matcher.add([doc_id for doc_ids in documents.values() for doc_id in doc_ids])
    for query_id, text in queries.items():
        texts: list[Document] = list(world.texts.get(documents[query_id]))
        for found in matcher.matches(text, texts):
            for word, (match, similarity) in found.items():
                own, other = ({one.term for one in content_words(part)} for part in (word, match))
                if own and other and own != other:
                    yield Pair(similarity, word.lower(), match.lower())


def row_of_vectors(world: World, encoder: str) -> dict[str, Any]:
    """How similar the best documents of the collection's own queries, and of gibberish, are."""
    rng = np.random.default_rng(0)
    stage = untrained({"dense": DenseStage(encoder, depth=1)}, world, world.folder.path).rankers["dense"]
    nonsense = {str(number): " ".join(_word(rng) for _ in range(rng.integers(1, 6))) for number in range(GIBBERISH)}
    own, other = (
        np.array([max(scores.values()) for scores in stage.rank(asked, []).values()])
        for asked in (world.collection.queries, nonsense)
    )
    far_below = float(np.quantile(own, FAR_SHARE))
    return {
        "collection": world.collection.name,
        "queries": len(own),
        "far below": far_below,
        "own, least": float(own.min()),
        "gibberish, 5%": float(np.quantile(other, 0.05)),
        "gibberish, 95%": float(np.quantile(other, 0.95)),
        "gibberish that is far": float((other < far_below).mean()),
    }


def _word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(LETTERS), size=rng.integers(4, 9)))


def _examples(pairs: Sequence[Pair]) -> str:
    return ", ".join(f"{pair.asked} → {pair.found}" for pair in pairs)
