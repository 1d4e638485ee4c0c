"""A stand-in for TREC Robust04: real topics, qrels and document ids, made-up documents, in the layout that users have.

`write_standin(home, ...)` makes `home` what IR_DATASETS_HOME names on the machine of a user with disks 4 and 5;
`write_topics(home)` makes it that of a user without them, and `write_prebuilt_index(cache, home)` makes `cache` what
PYSERINI_CACHE names after Pyserini has downloaded its index `robust04`: the documents as Anserini's TrecCollection
stores them. Every document of a topic has the words of its title.
"""

import gzip
import random
import re
import sys
from pathlib import Path

import pytest

from tests.support.paths import SHARED_DATA
from tests.support.small_world import WORDS

SHARED = SHARED_DATA / "data" / "robust04"
"""Where the real topics and qrels are."""
needs_topics = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared Robust04 topics and qrels are not here")
ROBUST04 = "disks45/nocr/trec-robust-2004"
"""The id of ir_datasets."""

FILES = {"FBIS": ("FBIS/FB", 492), "FR": ("FR94/01/FR", 645), "FT": ("FT/FT911/FT", 428), "LA": ("LATIMES/LA", 730)}
"""How the document ids of a newspaper begin -> how the names of its files begin, and the number of its files.

ir_datasets counts 2,295 files in all.
"""


def write_standin(home: Path, docs_per_topic: int, topics: list[str]) -> None:
    """Writes topics, qrels and documents of these topics below `home`; up to half of a topic's are relevant."""
    write_topics(home)
    texts = {(start, number): "" for start, (_, count) in FILES.items() for number in range(count)}
    for number, (doc_id, sgml) in enumerate(_documents(docs_per_topic, topics).items()):
        start = _newspaper(doc_id)
        texts[start, number % FILES[start][1]] += sgml
    for (start, number), text in texts.items():
        path = home / "disks45" / "corpus" / f"{FILES[start][0]}{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_topics(home: Path) -> None:
    """Writes the real topics and qrels below `home`, where ir_datasets puts its downloads, and no documents."""
    folder = home / "disks45"
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "04.testset.gz", "wb") as topics:
        topics.write((SHARED / "topics.robust04.txt").read_bytes())
    with gzip.open(SHARED / "qrels.robust2004.txt.gz") as qrels:
        (folder / "qrels.robust2004.txt").write_bytes(qrels.read())


def use_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Makes this process see `home` as IR_DATASETS_HOME, which ir_datasets reads at its import, and no network."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(home))
    block_network(monkeypatch)
    for name in [name for name in sys.modules if name.split(".")[0] == "ir_datasets"]:
        monkeypatch.delitem(sys.modules, name)


def block_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every download fail at once, also on a machine that has a network."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def write_prebuilt_index(cache: Path, home: Path) -> Path:
    """Indexes the documents below `home` as Pyserini's `robust04` was made, at the place where Pyserini caches it."""
    from rerank.retrieval.java import java_class, start

    start()
    from pyserini.util import TF_INDEX_INFO

    about = TF_INDEX_INFO["robust04"]
    index = cache / "indexes" / f"{about['filename'].removesuffix('.tar.gz')}.{about['md5']}"
    index.parent.mkdir(parents=True, exist_ok=True)
    source = home / "disks45" / "corpus"
    options = ["-collection", "TrecCollection", "-input", str(source), "-index", str(index), "-threads", "2"]
    options += ["-storePositions", "-storeDocvectors", "-storeRaw", "-quiet"]
    java_class("io.anserini.index.IndexCollection").main(options)
    return index


def _documents(docs_per_topic: int, topics: list[str]) -> dict[str, str]:
    titles, judged, rng = _titles(), _judged(), random.Random(1)
    documents: dict[str, str] = {}
    for topic in topics:
        pools = judged[topic]
        relevant = rng.sample(pools[True], min(docs_per_topic // 2, len(pools[True])))
        for doc_id in [*relevant, *rng.sample(pools[False], docs_per_topic - len(relevant))]:
            words = [*rng.choices(WORDS, k=rng.randint(30, 80)), *titles[topic]]
            rng.shuffle(words)
            documents[doc_id] = _sgml(doc_id, f"{rng.choice(WORDS)} and {rng.choice(WORDS)}", words)
    return documents


def _titles() -> dict[str, list[str]]:
    text = (SHARED / "topics.robust04.txt").read_text()
    found = re.findall(r"<num> Number: (\d+)\s*<title>(.*?)<desc>", text, flags=re.DOTALL)
    return {topic: re.findall(r"[\w']+", title) for topic, title in found}


def _judged() -> dict[str, dict[bool, list[str]]]:
    judged: dict[str, dict[bool, list[str]]] = {}
    with gzip.open(SHARED / "qrels.robust2004.txt.gz", "rt") as lines:
        for line in lines:
            topic, _, doc_id, relevance = line.split()
            judged.setdefault(topic, {True: [], False: []})[int(relevance) > 0].append(doc_id)
    return judged


def _newspaper(doc_id: str) -> str:
    return next(start for start in FILES if doc_id.startswith(start))


def _sgml(doc_id: str, title: str, words: list[str]) -> str:
    """The document with the elements of its newspaper."""
    lines = [" ".join(words[i : i + 12]) for i in range(0, len(words), 12)]
    text = "\n".join(lines)
    paragraphs = "\n".join(f"<P>\n{line} \n</P>" for line in lines)
    body = {
        "FBIS": f"<HEADER>\n<DATE1>  1 March 1994 </DATE1>\n<H3> <TI>   {title} </TI></H3>\n</HEADER>\n\n"
        f"<TEXT>\nLanguage: <F P=105> English </F>\n  {text}\n</TEXT>",
        "FR": f"<PARENT> {doc_id} </PARENT>\n<TEXT>\n \n<!-- PJG FTAG 4700 -->\n"
        f"<DOCTITLE>{title} &hyph; notice</DOCTITLE>\n{text}\n</TEXT>",
        "FT": f"<DATE>910514\n</DATE>\n<HEADLINE>\nFT  14 MAY 91 / {title}\n</HEADLINE>\n<TEXT>\n{text}\n</TEXT>\n"
        f"<PUB>The Financial Times\n</PUB>",
        "LA": f"<DATE>\n<P>\nJanuary 1, 1989, Sunday, Home Edition \n</P>\n</DATE>\n<HEADLINE>\n<P>\n{title}; \n"
        f"</P>\n</HEADLINE>\n<TEXT>\n{paragraphs}\n</TEXT>\n<TYPE>\n<P>\nColumn \n</P>\n</TYPE>",
    }[_newspaper(doc_id)]
    return f"<DOC>\n<DOCNO> {doc_id} </DOCNO>\n{body}\n</DOC>\n"
