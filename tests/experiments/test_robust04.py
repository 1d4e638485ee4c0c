"""TREC Robust04 as a user would type it, on a stand-in for the documents with the real topics, qrels and folds."""

import json

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from tests.support import robust04_standin as standin
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

TOPICS = ["302", "303", "304", "305", "306", "307", "308", "312", "320", "325", "601", "602", "603", "604", "609"]
QUICK = ["--epochs", "1", "--training.lists-per-epoch", "8"]


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A folder where `bert-base-uncased` is a tiny BERT, so that the default name needs no network."""
    monkeypatch.chdir(tmp_path)
    make_encoder("bert", tmp_path / "bert-base-uncased", WORDS)
    return tmp_path


@standin.needs_topics
def test_with_the_prebuilt_index_alone(user, monkeypatch):
    """The texts come from the raw documents that the index stores."""
    standin.write_standin(user / "owner", docs_per_topic=6, topics=TOPICS)
    standin.write_topics(user / "ir")
    monkeypatch.setenv("PYSERINI_CACHE", str(user / "cache"))
    standin.write_prebuilt_index(user / "cache", user / "owner")
    standin.use_home(monkeypatch, user / "ir")
    main(["train", "--fold", "1", "--loss", "smoothi", *QUICK])
    fold = user / "runs" / "disks45-nocr-trec-robust-2004" / "smoothi" / "fold1"
    manifest = json.loads((fold / "manifest.json").read_text())
    assert [len(manifest["fold"][part]) for part in ("train", "valid", "test")] == [150, 50, 50]
    assert "302" in manifest["fold"]["test"]  # Huston & Croft's fold 1
    assert "304" in manifest["fold"]["valid"]  # fold 5, the one before
    assert {"302", "303"} <= set(read_run(fold / "test.run")) <= set(manifest["fold"]["test"])
