"""The stand-ins that the code of pages runs with: small collections, models and runs, by the names in the pages."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.small_features import write_folds_of_features
from tests.support.small_world import WORDS
from tests.support.tiny_decoders import make_decoder
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

SUBJECTS = ("wing flutter", "heat transfer", "boundary layer", "jet noise", "shock wave", "turbine blade")
"""The queries."""
DOCUMENTS = 6
"""Documents of a subject; a third of them is relevant, and says so."""
PASSAGE = 24
"""Tokens that an encoder reads: some documents are longer."""

ENCODERS = (
    "microsoft/MiniLM-L12-H384-uncased",
    "microsoft/MiniLM-L6-H384-uncased",
    "sentence-transformers/all-MiniLM-L6-v2",
    "bert-base-uncased",
    "deepset/gbert-base",
)
CROSS_ENCODERS = ("cross-encoder/ms-marco-MiniLM-L12-v2", "cross-encoder/ms-marco-MiniLM-L6-v2")
DECODER = "my-qwen3-reranker"
COLLECTIONS = {"my-collection": 6, "cranfield": 5, "msmarco": 5}
"""Judged queries of the collections. Six are the fewest that `rerank fit` learns from."""
FIRST_STAGES = ("bm25", "dense", "splade", "ours", "theirs", "some", "big", "new-queries")

QUICK = ("--epochs", "1", "--training.lists-per-epoch", "8")
"""Flags of trainings, where a page has no other number of epochs."""
TRAIN = ("train", "--collection", "my-collection", "--encoder", ENCODERS[0])
TRAININGS: dict[str, Sequence[Sequence[str]]] = {
    "experiments": [
        [*TRAIN, "--name", "minilm", *QUICK],
        [*TRAIN, "--name", "minilm", "--fold", "final", *QUICK],
        [*TRAIN, "--loss", "smoothi", *QUICK],
        [*TRAIN, "--loss", "smoothi", "--fold", "final", *QUICK],
    ],
    "pipeline": [["fit", "my-collection"]],
    "demo": [
        [
            *("train", "--collection", "runs/demo/collections/towns", "--encoder", "bert-base-uncased", "--fold", "1"),
            *("--output.folder", "runs/demo", "--depth", "3", "--encoder.max-doc-tokens", "16", *QUICK),
        ]
    ],
}
"""The commands behind `runs/`, in groups that need nothing of each other."""


def write_inputs(root: Path) -> None:
    """Writes the collections, the models, the demo's collection and the examples into the working directory."""
    from rerank.data.demo import make_collection

    shutil.copytree(root / "examples", "examples")
    for name, judged in COLLECTIONS.items():
        write_collection(Path(name), judged)
    words = [*WORDS, *" ".join(SUBJECTS).split(), "measured", "estimated"]
    for name in ENCODERS:
        make_encoder("bert", Path(name), words, max_positions=PASSAGE)
    for name in CROSS_ENCODERS:
        make_cross_encoder("bert", Path(name), words, max_positions=PASSAGE)
    make_decoder("qwen3", Path(DECODER), words)
    write_folds_of_features(Path("MQ2008"))
    make_collection(Path("runs/demo/collections/towns"))


def write_collection(folder: Path, judged_queries: int) -> None:
    """A collection in BEIR's layout of all SUBJECTS, with judgments of some."""
    rng = random.Random(0)
    corpus, asked, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for number, subject in enumerate(SUBJECTS):
        description = f"documents about {subject}"
        asked.append({"_id": f"q{number}", "text": subject, "title": subject, "description": description})
        for place in range(DOCUMENTS):
            relevant = place % 3 == 0
            said = rng.choices(WORDS, k=rng.randint(4, 30))
            words = [*subject.split(), *said, "measured" if relevant else "estimated"]
            rng.shuffle(words)
            title = f"{subject} {said[0]}"
            corpus.append({"_id": f"d{number}-{place}", "title": title, "text": " ".join(words)})
            if number < judged_queries:
                judged.append(f"q{number}\td{number}-{place}\t{int(relevant)}")
    (folder / "qrels").mkdir(parents=True)
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", asked)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n")


def write_files() -> None:
    """Writes the files that pages read beside `runs/`: runs, judgments and new queries."""
    runs = Path("runs/my-collection")
    for name in FIRST_STAGES:
        source = runs / "smoothi" / "all.run" if name in ("ours", "theirs") else runs / "bm25.run"
        shutil.copy(source, f"{name}.run")
    for name in ("qrels.txt", "valid.txt", "new.qrels"):
        shutil.copy(runs / "qrels.txt", name)
    Path("topics.tsv").write_text("".join(f"q{number}\t{subject}\n" for number, subject in enumerate(SUBJECTS[:3])))
    topic = "<top>\n<num> Number: {}\n<title> {}\n<desc> Description:\nWhat is known?\n</top>\n"
    topics = "".join(topic.format(number, subject) for number, subject in enumerate(SUBJECTS[:3]))
    Path("topics.robust04.txt").write_text(topics)
    Path("grid.toml").write_text('fold = "1"\n[[grid]]\nloss.name = ["hinge"]\n')
    lists = [{"query_id": f"q{n}", "doc_ids": [f"d{n}-0", f"d{n}-1"], "labels": [1, 0]} for n in range(len(SUBJECTS))]
    Path("lists.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lists))
    triples = [
        {"anchor": subject, "positive": f"{subject} measured", "negative": f"{subject} estimated"}
        for subject in SUBJECTS
    ]
    Path("triples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in triples))
    Path("new.txt").write_text("0 qid:a 1:0.5 # docid = x\n0 qid:a 1:0.1 # docid = y\n")
    Path("key.txt").write_text("secret\n")
    Path(".curlrc").write_text("fail-with-body\n")  # an answer of 400 and more is an error
