"""Documents that change after a fit: what is embedded again, and `rerank update`."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import rerank
from rerank.cli.main import main
from rerank.config import CollectionSettings, Config
from rerank.data.runs import read_run
from rerank.models.bi_encoder import BiEncoder
from rerank.models.late_interaction import TokenEncoder
from rerank.pipelines.open import older_than, open_to_serve
from rerank.pipelines.record import read_evidence
from rerank.pipelines.stages.world import World
from rerank.utils import files
from tests.pipelines.towns import FOLDER, QUERY, pipeline
from tests.support.small_collection import exit_code, failed, in_a_copy

NEW, CHANGED, REMOVED = "new", "d0-0", "d14-5"


@pytest.fixture(scope="module")
def home(home, tmp_path_factory, the_last_stage_answers):
    """A copy of the collection with a fitted pipeline, and a portable one."""
    with in_a_copy(home, tmp_path_factory) as folder:
        rerank.fit("towns", pipeline())
        rerank.fit("towns", pipeline(), out="portable", portable=True)
    return folder


def change():
    """A new, a changed and a removed document."""
    file = Path("towns/corpus.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = [line | {"text": "good again"} if line["_id"] == CHANGED else line for line in lines]
    lines = [{"_id": NEW, "title": "", "text": "alpha0 new"}, *(line for line in lines if line["_id"] != REMOVED)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def changed(here, monkeypatch):
    """The collection with other documents; gives the texts that are embedded from now on."""
    change()
    read, encode = [], BiEncoder.encode_documents
    monkeypatch.setattr(BiEncoder, "encode_documents", lambda self, texts: read.extend(texts) or encode(self, texts))
    token_vectors = TokenEncoder.document
    monkeypatch.setattr(TokenEncoder, "document", lambda self, text: read.append(text) or token_vectors(self, text))
    return read


def learned(folder=FOLDER):
    files = [file for name in ("stages", "runs") for file in (folder / name).rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in [*files, folder / "pipeline.toml"]}


def vectors(world):
    store = world.vectors("encoder")
    return {doc_id: store.vectors_of(number) for number, doc_id in enumerate(store.ids)}


def test_a_fit_embeds_new_and_changed_documents_alone(changed, capsys):
    """A line says that vectors are not used, and why."""
    rerank.fit("towns", pipeline())
    assert "the documents have changed; new and changed ones are embedded" in capsys.readouterr().err
    assert sorted(changed) == ["alpha0 new", "alpha0 new", "good again", "good again"]  # vectors, and those of tokens
    again = vectors(rerank.Pipeline.load(FOLDER).fitted.world)
    shutil.rmtree("runs")
    afresh = vectors(World.open(rerank.config.Config("towns")))
    assert list(again) == list(afresh)
    for doc_id, some in afresh.items():  # a vector depends, by rounding, on the texts beside it
        np.testing.assert_allclose(again[doc_id], some, atol=1e-6)
    assert "embedded" not in capsys.readouterr().err


@pytest.mark.parametrize("folder", [FOLDER, Path("portable")])
def test_an_update_takes_the_documents_and_learns_nothing(folder, changed, capsys):
    before, evidence = learned(folder), read_evidence(folder)
    main(["update", str(folder)])
    assert capsys.readouterr().out.strip() == str(folder)
    assert sorted(changed) == ["alpha0 new", "good again"]
    assert learned(folder) == before
    assert read_evidence(folder) == evidence | {"older_documents": True}
    run = rerank.Pipeline.load(folder).rank({QUERY: "alpha0 new"})[QUERY]
    assert NEW in run
    assert REMOVED not in run
    assert exit_code("verify", str(folder)) == 0
    manifest = (folder / "manifest.json").read_bytes()
    main(["update", str(folder)])
    assert "already has these documents" in capsys.readouterr().err
    assert (folder / "manifest.json").read_bytes() == manifest
    main(["report", str(folder)])
    assert "Measured before `rerank update`" in folder.with_name(f"{folder.name}-report.html").read_text()


@pytest.mark.parametrize("folder", [FOLDER, Path("portable")])
def test_a_server_answers_with_what_it_opened_before_an_update(folder, here, tmp_path):
    """Also a search that comes first after the update."""

    def opened(name):
        (tmp_path / name).mkdir()
        config = Config(collection=CollectionSettings(source=""))
        return open_to_serve(str(folder), config, None, None, tmp_path / name)[1]

    def found(pipeline):
        return [pipeline.search(query, explain=True) for query in ("amber0", "good again", "birch1 new")]

    asked, waiting = opened("asked"), opened("waiting")
    before = found(asked)
    change()
    main(["update", str(folder)])
    for served in (asked, waiting):
        assert found(served) == before
        assert older_than(served.fitted.world.collection.origin).startswith("serving the documents that ")
    new = opened("new")
    assert found(new) != before
    assert older_than(new.fitted.world.collection.origin) == ""


def test_a_kill_between_the_two_renames_leaves_the_old_pipeline(changed, monkeypatch, capsys):
    before, replace = learned(), os.replace

    def killed(source, target):
        if Path(target) == FOLDER:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        patch.setattr(files, "_clear", lambda part: None)
        with pytest.raises(SystemExit):
            main(["update", str(FOLDER)])
    monkeypatch.setattr(files, "TOKEN", "0" * 8)  # as of a container that is started again
    assert not FOLDER.exists()
    assert "have changed since the fit" in failed(capsys, "search", str(FOLDER), "good")
    assert learned() == before
    main(["update", str(FOLDER)])
    main(["score", str(FOLDER), "--out", "all.run"])
    assert read_run("all.run").keys() == rerank.open_collection("towns").queries.keys()


def test_what_is_no_pipeline_is_not_updated(here, capsys):
    assert "towns: is no fitted pipeline" in failed(capsys, "update", "towns")
