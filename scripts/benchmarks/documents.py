"""Benchmark: memory of `rerank retrieve` and `rerank train` on a collection of many documents, and on one of few."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rerank.utils.errors import UserError
from rerank.utils.progress import log
from scripts.benchmarks.memory import expect_status
from scripts.benchmarks.report import check, publish

FEW = 1_000
"""Documents of the collection whose peak is the floor: the imports, Java and the model take it."""
WORDS = 5_000
WORDS_OF_A_DOCUMENT = 100
QUERIES = 10
DEPTH = 100
JUDGED = 20 * QUERIES
"""Documents that have the words of a query, half of them relevant to it."""
STEPS = {"retrieve": ("retrieve", "a"), "train": ("train", "a"), "train, first stage included": ("train", "b")}
"""What is measured: a command and its folder of results."""
COLUMNS = {"what": "", "documents": ",", "seconds": ",.1f", "peak MB": ",.0f", "above the floor, MB": ",.0f"}
NOTES = (
    "peak MB: the most resident memory of the process, in which Java runs too (Linux). The floor is the peak of the "
    f"same command with {FEW:,} documents: imports, Java and the model.",
    f"train: one epoch of a fold, with a BERT of 2 layers, 64 wide; {QUERIES} queries, {DEPTH} candidates each. The "
    "index and the candidates are made by retrieve, or, in the last rows, by train itself.",
)
RUN = """
import sys
from rerank.cli.main import main
try:
    main(sys.argv[2:])
finally:
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    open(sys.argv[1], "w").write(status["VmHWM"].split()[0])
"""


def bench_documents(documents: int, checkout: Path | None = None, out: Path | None = None) -> str:
    """Runs the commands on a collection with so many documents and on one with FEW, and returns the table.

    `checkout` is a checkout of another version of rerank to measure. Raises UserError for too few documents, and if a
    command fails.
    """
    check(1, out)
    if documents < FEW:
        raise UserError(f"--documents: got {documents}, expected {FEW} or more")
    expect_status()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rerank-documents-") as name:
        counts = dict.fromkeys((FEW, documents))
        for count in counts:
            log.info(f"writing {count:,} documents")
            write_collection(Path(name) / str(count), count)
        write_encoder(Path(name) / "encoder")
        for what, output, command in (
            ("retrieve", "a", "retrieve"),
            ("train", "a", "train"),
            ("train alone", "b", "train"),
        ):
            floor = None
            for count in counts:
                log.info(f"{what}, {count:,} documents")
                row = {"what": what, "documents": count, **_measured(command, Path(name), count, output, checkout)}
                floor = floor or row["peak MB"]
                rows.append({**row, "above the floor, MB": row["peak MB"] - floor})
    import torch

    settings = {
        "documents": documents,
        "words of a document": WORDS_OF_A_DOCUMENT,
        "checkout": checkout and str(checkout),
    }
    title = f"{documents:,} documents of {WORDS_OF_A_DOCUMENT} words, {os.cpu_count()} processors"
    return publish(title, rows, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def write_collection(folder: Path, documents: int) -> None:
    """Writes a collection in BEIR's layout: random words with frequencies as in Zipf's law, and some judgments."""
    rng = np.random.default_rng(0)
    words = np.array(make_words())
    shares = (1 / np.arange(1, WORDS + 1)).cumsum()
    shares /= shares[-1]
    asked = [" ".join(words[20 + 3 * number : 23 + 3 * number]) for number in range(QUERIES)]
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for number in range(documents):
            judged = " ".join([asked[number % QUERIES]] * 5) if number < JUDGED else ""
            drawn = words[shares.searchsorted(rng.random(WORDS_OF_A_DOCUMENT), side="right")]
            text = " ".join([*drawn, judged])
            out.write(json.dumps({"_id": f"document-{number:07}", "title": "", "text": text}) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as out:
        for number, text in enumerate(asked):
            out.write(json.dumps({"_id": f"q{number}", "text": text}) + "\n")
    with (folder / "qrels" / "test.tsv").open("w", encoding="utf-8") as out:
        out.write("query-id\tcorpus-id\tscore\n")
        for number in range(JUDGED):
            out.write(f"q{number % QUERIES}\tdocument-{number:07}\t{number // QUERIES % 2}\n")


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


def _measured(command: str, folder: Path, documents: int, output: str, checkout: Path | None) -> dict[str, float]:
    return measured(RUN, _arguments(command, folder, documents, output), folder, checkout)


def measured(code: str, arguments: Sequence[str], folder: Path, checkout: Path | None = None) -> dict[str, float]:
    """Runs Python code, such as RUN, in a new process; its seconds and its peak memory.

    Its first argument is a file in `folder` for the peak, in KiB. Raises UserError if it fails.
    """
    environment = dict(os.environ)
    if checkout:
        environment["PYTHONPATH"] = str(checkout.resolve())
    peak = folder / "peak"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(peak), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise UserError(f"rerank {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return {"seconds": seconds, "peak MB": int(peak.read_text()) * 1024 / 1e6}  # its kB are KiB


def _arguments(command: str, folder: Path, documents: int, output: str) -> Sequence[str]:
    collection, results = str(folder / str(documents)), str(folder / f"runs-{output}")
    shared = [command, "--collection", collection, "--output.folder", results, "--depth", str(DEPTH)]
    if command == "retrieve":
        return shared
    return [*shared, "--encoder", str(folder / "encoder"), "--fold", "1", "--training.epochs", "1"]
