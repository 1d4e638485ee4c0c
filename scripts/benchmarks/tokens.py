"""Benchmark: time and memory of finding, tokenising and reading documents, and at the size of MS MARCO's passages."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rerank.utils.errors import UserError
from rerank.utils.progress import log
from scripts.benchmarks.memory import expect_status
from scripts.benchmarks.report import check, publish

SMALLER = 10
"""The extrapolation is a line through this share of the documents, and all of them."""
FULL = 8_841_823
"""MS MARCO's passages."""
WORDS, WORDS_OF_A_DOCUMENT = 5_000, 55
READ = 10_000
"""Documents that are read, at random."""
STEPS = {
    "places": "where documents are in corpus.jsonl",
    "places, again": "the same in another process",
    "tokens": "tokens",
    "tokens, again": "the same in another process",
}
STORED = "a store of random tokens"
TOKENS_STORED = 70
"""Tokens of each of its documents, as an encoder's tokenizer makes of about 55 words."""
VALUES = {"s": ",.1f", "peak MB": ",.0f", "anonymous MB": ",.0f", "mapped MB": ",.0f"}
COLUMNS = {"what": "", "documents": ",", **VALUES, "full size, s": ",.0f", "full size, peak MB": ",.0f"}
NOTES = (
    f"places: {READ:,} documents of corpus.jsonl are read, for which all must be found. tokens: the store of all "
    f"documents is opened, and {READ:,} are read in batches of 150; the first time it is made.",
    f"{STORED}: {TOKENS_STORED} a document, checked whole when it is opened, and read as above.",
    "All MB are added by the step to those of the imports, peak MB to the most that the imports had. Anonymous memory "
    f"is the process' own; mapped are the parts of files that it has in use. Full size: {FULL:,} documents, on the "
    "line through two sizes.",
)
MEASURE = """
import json, random, sys, time
from pathlib import Path
from transformers import AutoTokenizer
from rerank.data.collections import open_collection
from rerank.data.tokens import open_store

def memory():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [int(status[name].split()[0]) * 1024 / 1e6 for name in ("VmHWM", "RssAnon", "RssFile")]

step, folder, documents, read = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
collection, rng = open_collection(str(folder)), random.Random(0)
some = [str(rng.randrange(documents)) for _ in range(read)]
tokenizer = AutoTokenizer.from_pretrained(folder.parent / "encoder")
doc_ids = sorted(map(str, range(documents)))
texts = lambda doc_ids: (document.text for document in collection.get(doc_ids))
before, start = memory(), time.perf_counter()
if step == "places":
    sum(map(len, texts(some)))
else:
    store = open_store(folder / "tokens", doc_ids, texts, tokenizer, 512, "benchmark")
    for first in range(0, read, 150):
        sum(int(store[doc_id].sum()) for doc_id in some[first : first + 150])
        if hasattr(store, "release"):  # as a batch does; older versions do not
            store.release()
seconds = time.perf_counter() - start
print(json.dumps([seconds, *(after - earlier for after, earlier in zip(memory(), before))]))
"""
WRITE_STORE = f"""
import sys
from pathlib import Path
import numpy as np
from rerank.data.ragged import open_ragged
documents, many = int(sys.argv[2]), 150_000
drawn = np.random.default_rng(0).integers(0, 30_000, many + {TOKENS_STORED}).astype(np.int32)
def fill(writer):
    for row, doc_id in enumerate(sorted(map(str, range(documents)))):
        writer.add(doc_id, drawn[row % many :][:{TOKENS_STORED}], {TOKENS_STORED})
        writer.finish()
open_ragged(Path(sys.argv[1]), "tokens", np.int32, fill)
"""
READ_STORE = """
import json, random, sys, time
from pathlib import Path
from rerank.data.tokens import read_store

def memory():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [int(status[name].split()[0]) * 1024 / 1e6 for name in ("VmHWM", "RssAnon", "RssFile")]

documents, read, rng = int(sys.argv[2]), int(sys.argv[3]), random.Random(0)
some = [str(rng.randrange(documents)) for _ in range(read)]
before, start = memory(), time.perf_counter()
store = read_store(Path(sys.argv[1]))
for first in range(0, read, 150):
    sum(int(store[doc_id].sum()) for doc_id in some[first : first + 150])
    store.release()
seconds = time.perf_counter() - start
print(json.dumps([seconds, *(after - earlier for after, earlier in zip(memory(), before))]))
"""


