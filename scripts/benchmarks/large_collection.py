"""A generated collection with the shape of MS MARCO's passages, and the runs of a first stage."""

import gzip
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerank.utils.progress import progress

WORDS = 5_000
PASSAGES, WORDS_OF_A_PASSAGE = 8_841_823, 55
QUERIES = {"train": 502_939, "dev": 6_980, "test": 43}
"""The judged queries of MS MARCO's parts, as BEIR publishes them."""
DEPTH = 150
AT_ONCE = 4096


@dataclass(frozen=True)
class Shape:
    """How many passages and queries a collection has."""

    passages: int
    queries: dict[str, int]

    @property
    def lines(self) -> int:
        """Lines of a run."""
        return DEPTH * sum(self.queries.values())


def shape(share: float) -> Shape:
    """The shape of this share of MS MARCO; each part has a few queries at least."""
    queries = {part: max(5, round(share * count)) for part, count in QUERIES.items()}
    return Shape(max(2 * DEPTH, round(share * PASSAGES)), queries)


def write_large_collection(folder: Path, of: Shape) -> None:
    """Writes a collection in BEIR's layout with a published split; passages are random words, as in Zipf's law."""
    (folder / "qrels").mkdir(parents=True)
    rng = np.random.default_rng(0)
    words = np.array(make_words(), dtype=object)
    shares = (1 / np.arange(1, WORDS + 1)).cumsum()
    shares /= shares[-1]
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        starts = range(0, of.passages, AT_ONCE)
        for start in progress(starts, len(starts), "writing passages"):
            count = min(AT_ONCE, of.passages - start)
            drawn = words[shares.searchsorted(rng.random((count, WORDS_OF_A_PASSAGE)), side="right")]
            out.writelines(
                f'{{"_id": "{number}", "title": "", "text": "{" ".join(row)}"}}\n'
                for number, row in enumerate(drawn.tolist(), start)
            )
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as out:
        for query_id in range(sum(of.queries.values())):
            text = " ".join(words[rng.integers(20, WORDS, 6)])
            out.write(f'{{"_id": "{query_id}", "text": "{text}"}}\n')
    documents, query_id = candidates(of), 0
    for part, count in of.queries.items():
        with (folder / "qrels" / f"{part}.tsv").open("w", encoding="utf-8") as out:
            out.write("query-id\tcorpus-id\tscore\n")
            for _ in range(count):
                out.write(f"{query_id}\t{documents[query_id, rng.integers(DEPTH)]}\t1\n")
                query_id += 1


def candidates(of: Shape) -> np.ndarray:
    """The passages of a run: (queries, DEPTH) int32, distinct in each row."""
    rng = np.random.default_rng(1)
    queries = sum(of.queries.values())
    first, step = (rng.integers(low, high, (queries, 1)) for low, high in ((0, of.passages), (1, of.passages // DEPTH)))
    return ((first + step * np.arange(DEPTH)) % of.passages).astype(np.int32)


def write_large_run(path: Path, of: Shape, by_rank: bool = False) -> None:
    """Writes the run, gzipped if it is called so; `by_rank` is all first documents, then all second ones, and so on."""
    documents = candidates(of)
    rows = documents.T if by_rank else documents
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as out:
        for number, row in progress(enumerate(rows.tolist()), len(rows), f"writing {path.name}"):
            places = ((place, number) if by_rank else (number, place) for place in range(len(row)))
            out.write(
                "".join(
                    f"{query} Q0 {document} {rank + 1} {30 - rank / 10:.6f} bm25\n"
                    for (query, rank), document in zip(places, row, strict=True)
                )
            )


def make_words() -> list[str]:
    """Distinct words that the stemmer does not join."""
    consonants, vowels = "bcdfgklmnprt", "aiou"
    syllables = [first + vowel for first in consonants for vowel in vowels]
    words = [f"{a}{b}{c}k" for a in syllables for b in syllables for c in syllables]
    return words[:: len(words) // WORDS][:WORDS]


def write_encoder(folder: Path) -> None:
    """Writes the encoder in another process, so that this one stays small."""
    code = (
        "import sys; from pathlib import Path; from rerank.models.tiny_bert import make_encoder; "
        "make_encoder(Path(sys.argv[1]), [' '.join(sys.stdin.read().split())])"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], input=" ".join(make_words()), text=True, check=True)
