"""Mistakes of users, as a table: a command and what its one line says; exit code 2, and nothing is changed or written.

Each line names the flag or the file, what was given and what is expected.
"""

import json
import shlex
from pathlib import Path

import pytest

from rerank.utils.files import file_hash
from tests.support.small_collection import failed, in_a_copy

FILES = {
    "words.tsv": "n1 good\n",
    "twice.tsv": "n1\tgood\nn1\tbad\n",
    "nothing.tsv": "n1\tzzz\n",
    "good.tsv": "n1\tgood\n",
    "blank.tsv": "n1\tgood\nn2\t \n",
    "zero.toml": "[training]\nepochs = 0\n",
    "key.toml": "[training]\nlrr = 1\n",
    "section.toml": "[trainig]\nlr = 1\n",
    "bare.toml": "lr = 1\n",
    "alpha.toml": "[loss]\nalpha = 'x'\n",
    "hyper.toml": "[loss]\nalhpa = 1\n",
    "list.toml": "[training]\nlr = [1, 2]\n",
    "many.toml": "[training]\nepochs = 'many'\n",
    "high.toml": "[training]\nlr = 'high'\n",
    "hing.toml": "[loss]\nname = 'smoothi'\n[loss.hing]\nmargin = 2.0\n",
    "broken.toml": "[training\n",
    "deep.toml": "a = " + "[" * 100_000,
    "empty/corpus.jsonl": "",
    "bare/notes": "",
    "nan.run": "q0 Q0 d0-0 1 2.5 t\nq0 Q0 d0-1 2 nan t\n",
    "other.run": "x0 Q0 d0-0 1 2.5 t\n",
    "foreign.run": "".join(f"q{q} Q0 d{q}-0 1 2.5 t\nq{q} Q0 d0-99 2 2 t\n" for q in range(15)),
}
LONG = "x" * 300
FOLD, SCORE, SEARCH = "train --config towns.toml --fold 1", "score CHECKPOINT RUN --out no.run", "search CHECKPOINT"
MISTAKES = {
    # arguments
    "train towns": "towns: `rerank train` takes no argument; --collection towns names a collection",
    "verify RUN more": "more: `rerank verify` takes no such argument; `rerank verify --help` shows what it takes",
    "fit": "rerank: `rerank fit`: expected COLLECTION, got none; `rerank fit --help` has an example",
    "mine towns --out no.jsonl": "rerank: `rerank mine`: expected --by, got none",
    "mine towns --out no.jsonl --by": 'rerank: Command "mine" parameter --by requires an argument.',
    # values of settings
    f"{FOLD} --seed -1": "--training.seed: got -1",
    f"{FOLD} --seed {2**63}": f"--training.seed: got {2**63}, expected 0 to {2**63 - 1}",
    f"{FOLD} --first-stage.k1 1e308": "--first-stage.k1: got 1e+308, expected 0 to 1000000",
    f"{FOLD} --first-stage.b 2": "--first-stage.b: got 2.0, expected 0 to 1",
    f"{FOLD} --training.head-lr inf": "--training.head-lr: got inf, expected a finite number",
    f"{FOLD} --lr 1e39": "--training.lr: got 1e+39, expected 3.4028234e+38 at most",
    f"{FOLD} --epochs 2.5": "--epochs: expected a whole number, got 2.5",
    f"{FOLD} --loss listap --loss.bins 1e1": "--loss listap: bins: expected int, got '1e1'",
    f"{FOLD} --depth {2**31}": f"--first-stage.depth: got {2**31}, expected {2**31 - 1} at most",
    f"{FOLD} --training.max-tokens-per-forward 1": "--training.max-tokens-per-forward: got 1, expected 64 or more",
    f"{FOLD} --device gpu": "--training.device: got gpu, expected auto, cpu, cuda, cuda:N or mps",
    f"{FOLD} --training.measure nDGC@20": "measures: unknown 'nDGC@20' (did you mean nDCG@20?)",
    f"{FOLD} --loss smothi": "--loss smothi: no such loss",
    f"{FOLD} --loss hinge --loss.alpha 3": "--loss hinge: has no hyperparameter alpha; it takes margin",
    f"{FOLD} --loss.delta 0.7": "--loss smoothi: ",
    f"{FOLD} --loss hinge --loss.pairs some": "--loss hinge: pairs must be all or matched, got some",
    f"{FOLD} --loss.no-stop-gradient=false": "has no hyperparameter no_stop_gradient; it takes metric, alpha, delta",
    f"{FOLD} --training.lr fast": 'Invalid value for --training.lr: unable to convert "fast" into float.',
    f"{FOLD} --encoder.pooling men": "men",
    f"{FOLD} --name 'my exp'": "--output.name: got my exp, expected letters",
    f"{FOLD} --name index": "--output.name: got index, expected",
    f"{FOLD} --name {LONG}": "expected 200 bytes at most, got 300",
    f"{FOLD} --output.folder towns.toml": "--output.folder towns.toml: is not a folder; expected a folder",
    f"{FOLD} --collection {LONG}": "File name too long",
    f"{FOLD} --collection 'a\0b'": "expected a name without NUL characters",
    f"{FOLD} --collection.folds 3 --name x": "other folds (1, 2, 3, 4, 5; now 1, 2, 3)",
    "train --config towns.toml --fold 9": "fold 9: no such fold; expected 1, 2, 3, 4, 5, all or final",
    "train --config towns.toml --fold 4 --collection.folds 3": "fold 4: no such fold; expected 1, 2, 3, all or final",
    # files and folders
    f"{FOLD} --encoder ./nowhere": "--encoder ./nowhere: no such file or folder",
    f"{FOLD} --collection /nowhere/at/all": "--collection /nowhere/at/all: no such file or folder",
    f"{FOLD} --first-stage.run ~/nowhere.run": "/nowhere.run: no such file",
    f"{FOLD} --name new --encoder nowhere": "encoder nowhere",
    f"{FOLD} --name new --first-stage.run nan.run": "nan.run:2: expected `query_id Q0 doc_id rank score tag`",
    f"{FOLD} --name new --first-stage.run other.run": "no query in common",
    f"{FOLD} --name new --first-stage.run foreign.run": "d0-99",
    "train --config nowhere.toml": "--config nowhere.toml: no such file",
    "eval runs/towns": "runs/towns: is a folder, expected a run file",
    # flags and files of settings
    f"{FOLD} --alpha 1": "Did you mean --loss.alpha?",
    f"{FOLD} --training.lrr 1": "Did you mean --training.lr?",
    f"{SCORE} --training.lr 1": "--training.lr: has no effect on `rerank score`, which does not take it",
    "train --config zero.toml": "zero.toml: --training.epochs: got 0, expected 1 or more",
    "train --config key.toml": "key.toml: [training] lrr: no such setting; did you mean --training.lr?",
    "train --config section.toml": "section.toml: [trainig] lr: no such setting; did you mean --training.lr?",
    "train --config bare.toml": "bare.toml: lr: expected a section such as [training], got lr = 1",
    "train --config alpha.toml": "alpha.toml: [loss] alpha: expected float, got 'x'",
    "train --config hyper.toml": "hyper.toml: [loss] alhpa: no such setting; did you mean --loss.alpha?",
    "train --config list.toml": "list.toml: [training] lr: expected one value, got [1, 2]",
    "train --config many.toml": "many.toml: Invalid value for --training.epochs: expected a whole number, got many",
    "train --config high.toml": "--training.lr from high.toml: ",
    "train --config hing.toml": "hing.toml: [loss.hing]: no such loss; did you mean hinge?",
    "train --config broken.toml": "broken.toml: not TOML: Expected ']'",
    "train --config deep.toml": "--config deep.toml: not TOML: ",
    # score
    "score ./nowhere RUN --out no.run --collection towns": "encoder ./nowhere: no such folder; check the",
    "score runs/a/b/fold1/checkpoint RUN --out no.run": "encoder runs/a/b/fold1/checkpoint: no such folder; check the",
    "score encoder RUN --out no.run --collection towns": "train it first",
    "score CHECKPOINT nowhere.run --out no.run": "run nowhere.run: no such file",
    "score CHECKPOINT runs/towns --out no.run": "run runs/towns: is a folder, expected a file",
    "score CHECKPOINT RUN --out towns": "--out towns: is a folder",
    f"{SCORE} --on spark": "--on: got spark, expected local, ray or ray://HOST:10001",
    f"{SCORE} --collection.queries none.tsv": "--collection.queries none.tsv: no such file",
    f"{SCORE} --collection.queries words.tsv": "words.tsv:1: expected a query's id, a tab and its text, got 'n1 good'",
    f"{SCORE} --collection.queries twice.tsv": "twice.tsv:2: the query n1 occurs a second time",
    f"{SCORE} --collection.queries good.tsv": "good.tsv: has the text of none of the 15 queries of runs/towns/bm25.run",
    f"{SCORE} --collection.language xx": "--collection.language xx: Lucene has no analyzer of that code",
    "score CHECKPOINT --out no.run --collection.queries nothing.tsv": "nothing.tsv: BM25 finds no document for any",
    # search
    f"{SEARCH} ''": "query: is empty; expected a text to search for",
    f"{SEARCH} \udcff": "query: is not Unicode text",
    SEARCH: "expected a query, or --queries, a file of queries; got neither",
    f"{SEARCH} good --queries good.tsv": "expected a query, or --queries, a file of queries; got both",
    f"{SEARCH} --queries blank.tsv": "blank.tsv: the query n2 is empty; expected a text to search for",
    "search encoder good --collection towns": "train it first",
    f"{SEARCH} good --collection empty": "there is no document with text to index",
    f"{SEARCH} good --collection bare": "bare: no corpus.jsonl",
    # serve
    "serve CHECKPOINT --host no.such.host.invalid": "--host no.such.host.invalid: no such address",
    "serve CHECKPOINT --port 70000": "--port: got 70000, expected 0 to 65535",
    "serve CHECKPOINT --api-key-file missing": "--api-key-file missing: cannot be read: No such file",
    "serve CHECKPOINT --max-queue 5": "--max-documents 1000: a request would not fit into the queue",
    "serve CHECKPOINT --max-doc-tokens some": "--max-doc-tokens",
    "serve CHECKPOINT --speed exact --training.precision bf16": "--training.precision bf16: --speed exact is float32;",
    "serve CHECKPOINT --port 0 --collection bare": "bare: no corpus.jsonl",
    "serve encoder --port 0": "without a trained head",
}
NAMES = {"CHECKPOINT": "runs/towns/smoothi/fold1/checkpoint", "RUN": "runs/towns/bm25.run"}


