"""Pre-training as a user runs it: from documents alone, once for all folds and losses, interrupted, with mistakes."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rerank.cli.main import main
from rerank.config import Config, EncoderSettings, PretrainingSettings
from rerank.data.formats import beir
from rerank.data.trec import read_run
from rerank.jobs.pretraining import pretrain
from tests.support.small_collection import (
    NAMES,
    SETTINGS,
    failed,
    run_beside_another,
    write_collection,
    write_documents,
)
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

TABLE = """
[pretraining]
steps = 6
lists_per_step = 4
validate_every = 3
lr = 1e-3
held_out = 6
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Documents, the same with queries and judgments, an encoder, and both indexed."""
    folder = tmp_path_factory.mktemp("home")
    write_documents(folder / "documents")
    make_encoder("bert", folder / "encoder", [*WORDS, *NAMES], max_positions=32)
    write_collection(folder / "towns")
    (folder / "warm.toml").write_text(SETTINGS + TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["retrieve", "--collection", "towns"])
        main(pretraining("documents", "--out", "warm"))
    return folder


def pretraining(source, *words):
    return ["pretrain", "--config", "warm.toml", "--collection", source, *words]


def folder_of(collection):
    (folder,) = Path("runs", collection).glob("pretrained-*")
    return folder


def test_it_needs_no_query_and_no_judgment_and_cannot_open_them(here, capsys, monkeypatch):
    """The same corpus with queries and judgments beside it gives the same weights: they were not there to be read."""
    assert sorted(path.name for path in Path("documents").iterdir()) == ["corpus.jsonl"]
    with_queries = write_collection(Path("elsewhere") / "documents")
    shutil.copy2("documents/corpus.jsonl", with_queries / "corpus.jsonl")

    def closed(*_):
        raise AssertionError("a pre-training opened queries or judgments")

    monkeypatch.setattr(beir.BeirFolder, "queries", property(closed))
    monkeypatch.setattr(beir, "_read_qrels", closed)
    main(pretraining(str(with_queries), "--out", "again", "--output.folder", "other"))
    assert capsys.readouterr().out.strip() == "again"
    assert Path("again", "model.safetensors").read_bytes() == Path("warm", "model.safetensors").read_bytes()
    (again,) = Path("other", "documents").glob("pretrained-*")
    assert (again / "lists.jsonl").read_text() == (folder_of("documents") / "lists.jsonl").read_text()


def records(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_is_held_out_is_in_no_training_list(here):
    folder = folder_of("documents")
    train, held_out = records(folder / "lists.jsonl"), records(folder / "held-out.jsonl")
    assert (len(train), len(held_out)) == (24, 6)
    assert all(len(record["documents"]) == 5 for record in train)
    assert all(len(record["documents"]) == 10 for record in held_out)
    sources = {record["documents"][record["labels"].index(1)].split(".")[-2] for record in held_out}
    assert len(sources) == 6
    assert not [text for record in train for text in record["documents"] for source in sources if source in text]


def test_the_checkpoint_says_how_it_was_made_and_is_an_ordinary_encoder(here):
    folder = folder_of("documents")
    assert not (folder / "state").exists()
    manifest = json.loads((folder / "manifest.json").read_text())
    facts = manifest["pretraining"]
    assert folder.name == f"pretrained-{facts['hash']}"
    assert facts["steps"] in (3, 6)
    assert facts["mrr_held_out"] == round(max(record["valid"] for record in manifest["history"]), 4)
    main(["score", "warm", "runs/towns/bm25.run", "--collection", "towns", "--out", "alone.run"])
    assert len(read_run("alone.run")) == 15
    Path("plain.toml").write_text(SETTINGS)
    main(["train", "--config", "plain.toml", "--fold", "1", "--encoder", "warm", "--name", "after"])
    assert json.loads(Path("runs/towns/after/fold1/manifest.json").read_text())["pretraining"] == facts


def test_folds_that_are_trained_side_by_side_make_it_once(here, capsys):
    run_beside_another(capsys, folder_of("documents"), "pre-training", *pretraining("documents", "--out", "second"))
    assert "already exists" in capsys.readouterr().err
    assert Path("second", "model.safetensors").read_bytes() == Path("warm", "model.safetensors").read_bytes()


def test_folds_and_losses_share_one_warm_up_and_their_manifests_name_it(here, capsys):
    main(["train", "--config", "warm.toml", "--fold", "1"])
    folder = folder_of("towns")
    made = (folder / "checkpoint" / "model.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    main(["train", "--config", "warm.toml", "--fold", "2", "--loss", "hinge"])
    assert "already exists" in capsys.readouterr().err
    main(["train", "--config", "warm.toml", "--fold", "1", "--pretraining.steps", "0", "--name", "cold"])
    assert folder_of("towns") == folder
    assert (folder / "checkpoint" / "model.safetensors").stat().st_mtime_ns == made
    names = ("smoothi/fold1", "hinge/fold2", "cold/fold1")
    first, second, cold = (
        json.loads(Path(f"runs/towns/{name}/manifest.json").read_text())["pretraining"] for name in names
    )
    assert first["hash"] == second["hash"] == folder.name.removeprefix("pretrained-")
    assert first["pseudo_queries"] in (12, 24)
    assert cold is None
    runs = [f"runs/towns/{name}/fold1/test.run" for name in ("smoothi", "cold")]
    assert read_run(runs[0]) != read_run(runs[1])
    main(["train", "--config", "warm.toml", "--fold", "3", "--name", "smoothi"])  # the same settings go on
    assert "pretraining.steps = 6; here pretraining.steps = 0" in failed(
        capsys, "train", "--config", "warm.toml", "--fold", "4", "--pretraining.steps", "0"
    )


def test_an_interrupted_warm_up_goes_on_and_ends_with_the_same_weights(here, capsys, interrupted):
    shutil.rmtree(folder_of("documents"))
    assert interrupted(pretraining("documents", "--out", "again")) == 130
    assert not Path("again").exists()
    main(pretraining("documents", "--out", "again"))
    assert "resuming after epoch 1" in capsys.readouterr().err
    assert Path("again/model.safetensors").read_bytes() == Path("warm/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--pretraining.lr", "-1"], "--pretraining.lr: got -1.0, expected 0 or more"),
        (["--out", "towns"], "--out towns: already exists"),
    ],
)
def test_a_mistake_is_one_line(here, capsys, words, expected):
    given = [] if "--out" in words else ["--out", "new"]
    assert expected in failed(capsys, *pretraining("documents", *given, *words))
    assert not Path("new").exists()


def test_too_few_or_too_short_documents_are_counted(here, capsys):
    write_documents(Path("few"), count=9)
    line = failed(capsys, *pretraining("few", "--out", "new"))
    assert "few: 9 of 9 documents can make pseudo-queries, expected 10 or more" in line
    Path("short").mkdir()
    lines = [json.dumps({"_id": f"s{i}", "title": "A title of four", "text": "too short"}) for i in range(30)]
    Path("short/corpus.jsonl").write_text("\n".join(lines))
    line = failed(capsys, *pretraining("short", "--out", "new"))
    assert "0 of 30" in line
    assert "fewer than 10 words" in line


def test_settings_of_the_training_that_follows_change_no_pretraining(here, capsys):
    words = [f"--training.{setting}" for setting in ("schedule=linear", "weight-decay=0.5", "average=0.9")]
    main(["train", "--config", "warm.toml", "--fold", "1", "--name", "other", *words, "--output.folder", "new"])
    main(["train", "--config", "warm.toml", "--fold", "1", "--name", "other", "--output.folder", "again"])
    (first,), (second,) = (Path(folder, "towns").glob("pretrained-*/checkpoint") for folder in ("new", "again"))
    assert first.parent.name == second.parent.name
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


def test_every_setting_that_changes_the_result_is_another_pretraining(monkeypatch):
    monkeypatch.setattr(pretrain, "file_hashes", lambda name: ())
    documents = SimpleNamespace(fingerprint="documents")
    default = pretrain._identity(Config(), documents)
    for section, kind, settings in [
        ("pretraining", PretrainingSettings, {"steps": 3, "lr": 1.0}),
        ("encoder", EncoderSettings, {"pooling": "max", "template": "{query}{document}"}),
    ]:
        for key, value in settings.items():
            assert pretrain._identity(Config(**{section: kind(**{key: value})}), documents) != default, key
    assert pretrain._identity(Config(encoder=EncoderSettings(first_stage_weight=1)), documents) == default


def test_another_language_is_another_pretraining_with_an_index_of_its_own(here):
    english = folder_of("documents").name
    main(pretraining("documents", "--out", "german", "--collection.language", "de"))
    assert len({path.name for path in Path("runs/documents").glob("pretrained-*")} - {english}) == 1
    indexes = sorted(path.name.rpartition("-")[0] for path in Path("runs/documents/index").glob("*/"))
    assert indexes == ["documents", "documents-de"]
    assert json.loads(Path("german/config.json").read_text())["rerank"]["language"] == "de"
    assert "language" not in json.loads(Path("warm/config.json").read_text())["rerank"]