def bench_tokens(documents: int, stored: int = 0, checkout: Path | None = None, out: Path | None = None) -> str:
    """Measures the steps on so many documents and on a tenth of them, and returns the table.

    A store of `stored` documents is filled with random tokens, opened in another process, and read, if it is not 0.
    `checkout` is a checkout of another version of rerank to measure. Raises UserError for too few documents, and if a
    step fails.
    """
    check(1, out)
    if documents < READ:
        raise UserError(f"--documents: got {documents}, expected {READ} or more")
    expect_status()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rerank-tokens-") as name:
        _write_encoder(Path(name) / "encoder")
        for count in (documents // SMALLER, documents):
            folder = Path(name) / str(count)
            log.info(f"writing {count:,} documents")
            write_corpus(folder, count)
            for step, what in STEPS.items():
                log.info(f"{what}, {count:,} documents")
                rows.append(
                    {"what": what, "step": step, "documents": count, **_measured(step, folder, count, checkout)}
                )
        rows = with_full_size(rows)
        if stored:
            log.info(f"{STORED}, {stored:,} documents")
            arguments = (str(Path(name) / "0123456789abcdef"), str(stored), str(min(READ, stored)))
            _run(STORED, WRITE_STORE, arguments, Path(name), checkout)
            found = json.loads(_run(STORED, READ_STORE, arguments, Path(name), checkout))
            rows.append({"what": STORED, "documents": stored, **dict(zip(VALUES, found, strict=True))})
    import torch

    settings = {"documents": documents, "stored": stored, "checkout": checkout and str(checkout)}
    title = f"{documents:,} documents of {WORDS_OF_A_DOCUMENT} words, {os.cpu_count()} processors"
    return publish(title, rows, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def write_corpus(folder: Path, documents: int) -> None:
    """Writes corpus.jsonl with random words, with frequencies as in Zipf's law; the ids are the numbers from 0."""
    rng = np.random.default_rng(0)
    words = np.array(_words(), dtype=object)
    shares = (1 / np.arange(1, WORDS + 1)).cumsum()
    shares /= shares[-1]
    folder.mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for number in range(documents):
            text = " ".join(words[shares.searchsorted(rng.random(WORDS_OF_A_DOCUMENT), side="right")])
            out.write(json.dumps({"_id": str(number), "title": "", "text": text}) + "\n")


def _words() -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [f"{a}{b}{c}" for a in letters for b in letters for c in letters][:WORDS]


def _write_encoder(folder: Path) -> None:
    """Writes the encoder in another process, so that this one stays small."""
    code = (
        "import sys; from pathlib import Path; from rerank.models.tiny_bert import make_encoder; "
        "make_encoder(Path(sys.argv[1]), [' '.join(sys.stdin.read().split())])"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], input=" ".join(_words()), text=True, check=True)


def _measured(step: str, folder: Path, documents: int, checkout: Path | None) -> dict[str, float]:
    arguments = (step.split(",")[0], str(folder), str(documents), str(min(READ, documents)))
    return dict(zip(VALUES, json.loads(_run(step, MEASURE, arguments, folder, checkout)), strict=True))


def _run(what: str, code: str, arguments: Sequence[str], folder: Path, checkout: Path | None) -> str:
    """What a new process, with a cache of its own, prints."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    if checkout:
        environment["PYTHONPATH"] = str(checkout.resolve())
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UserError(f"{what}: exit code {done.returncode}")
    return done.stdout


def with_full_size(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by step; the larger size has what the line through both gives at the full size, if something is made."""
    found: list[dict[str, Any]] = []
    for step in STEPS:
        smaller, larger = (row for row in rows if row["step"] == step)
        factor = (FULL - larger["documents"]) / (larger["documents"] - smaller["documents"])
        made = ("s", "peak MB") if "again" not in step else ()
        at_full = {f"full size, {key}": larger[key] + factor * (larger[key] - smaller[key]) for key in made}
        found += [smaller, larger | at_full]
    return found
