"""Compares ways to score a long document by its passages, at equal cost: trains each, and prints one table.

    python -m scripts.paper.compare_passages shared/data/time pre-time

ENCODER is a folder, as `rerank pretrain --out` writes it: all rows start from it, without another pre-training. Cost is
the tokens of a document that the model reads: those of its passages with the query and the special tokens, on the
mean over all candidates. Each row cuts documents after as many tokens as make its cost `--tokens`, so that a row whose
passages share tokens reads less of a document, and one long passage, which repeats no query, reads more. `short` is
the exception: its documents are cut to one short passage, so it costs less.

With `--untrained` nothing is trained: every row scores all queries with ENCODER itself, in one of these ways.

Every row is an ordinary `rerank` command, which is printed. Existing runs are kept, so the script resumes after an
interruption. Flags that the script does not know are passed to the training (--training.lists-per-epoch 80). ± is the
standard error of the difference from the first row over the test queries, and p is of a two-sided paired t-test, not
corrected. BM25 is on the same queries.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from rerank.batches.passages import PassageBuilder
from rerank.batches.text_template import open_template
from rerank.data.candidates import select_candidates
from rerank.data.collections import open_collection
from rerank.data.splitting import Splitting
from rerank.data.tokens import TokenStore, make_store
from rerank.data.trec import read_run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.significance import mean_and_error, paired_test
from rerank.evaluation.tables.table import aligned
from rerank.models.encoder import load_encoder
from rerank.models.pair_chunks import pairs_of
from rerank.runs.layout import ExperimentFolder
from rerank.utils.files import short_hash
from scripts.paper.commands import rerank

MEASURE = "nDCG@20"
LONGEST = 8192
"""Tokens of a document, at most."""


@dataclass(frozen=True)
class Row:
    """A way to score documents; `passages` is False where they are one passage, as long as the encoder takes."""

    pooling: str
    passages: bool = True
    overlap: int = 0
    title: int = 0


def rows(overlap: int, title: int) -> dict[str, Row]:
    """The rows of the table by name, those that answer most first."""
    return {
        "one": Row("first", passages=False),
        "mean": Row("mean"),
        "max": Row("max"),
        "softmax": Row("softmax"),
        "max, title": Row("max", title=title),
        "max, overlap": Row("max", overlap=overlap),
        "mean, title": Row("mean", title=title),
        "mean, overlap": Row("mean", overlap=overlap),
        "short": Row("first"),
    }


def short_encoder(encoder: Path, passage: int, folder: Path) -> Path:
    """A copy of the encoder that reads `passage` tokens at a time."""
    short = folder / f"passages-of-{passage}"
    return edited_copy(encoder, short, "tokenizer_config.json", {"model_max_length": passage})


def untrained_checkpoint(encoder: Path, row: Row, kept: int, folder: Path) -> Path:
    """A copy of a pre-trained model that scores documents as the row says."""
    saved = json.loads((encoder / "config.json").read_text(encoding="utf-8"))["rerank"]
    saved |= {"pooling": row.pooling, "max_doc_tokens": kept}
    saved |= {"passage_overlap": row.overlap, "title_tokens": row.title}
    return edited_copy(encoder, folder, "config.json", {"rerank": saved})


def edited_copy(encoder: Path, folder: Path, name: str, changes: Mapping[str, Any]) -> Path:
    """A copy of a model's folder, unless it exists, with changes to the settings of a file."""
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.part")
        shutil.copytree(encoder, part, dirs_exist_ok=True)
        file = part / name
        settings = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**settings, **changes}), encoding="utf-8")
        part.rename(folder)
    return folder


class Costs:
    """What the passages of a collection's candidates cost."""

    def __init__(self, source: str, run: Path, depth: int) -> None:
        collection = open_collection(source)
        candidates = [c for c in select_candidates(read_run(run), {}, depth).values() if c.doc_ids]
        self.pairs = list(pairs_of(candidates))  # read again and again
        self.queries = {c.query_id: collection.queries[c.query_id] for c in candidates}
        self.doc_ids = sorted({doc_id for _, doc_id in self.pairs})
        self.texts = [document.text for document in collection.get(self.doc_ids)]

    def cut(self, encoder: Path, row: Row, tokens: int, one_passage: bool) -> tuple[int, float]:
        """The most tokens kept of a document for which the mean cost is at most `tokens`, and this cost.

        With `one_passage` they are those of one passage with the longest query.
        """
        loaded = load_encoder(str(encoder))
        template = open_template(loaded.tokenizer, "")
        store = make_store(self.doc_ids, self.texts, loaded.tokenizer, LONGEST, template.document_lead)
        splitting = Splitting(row.overlap, row.title)
        builder = PassageBuilder.build(self.queries, store, loaded.tokenizer, template, loaded.max_length, splitting)

        def cost(kept: int) -> float:
            return float(_cut(builder, kept).sizes(self.pairs)[1].mean())

        if one_passage:
            least, most = builder.max_tokens - max(len(builder.query(q)) for q in self.queries), 0
        else:
            least, most = 1, LONGEST
        while least < most:  # cost grows with the tokens that are kept
            middle = (least + most + 1) // 2
            least, most = (middle, most) if cost(middle) <= tokens else (least, middle - 1)
        return least, cost(least)


