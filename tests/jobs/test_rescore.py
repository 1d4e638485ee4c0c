"""Re-ranking from Python: with an open collection, with the collection of the checkpoint, and without either."""

import json
from pathlib import Path

import pytest

from rerank.config import CollectionSettings, Config
from rerank.data.collections import open_collection
from rerank.data.trec import read_run
from rerank.jobs.rescore import rescore
from rerank.jobs.train import train_folds
from rerank.runs.layout import ExperimentFolder
from rerank.utils.errors import UserError
from tests.support.small_collection import SETTINGS

RUN = Path("runs/towns/bm25.run")


@pytest.fixture
def checkpoint(here):
    """A fold trained from Python."""
    import tomllib

    from rerank.config import EncoderSettings, TrainingSettings

    sections = tomllib.loads(SETTINGS)
    config = Config(
        collection=CollectionSettings(**sections["collection"]),
        encoder=EncoderSettings(**sections["encoder"]),
        training=TrainingSettings(**sections["training"]),
    )
    folder = train_folds(config, "1")
    assert folder == ExperimentFolder(Path("runs/towns/smoothi"))
    return folder.fold("1").checkpoint


def without_collection(checkpoint):
    """Makes the checkpoint one that does not record the collection, as of another program."""
    file = checkpoint / "config.json"
    settings = json.loads(file.read_text())
    assert settings["rerank"].pop("collection") == "towns"
    file.write_text(json.dumps(settings))


def test_the_collection_is_an_open_one_or_that_of_the_checkpoint(checkpoint):
    rescore(Config(), str(checkpoint), RUN, Path("named.run"), "towns")
    rescore(Config(), str(checkpoint), RUN, Path("open.run"), open_collection("towns"))
    rescore(Config(), str(checkpoint), RUN, Path("recorded.run"))
    named = read_run("named.run")
    assert len(named) == 15
    for name in ("open", "recorded"):
        assert read_run(f"{name}.run") == named
        assert json.loads(Path(f"{name}.run.json").read_text())["config"]["collection"]["source"] == "towns"


def test_a_checkpoint_that_does_not_know_its_collection(checkpoint):
    without_collection(checkpoint)
    checkpoint.rename("alone")
    with pytest.raises(UserError, match=r"alone: does not record the collection .* name one with --collection"):
        rescore(Config(), "alone", RUN, Path("out.run"))


def test_a_collection_that_is_gone(checkpoint):
    Path("towns").rename("moved")
    with pytest.raises(UserError, match=r"the collection that it was trained on cannot be opened: .*--collection"):
        rescore(Config(), str(checkpoint), RUN, Path("out.run"))


def test_an_open_collection_keeps_the_queries_that_it_was_opened_with(checkpoint):
    Path("new.tsv").write_text("n1\tamber0 good\n")
    before = RUN.read_bytes()
    rescore(Config(), str(checkpoint), None, Path("open.run"), open_collection("towns", queries="new.tsv"))
    assert list(read_run("open.run")) == ["n1"]
    config = Config(collection=CollectionSettings("towns", queries="new.tsv"))
    rescore(config, str(checkpoint), None, Path("set.run"), "towns")
    assert read_run("set.run") == read_run("open.run")
    assert len(list(Path("runs/towns").glob("bm25-queries=new-*.run"))) == 1
    assert RUN.read_bytes() == before
