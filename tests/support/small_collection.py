"""A collection of a few words in BEIR's layout, with something to learn, for tests that run the command line."""

import contextlib
import json
import random
import shlex
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.utils.locks import locked
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

SETTINGS = """
[collection]
source = "towns"
[encoder]
name = "encoder"
[training]
epochs = 2
lists_per_epoch = 8
lists_per_step = 4
lr = 1e-3
"""
"""The settings that the tests train with."""

NAMES = [first + second for first in WORDS[:10] for second in WORDS[10:16]]
"""A name of its own for each of 60 documents, in its title and in its first and last sentence."""


def write_collection(folder: Path, queries: int = 15, documents: int = 6, seed: int = 0) -> Path:
    """Queries of one own word each; a third of the documents that have it also say "good": the relevant ones."""
    rng = random.Random(seed)
    corpus, asked, judged = [], [], []
    for number in range(queries):
        own = f"{WORDS[number % len(WORDS)]}{number}"
        asked.append({"_id": f"q{number}", "text": own})
        for place in range(documents):
            relevant = place % 3 == 0
            words = [own, *rng.choices(WORDS, k=rng.randint(4, 30)), "good" if relevant else "bad"]
            rng.shuffle(words)
            corpus.append({"_id": f"d{number}-{place}", "title": "", "text": " ".join(words)})
            judged.append(f"q{number}\td{number}-{place}\t{int(relevant)}")
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in asked))
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return folder


def write_german(folder: Path) -> Path:
    """Five German documents and queries, not judged: without German stems two queries find nothing."""
    folder.mkdir(parents=True)
    texts = ["Das Haus am Markt", "Ein Buch über Berge", "Der Baum im Garten", "Die alte Stadt", "Ein See im Wald"]
    asked = ["Häuser", "Bücher", "Baum", "Stadt", "See"]
    corpus = [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    queries = [{"_id": f"q{number}", "text": text} for number, text in enumerate(asked)]
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_documents(folder: Path, titles: bool = True, count: int = 40, seed: int = 0) -> Path:
    """Titles and bodies of three sentences in words that a tiny encoder knows; neither queries nor judgments."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as out:
        for number, name in enumerate(NAMES[:count]):
            said = [" ".join(rng.choices(WORDS, k=rng.randint(5, 9))) for _ in range(3)]
            title = f"{name} {rng.choice(WORDS)} {rng.choice(WORDS)}" if titles else ""
            body = f"{name} {said[0]}. {said[1]}. {said[2]} {name}."
            out.write(json.dumps({"_id": f"d{number}", "title": title, "text": body}) + "\n")
    return folder


def write_qrels(queries: Iterable[int], path: Path, documents: int = 6, relevant: Sequence[int] = (0, 3)) -> None:
    """A file of judgments of the documents of these queries; those at the `relevant` places are relevant."""
    lines = [f"q{query}\td{query}-{place}\t{int(place in relevant)}" for query in queries for place in range(documents)]
    path.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")


def write_split(folder: Path, train: Iterable[int], dev: Iterable[int], test: Iterable[int]) -> None:
    """A published split of the collection in `folder`, into these queries."""
    for name, queries in {"train": train, "dev": dev, "test": test}.items():
        write_qrels(queries, folder / "qrels" / f"{name}.tsv")


def judge_only(folder: Path, queries: int) -> None:
    """Leaves the collection in `folder` the judgments of its first queries, and no file of judgments for none."""
    shutil.rmtree(folder / "qrels")
    if queries:
        (folder / "qrels").mkdir()
        write_qrels(range(queries), folder / "qrels" / "test.tsv")


def write_encoder(folder: Path) -> Path:
    """A tiny BERT that knows the collection's words and takes 24 tokens, so that documents have several passages."""
    own = [f"{WORDS[number % len(WORDS)]}{number}" for number in range(15)]
    return make_encoder("bert", folder, [*WORDS, *own, "good", "bad"], max_positions=24)


@contextlib.contextmanager
def in_a_copy(folder, tmp_path_factory):
    """A copy of the folder, for all tests of a module; it is the working directory in the block."""
    copy = tmp_path_factory.mktemp("copy") / "home"
    shutil.copytree(folder, copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        yield copy


def command(*words):
    return ["train", "--config", "towns.toml", *words]


def exit_code(*words, main=main):
    """The exit code of a command that ends with one."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


def ended(words):
    """The exit code of a command, 0 for one that just returns."""
    try:
        main(list(words))
    except SystemExit as end:
        return end.code
    return 0


def epochs_of(fold: Path) -> list[dict]:
    """What a training logged, epoch by epoch; the clock's seconds are no result."""
    records = [json.loads(line) for line in (fold / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def next_commands(printed: str) -> list[list[str]]:
    """The words after `rerank` of each command in a line `next: …`."""
    commands = printed.partition("\nnext: ")[2].partition("\n")[0].split("; ")
    return [shlex.split(command.removeprefix("rerank ")) for command in commands]


def failed(capsys, *words, main=main):
    """The one line that a wrong command prints before it ends with exit code 2."""
    assert exit_code(*words, main=main) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("rerank: ")
    return lines[-1]


def run_beside_another(capsys, folder, what, *words):
    """Runs a command while another process, which the test stands in for, makes `what` in `folder`: it has to wait."""
    with ThreadPoolExecutor() as pool, locked(folder, what):
        second = pool.submit(main, words)
        told = ""
        while f"waiting for another process, which makes the {what}" not in told:
            assert not second.done()
            time.sleep(0.05)
            told += capsys.readouterr().err
    second.result()
