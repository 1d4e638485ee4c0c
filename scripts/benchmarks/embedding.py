"""Benchmark: documents embedded per CPU second, by rerank's bi-encoders and by sentence-transformers' `encode`."""

from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from rerank.models.bi_encoder import BiEncoder
from rerank.models.gpu import choose_precision
from scripts.benchmarks.report import Count, Encoder, Out, Rounds, publish
from scripts.benchmarks.timing import Work, interleaved, ratio
from scripts.benchmarks.workload import document_lengths, make_texts, one_piece_words, open_encoder

LONGEST = {"long": None, "short": 60}
"""Tokens of the longest documents: of Robust04's lengths, or of passages' lengths."""
BATCHES = (8, 16, 32)
COLUMNS = {"what": "", "documents/CPU s": ",.2f", "× encode": ".2f", "difference": ".1g"}
NOTES = (
    "Seconds are those of all threads on processors; values are medians over rounds. × encode: relative to the fastest "
    "batch size of `encode`, on the passages that rerank makes.",
    "difference: the largest of the vectors' numbers from those of `encode` in float32.",
)


def embedding(*, encoder: Encoder = "minilm", rounds: Rounds = 3, documents: Count = 48, out: Out = None) -> None:
    """Documents embedded per CPU second: rerank's bi-encoders and sentence-transformers' `encode`.

    Parameters
    ----------
    documents
        Documents to embed per round, of Robust04's lengths and of at most 60 tokens.
    """
    device = torch.device("cpu")
    rows: list[dict[str, Any]] = []
    with open_encoder(encoder) as folder:
        ours = {"rerank, float32": BiEncoder.load(folder, device="cpu", precision="float32")}
        if (chosen := choose_precision("auto", device)) != "float32":
            ours[f"rerank, {chosen}"] = BiEncoder.load(folder, device="cpu")
        theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    for kind, longest in LONGEST.items():
        rng = np.random.default_rng(0)
        texts = list(make_texts(document_lengths(documents, rng, longest), one_piece_words(theirs.tokenizer), rng))
        rows += _rows(kind, texts, ours, theirs, rounds)
    settings = {"encoder": encoder, "rounds": rounds, "documents": documents}
    publish(f"Embedding with {encoder}", rows, COLUMNS, settings, device, NOTES, out)


def _rows(kind: str, texts: list[str], ours: dict[str, BiEncoder], theirs: Any, rounds: int) -> list[dict[str, Any]]:
    passages = [passage for text in texts for passage in next(iter(ours.values())).split(text)]

    def encode(size: int) -> np.ndarray:
        vectors: np.ndarray = theirs.encode_document(passages, batch_size=size, show_progress_bar=False)
        return vectors

    exact = encode(BATCHES[0])
    found = {name: one.encode_documents(texts)[0] for name, one in ours.items()}
    works: dict[str, Work] = {name: partial(one.encode_documents, texts) for name, one in ours.items()}
    works |= {f"encode, batch {size}": partial(encode, size) for size in BATCHES}
    seconds = interleaved(works, rounds, torch.device("cpu"), cpu_seconds=True)
    best = min((name for name in works if name not in found), key=lambda name: median(seconds[name]))
    return [
        {
            "what": f"{name}, {kind} documents",
            "documents/CPU s": len(texts) / median(taken),
            "× encode": ratio(seconds[best], taken),
            "difference": float(np.abs(found[name] - exact).max()) if name in found else None,
            "seconds": taken,
        }
        for name, taken in seconds.items()
    ]