def _cut(builder: PassageBuilder, kept: int) -> PassageBuilder:
    """The builder of documents cut after `kept` tokens, to measure sizes alone."""
    documents = builder.documents
    lengths = np.diff(documents.offsets).clip(max=kept)
    cut = TokenStore(documents.tokens, np.concatenate([[0], lengths.cumsum()]), lengths, documents.rows)
    return PassageBuilder(builder.queries, cut, builder.template, builder.max_length, builder.splitting)


def compare(given: argparse.Namespace, rest: list[str]) -> str:
    """Makes the missing runs and returns the table of those that were asked for."""
    common = ["--collection", given.collection, "--output.folder", given.output]
    depth = ["--first-stage.depth", str(given.depth)]
    bm25 = Path(rerank("retrieve", *common))
    short = short_encoder(Path(given.encoder), given.passage, bm25.parent)
    costs = Costs(given.collection, bm25, given.depth)
    qrels = dict(open_collection(given.collection).qrels)
    table = []
    ways = rows(given.overlap, given.title)
    reference: dict[str, float] = {}
    for name in given.rows or ways:
        row = ways[name]
        encoder = short if row.passages else Path(given.encoder)
        kept, cost = costs.cut(encoder, row, given.tokens, name == "short")
        run_name = name.replace(", ", "-")
        if given.untrained:
            way = short_hash(encoder, row, kept, given.depth, *rest)[:8]  # a run of other settings is another file
            scored = bm25.with_name(f"untrained-{run_name}-{way}.run")
            if not scored.is_file():
                checkpoint = untrained_checkpoint(encoder, row, kept, scored.with_suffix(""))
                rerank("score", str(checkpoint), str(bm25), *common, *depth, "--out", str(scored), *rest)
        else:
            words = ["--encoder", str(encoder), "--encoder.max-doc-tokens", str(kept), "--encoder.pooling", row.pooling]
            words += ["--encoder.passage-overlap", str(row.overlap), "--encoder.title-tokens", str(row.title)]
            words += ["--name", run_name, *common, *depth]
            folder = ExperimentFolder(Path(rerank("train", "--fold", given.fold, *words, *rest)))
            scored = folder.all_run if given.fold == "all" else folder.fold(given.fold).test_run
        run = read_run(scored)
        judged = {query_id: qrels[query_id] for query_id in run if query_id in qrels}
        values = evaluate(judged, run, [MEASURE])[MEASURE]
        reference = reference or values
        line = [name, str(kept), f"{cost:.0f}", f"{fmean(values.values()):.4f}"]
        table.append([*line, *(["", ""] if values is reference else _difference(values, reference))])
    first = evaluate(judged, read_run(bm25), [MEASURE])[MEASURE]
    table.append(["BM25", "", "", f"{fmean(first.values()):.4f}", *_difference(first, reference)])
    return aligned([["row", "kept", "cost", MEASURE, "difference", "p"], *table])


def _difference(values: dict[str, float], reference: dict[str, float]) -> list[str]:
    difference, error = mean_and_error([values[query_id] - reference[query_id] for query_id in reference])
    p = paired_test([values[query_id] for query_id in reference], list(reference.values()), "t")
    return [f"{difference:+.4f} ± {error:.4f}", f"{p:.2f}"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("encoder", help="a folder")
    parser.add_argument("--fold", default="all")
    parser.add_argument("--untrained", action="store_true", help="score all queries with the encoder itself")
    parser.add_argument("--depth", type=int, default=20, help="candidates per query")
    parser.add_argument("--tokens", type=int, default=384, help="the cost of a document, see above")
    parser.add_argument("--passage", type=int, default=128, help="tokens of a passage, query and special ones included")
    parser.add_argument("--overlap", type=int, default=24, help="--encoder.passage-overlap of its rows")
    parser.add_argument("--title", type=int, default=12, help="--encoder.title-tokens of its rows")
    parser.add_argument("--rows", nargs="+", choices=list(rows(0, 0)), help="by default all")
    parser.add_argument("--output", default="runs", help="the folder of the results")
    print(compare(*parser.parse_known_args()))
