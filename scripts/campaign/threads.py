"""One pipeline, one re-ranker and one bi-encoder that several threads call: each answer is that of a single thread."""

import random
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from scripts.campaign.processes import Command
from scripts.campaign.trials import Trial
from scripts.campaign.world import CHECKPOINT, THREADS
from tests.support.small_world import WORDS

CALLS = 80
"""Calls of one trial."""
MOST_THREADS = 8


def threads(trial: Trial) -> None:
    """A process in which 2 to 8 threads search, score and encode random texts, from the first call on."""
    place = trial.copy("searchable")
    words = (str(trial.rng.randint(2, MOST_THREADS)), str(trial.rng.randrange(10**9)))
    command = Command(words, THREADS)
    (ended,) = trial.run(place, command)
    if ended.code != 0:
        trial.complain(f"expected the answers of a single thread: {command}", ended)


def compare(threads: int, seed: int) -> str:
    """The first call whose answer in several threads is not that of one thread; "" if there is none."""
    rng = random.Random(seed)
    calls = [_draw(rng) for _ in range(CALLS)]
    alone, together = _open(), _open()
    expected = [_answer(alone, name, texts) for name, texts in calls]
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda call: _answer(together, *call), calls))
    for call, one, other in zip(calls, expected, found, strict=True):
        if one != other:
            return f"{call}: {threads} threads give {other}, one gives {one}"
    return ""


def _open() -> dict[str, Callable[[list[str]], Any]]:
    """Functions of texts by name, of models and pipelines that are opened for them."""
    import rerank

    model, encoder = rerank.Reranker.load(CHECKPOINT), rerank.BiEncoder.load("encoder")
    pipelines = {name: rerank.Pipeline.load(name) for name in ("words", "vectors")}

    def search(name: str) -> Callable[[list[str]], Any]:
        return lambda texts: pipelines[name].search(texts[0], explain=True)

    return {
        "score": lambda texts: model.score(texts[0], texts).tolist(),
        "rank": lambda texts: model.rank(texts[0], texts),
        "predict": lambda texts: model.predict([(texts[0], text) for text in texts]).tolist(),
        "encode queries": lambda texts: encoder.encode_queries(texts).tolist(),
        "encode documents": lambda texts: [array.tolist() for array in encoder.encode_documents(texts)],
        "search words": search("words"),
        "search vectors": search("vectors"),
    }


def _draw(rng: random.Random) -> tuple[str, list[str]]:
    """The name of a function, and texts; half of the calls search."""
    models = ["score", "rank", "predict", "encode queries", "encode documents"]
    name = rng.choice(models if rng.random() < 0.5 else ["search words", "search vectors"])
    return name, [" ".join(rng.choices(WORDS, k=rng.randint(1, 40))) for _ in range(rng.randint(1, 6))]


def _answer(functions: dict[str, Callable[[list[str]], Any]], name: str, texts: list[str]) -> Any:
    return functions[name](texts)


def fit_unjudged() -> None:
    """Fits the pipelines that are searched, without judgments: so the last stage answers, and all others are used."""
    import rerank
    from rerank.pipelines.stages import BM25Stage, DenseStage, LateInteractionStage

    shutil.copytree("towns", "villages")
    shutil.rmtree("villages/qrels")
    words = rerank.Pipeline(words=BM25Stage())
    vectors = (BM25Stage() + DenseStage("encoder")) >> LateInteractionStage(encoder="encoder")
    for name, stages in (("words", words), ("vectors", rerank.Pipeline(vectors))):
        rerank.fit("villages", stages, out=name)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(compare(*map(int, sys.argv[1:])) or 0)
    fit_unjudged()