OWN = ("runs/empty", "runs/towns/new/config.toml")
"""What commands that are refused late have made."""


def hashes(folder):
    return {file: file_hash(file) for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".lock"}


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """A trained fold and FILES; none of its files may change."""
    with in_a_copy(trained, tmp_path_factory) as folder:
        for name, text in FILES.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text)
    before = hashes(folder)
    yield folder
    after = hashes(folder)
    assert {file: after.get(file) for file in before} == before
    new = {str(path.relative_to(folder)) for path in after.keys() - before.keys()}
    assert not [name for name in new if not name.startswith(OWN)], new


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    found = failed(capsys, *(NAMES.get(word, word) for word in shlex.split(line)))
    assert MISTAKES[line] in found
    assert len(found) < 2100


QRELS, CONFIG, RETRIEVE = "towns/qrels/test.tsv", "encoder/config.json", "retrieve --collection towns"
DAMAGED = [
    (QRELS, b"q0\td\xff\t1\n", RETRIEVE, "an integer relevance, got"),
    (
        QRELS,
        b"q0\td0-0\tone\n",
        RETRIEVE,
        "test.tsv:1: expected `query-id corpus-id score` with an integer relevance, got 'q0 d0-0 one'",
    ),
    (
        "runs/towns/bm25.json",
        b"[1]",
        FOLD,
        "bm25.json: expected `object`, got `array`; remove it and bm25.run to",
    ),
    (
        "towns/corpus.jsonl",
        b'{"_id": "a\\u0000b", "text": "x"}',
        f"{RETRIEVE} --output.folder new",
        "towns/corpus.jsonl:1: the _id 'a\\x00b' is empty or has white space or a NUL",
    ),
    (CONFIG, "x", FOLD, f"{CONFIG}: expected `object`, got `str` - at `$.rerank`"),
]
"""What is damaged: the file, its bytes or the value of `rerank` in its JSON, a command, and what its line says."""


@pytest.mark.parametrize(("file", "content", "line", "expected"), DAMAGED)
def test_a_damaged_file_is_named(here, capsys, file, content, line, expected):
    path = Path(file)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rerank": content}))
    assert expected in failed(capsys, *shlex.split(line))
