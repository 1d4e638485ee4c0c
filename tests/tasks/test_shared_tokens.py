"""`--encoder.passage-overlap` and `--encoder.title-tokens`: all commands and Python read the same passages."""

import json
import shutil
from pathlib import Path

import pytest

from rerank import Reranker, open_collection
from rerank.cli.main import main
from rerank.data.splitting import NOTHING_SHARED, Splitting
from rerank.data.trec import read_run
from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from tests.support.small_collection import command, failed, in_a_copy
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

FLAGS = ["--encoder", "short", "--encoder.pooling", "softmax"]
SHARED = ["--encoder.passage-overlap", "3", "--encoder.title-tokens", "2"]
FOLD = Path("runs/towns/shared/fold1")


def train(name, *flags):
    main(command("--fold", "1", "--name", name, "--first-stage.depth", "5", *FLAGS, *flags))


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with an encoder of 20 tokens, and a fold trained with tokens that passages share."""
    with in_a_copy(home, tmp_path_factory) as folder:
        make_encoder("bert", Path("short"), [*WORDS, "good", "bad"], max_positions=20)
        train("shared", *SHARED)
    return folder


def test_a_checkpoint_records_what_passages_share_and_scores_as_in_its_test(here):
    saved = json.loads((FOLD / "checkpoint" / "config.json").read_text())["rerank"]
    assert (saved["passage_overlap"], saved["title_tokens"], saved["pooling"]) == (3, 2, "softmax")
    assert "title_tokens = 2" in (FOLD / "checkpoint" / "README.md").read_text()
    model, collection = Reranker.load(FOLD / "checkpoint"), open_collection("towns")
    expected = read_run(FOLD / "test.run")
    assert model.model.splitting == Splitting(3, 2)
    first = read_run(Path("runs/towns/bm25.run"))
    found = model.rerank({query_id: first[query_id] for query_id in expected}, collection, 5)
    main(["score", str(FOLD / "checkpoint"), "runs/towns/bm25.run", "--first-stage.depth", "5", "--out", "again.run"])
    again = read_run(Path("again.run"))
    for query_id, scores in expected.items():
        assert found[query_id] == pytest.approx(scores, abs=1e-5)
        assert again[query_id] == pytest.approx(scores, abs=1e-5)
    model.model.splitting = NOTHING_SHARED
    plain = model.rerank({query_id: first[query_id] for query_id in expected}, collection, 5)
    assert any(plain[q][d] != pytest.approx(s, abs=1e-6) for q in expected for d, s in expected[q].items())


def test_a_model_that_goes_on_training_without_them_forgets_them(here):
    folder = Path("again")
    model, tokenizer, _ = open_cross_encoder(str(FOLD / "checkpoint"), "mean", 0)
    assert model.splitting == NOTHING_SHARED
    save_cross_encoder(model, tokenizer, folder, 50)
    saved = json.loads((folder / "config.json").read_text())["rerank"]
    assert "passage_overlap" not in saved
    assert "title_tokens" not in saved


def test_the_best_passage_is_found_in_its_text(here):
    """With the pooling max, and tokens shared with the passage before: a passage has by itself the document's score."""
    folder = shutil.copytree(FOLD / "checkpoint", Path("overlapping"))
    config = json.loads((folder / "config.json").read_text())
    config["rerank"] |= {"pooling": "max", "title_tokens": 0}
    (folder / "config.json").write_text(json.dumps(config))
    model = Reranker.load(folder)
    documents = [" ".join((WORDS * 9)[place : place + 60 + place]) for place in range(12)]
    passages = model.rank_passages("amber", documents)
    texts = [documents[best.index][best.begin : best.end] for best in passages]
    assert model.score("amber", texts).tolist() == pytest.approx([best.score for best in passages], abs=1e-5)
    assert all(len(text.split()) < 20 for text in texts)
    assert any(best.begin for best in passages)


def test_too_many_shared_tokens_are_refused(here, capsys):
    said = failed(capsys, *command("--fold", "1", *FLAGS, "--encoder.passage-overlap", "15"))
    assert "--encoder.passage-overlap 15 and --encoder.title-tokens 0: expected together less than" in said
    said = failed(capsys, *command("--fold", "1", *FLAGS, "--encoder.title-tokens", "-1"))
    assert "--encoder.title-tokens" in said
