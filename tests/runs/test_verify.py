"""`rerank verify`: finished runs hold, and whatever was changed since is named."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.trec import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.runs.manifest import source_commit, write_manifest
from tests.support.small_collection import command, failed, in_a_copy
from tests.support.small_features import SETTINGS, write_folds_of_features

TOWNS = Path("runs/towns")
FOLD = TOWNS / "hinge" / "fold2"


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with one experiment over all folds."""
    with in_a_copy(home, tmp_path_factory) as folder:
        main(command("--loss", "hinge", "--epochs", "1"))
    return folder


def verified(capsys, folder=TOWNS):
    """The exit code, what is said of each line of the table, and the lines below it."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(folder)])
    table, below = capsys.readouterr().out.split("\n\n")
    rows = [line.split(maxsplit=1) for line in table.splitlines()[1:]]
    return ended.value.code, dict(rows), below


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def facts_of(fold):
    return json.loads((fold / "manifest.json").read_text())


def test_finished_runs_hold(here, capsys, tmp_path, monkeypatch):
    names = [f"hinge/fold{number}" for number in range(1, 6)]
    qrels = read_qrels(TOWNS / "qrels.txt")
    for folder in (TOWNS, TOWNS / "hinge"):
        code, said, below = verified(capsys, folder)
        assert (code, below) == (0, "Everything that is recorded holds.\n")
        assert list(said) == [*names, "hinge/all.run"]
        assert all(text.endswith("holds") for text in said.values())
    code, said, _ = verified(capsys, FOLD)
    judged = {query_id: qrels[query_id] for query_id in facts_of(FOLD)["fold"]["test"]}
    of_query = evaluate(judged, read_run(FOLD / "test.run"), ["nDCG@20"])["nDCG@20"].values()
    assert (code, said) == (0, {"hinge/fold2": f"{sum(of_query) / len(of_query):.4f}   holds"})
    (here / "runs").rename(tmp_path / "elsewhere")  # a folder may be moved
    monkeypatch.chdir(tmp_path)
    assert verified(capsys, tmp_path / "elsewhere" / "towns")[0] == 0


def test_the_manifest_says_what_was_measured_and_with_what(here):
    facts = facts_of(FOLD)
    assert set(facts["outcome"]) == {"valid", "test"}
    qrels = read_qrels(TOWNS / "qrels.txt")
    for part, recorded in facts["outcome"].items():
        judged = {query_id: qrels[query_id] for query_id in facts["fold"][part]}
        values = evaluate(judged, read_run(FOLD / f"{part}.run"))
        assert list(recorded["means"]) == list(DEFAULT_MEASURES)
        for measure, mean in recorded["means"].items():
            assert mean == pytest.approx(sum(values[measure].values()) / len(judged), abs=1e-12)
    assert set(facts["qrels"]) == {"train", "valid", "test"}
    assert facts["java"]["version"]
    assert facts["documents"].keys() == {"fingerprint", "tokens"}
    assert facts["device_name"]


@pytest.mark.parametrize(
    ("file", "old", "new", "name", "told"),
    [
        (FOLD / "test.run", " 1 ", " 9 ", "hinge/fold2", "test.run: expected SHA-256"),
        (FOLD / "valid.run", " 1 ", " 9 ", "hinge/fold2", "valid.run: expected SHA-256"),
        (FOLD / "test.run", " Q0 ", " ", "hinge/fold2", "test.run:1: expected 6 columns"),
        (TOWNS / "hinge" / "config.toml", "epochs = 1", "epochs = 3", "hinge/fold2", "training.epochs: expected 1"),
        (TOWNS / "hinge" / "config.toml", "[training]", "training", "hinge/fold2", "not TOML"),
        (TOWNS / "bm25.run", " 1 ", " 9 ", "hinge/fold2", "bm25.run: expected SHA-256"),
        (TOWNS / "hinge" / "all.run", " Q0 d", " Q0 x", "hinge/all.run", "found 1 queries that differ: q"),
        (FOLD / "manifest.json", "{", "[", "hinge/fold2", "manifest.json: expected the facts of a run in JSON"),
    ],
)  # fmt: skip
def test_a_changed_file_is_named(here, capsys, file, old, new, name, told):
    change(file, old, new)
    code, said, below = verified(capsys)
    assert code == 1
    assert told in said[name]
    assert said["hinge/fold1"].endswith("holds") == (file.parent == FOLD or file.name == "all.run")
    assert below.endswith(" fail.\n")


def test_other_folds_are_named(here, capsys):
    change(TOWNS / "folds.json", '"name": "2"', '"name": "0"')
    change(TOWNS / "folds.json", '"name": "3"', '"name": "2"')
    code, said, _ = verified(capsys)
    assert code == 1
    assert "folds.json, test: expected 3 queries (q" in said["hinge/fold2"]
    assert said["hinge/fold3"] == "expected a fold of folds.json, 1, 0, 2, 4, 5; found 3"
    assert said["hinge/fold1"].endswith("holds")


def test_another_order_and_other_judgments_change_the_values(here, capsys):
    lines = (FOLD / "test.run").read_text().splitlines()
    query_id = lines[0].split()[0]
    (FOLD / "test.run").write_text("".join(f"{line}\n" for line in lines if not line.startswith(f"{query_id} ")))
    code, said, _ = verified(capsys, FOLD)
    assert code == 1
    assert re.search(r"test.run, \S+: expected \S+, found \S+ \(and \d other measures\)", said["hinge/fold2"])
    fold = TOWNS / "hinge" / "fold1"
    (relevant,) = [d for d, grade in read_qrels(TOWNS / "qrels.txt")["q0"].items() if grade][:1]
    change(TOWNS / "qrels.txt", f"q0 0 {relevant} 1", f"q0 0 {relevant} 0")
    parts = [part for part in ("train", "valid", "test") if "q0" in facts_of(fold)["fold"][part]]
    code, said, _ = verified(capsys, fold)
    assert code == 1
    assert f"qrels.txt, {parts[0]} queries: expected SHA-256" in said["hinge/fold1"]


def test_a_missing_fold_is_named(here, capsys):
    shutil.rmtree(FOLD)
    code, said, below = verified(capsys)
    assert code == 1
    assert said["hinge/fold2"] == "expected a folder, as its queries are in all.run, found none"
    assert "found 3 queries that differ" in said["hinge/all.run"]
    assert below == "2 of 6 fail.\n"
    (TOWNS / "hinge" / "all.run").unlink()  # so that the experiment is one that was not finished
    code, said, _ = verified(capsys)
    assert (code, said["hinge/fold2"]) == (0, "not finished")


def test_a_missing_file_is_named(here, capsys):
    (FOLD / "log.jsonl").unlink()
    (TOWNS / "hinge" / "fold1" / "test.run").unlink()
    (TOWNS / "bm25.run").unlink()
    code, said, _ = verified(capsys, TOWNS / "hinge")
    assert code == 1
    assert "log.jsonl: expected a file, found none" in said["hinge/fold2"]
    assert "bm25.run: expected the first stage's run, found none" in said["hinge/fold2"]
    assert "test.run: expected a file, found none" in said["hinge/fold1"]


def rewrite(folder, **changed):
    """Changes facts of a manifest, and its hash."""
    write_manifest(folder / "manifest.json", {**facts_of(folder), **changed})


def test_what_an_older_manifest_could_not_have_is_said_and_no_failure(here, capsys):
    facts = facts_of(FOLD)
    for key in ("format", "files", "manifest_hash"):
        del facts[key]
    (FOLD / "manifest.json").write_text(json.dumps(facts))
    shutil.rmtree(FOLD / "checkpoint")
    code, said, below = verified(capsys)
    assert code == 0
    assert said["hinge/fold2"].endswith("holds")
    assert below == (
        "Written by an older version, which did not record: sizes and hashes of the checkpoint, the log and the "
        "manifest (hinge/fold2).\nEverything that is recorded holds.\n"
    )


def test_a_manifest_of_format_2_has_no_kernels(here, capsys, monkeypatch):
    monkeypatch.setattr("rerank.runs.manifest.FORMAT", 2)
    facts = {name: value for name, value in facts_of(FOLD).items() if name not in ("attention", "compiled", "tf32")}
    write_manifest(FOLD / "manifest.json", facts)
    code, said, _ = verified(capsys)
    assert (code, said["hinge/fold2"].endswith("holds")) == (0, True)


@pytest.mark.parametrize(
    "fact",
    [
        "attention", "best_epoch", "best_valid", "commit", "compiled", "config", "documents", "epochs", "files",
        "first_stage", "fold", "format", "java", "machine", "manifest_hash", "outcome", "precision", "qrels", "seconds",
        "texts", "tf32", "versions",
    ],
)  # fmt: skip
def test_a_fact_that_todays_version_writes_is_demanded(here, capsys, fact):
    facts = facts_of(FOLD)
    del facts[fact]
    (FOLD / "manifest.json").write_text(json.dumps(facts))
    code, said, _ = verified(capsys)
    assert code == 1
    assert f"manifest.json: expected {fact}; found none" in said["hinge/fold2"]


@pytest.mark.parametrize("content", ["{}", "[]", "null", "", "[" * 100_000, "\x00"])
def test_a_manifest_without_facts_fails(here, capsys, content):
    (FOLD / "manifest.json").write_text(content)
    code, said, below = verified(capsys)
    assert code == 1
    assert said["hinge/fold2"].split(maxsplit=1)[1].startswith("manifest.json: expected ")
    assert below == "1 of 6 fail.\n"


def test_a_fact_of_another_kind_fails_without_a_traceback(here, capsys):
    rewrite(FOLD)
    assert verified(capsys)[0] == 0
    for fact in facts_of(FOLD):
        before = (FOLD / "manifest.json").read_text()
        for value in (-3.5, "x", ["x"], {"x": {"x": "x"}}):
            (FOLD / "manifest.json").write_text(json.dumps({**facts_of(FOLD), fact: value}))
            assert verified(capsys, FOLD)[0] == 1
        (FOLD / "manifest.json").write_text(before)
    rewrite(FOLD, fold=3)
    code, said, _ = verified(capsys, FOLD)
    assert code == 1
    assert "got expected `object`, got `int` - at `$.fold`" in said["hinge/fold2"]


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("checkpoint/model.safetensors", "bit", "checkpoint/model.safetensors: expected XXH3"),
        ("checkpoint/config.json", "cut", "checkpoint/config.json: expected "),
        ("checkpoint/README.md", "gone", "checkpoint/README.md: expected a file, found none"),
        ("checkpoint/tokenizer.json", "gone", "checkpoint/tokenizer.json: expected a file, found none"),
        ("log.jsonl", "cut", "log.jsonl: expected "),
        ("log.jsonl", "bit", "log.jsonl: expected XXH3"),
        ("test.passages.json", "cut", "test.passages.json: expected "),
    ],
)
def test_damage_to_any_file_of_a_fold_is_named(here, capsys, name, damage, told):
    content = (FOLD / name).read_bytes()
    if damage == "gone":
        (FOLD / name).unlink()
    else:
        (FOLD / name).write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if damage == "bit" else b""))
    code, said, _ = verified(capsys)
    assert code == 1
    assert told in said["hinge/fold2"]
    assert said["hinge/fold1"].endswith("holds")


def test_a_removed_checkpoint_and_a_replaced_log_are_named(here, capsys):
    shutil.rmtree(FOLD / "checkpoint")
    shutil.copy(TOWNS / "hinge" / "fold1" / "log.jsonl", FOLD / "log.jsonl")
    code, said, _ = verified(capsys)
    assert code == 1
    assert "checkpoint/model.safetensors: expected a file, found none" in said["hinge/fold2"]
    assert "log.jsonl: expected " in said["hinge/fold2"]


def test_an_edited_fact_is_noticed_and_compared_with_the_log(here, capsys):
    facts = facts_of(FOLD)
    (FOLD / "manifest.json").write_text(json.dumps({**facts, "seconds": facts["seconds"] + 1}))
    code, said, _ = verified(capsys)
    assert code == 1
    assert said["hinge/fold2"].endswith("manifest.json: its facts were changed since it was written")
    rewrite(FOLD, seconds=facts["seconds"], best_epoch=2)
    assert "manifest.json, best_epoch: expected 1, as in log.jsonl, found 2" in verified(capsys)[1]["hinge/fold2"]
    rewrite(FOLD, best_epoch=1, epochs=7)
    assert "manifest.json, epochs: expected 1, as in log.jsonl, found 7" in verified(capsys)[1]["hinge/fold2"]


def test_an_upload_does_not_change_a_checkpoint(here, capsys):
    main(["push", str(FOLD / "checkpoint"), "someone/model", "--dry-run"])
    assert verified(capsys)[0] == 0


def test_a_pretraining_is_checked_and_a_damaged_one_is_not_used(here, capsys):
    words = command("--fold", "1", "--epochs", "1", "--name", "warm", "--pretraining.steps", "4")
    words += ["--pretraining.held-out", "4"]
    main(words)
    (folder,) = TOWNS.glob("pretrained-*/")
    code, said, below = verified(capsys)
    assert (code, said[folder.name], below) == (0, "holds", "Everything that is recorded holds.\n")
    weights = folder / "checkpoint" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    code, said, _ = verified(capsys)
    assert code == 1
    assert said[folder.name].startswith("checkpoint/model.safetensors: expected ")
    shutil.rmtree(TOWNS / "warm")
    line = failed(capsys, *words)
    assert f"{folder.name}: the pre-training is damaged: checkpoint/model.safetensors" in line
    assert line.endswith("; remove the folder to pre-train again")


def test_a_first_stage_from_elsewhere_may_be_gone_but_not_changed(here, capsys):
    shutil.copy(TOWNS / "bm25.run", "mine.run")
    main(command("--loss", "hinge", "--epochs", "1", "--fold", "1", "--name", "mine", "--first-stage.run", "mine.run"))
    assert facts_of(TOWNS / "mine" / "fold1")["java"] is None
    change(Path("mine.run"), " 1 ", " 9 ")
    code, said, _ = verified(capsys, TOWNS / "mine")
    assert code == 1
    assert "mine.run: expected SHA-256" in said["mine/fold1"]
    Path("mine.run").unlink()
    code, _, below = verified(capsys, TOWNS / "mine")
    assert code == 0
    assert "Missing, so not checked: first_stage: mine.run (mine/fold1)" in below


def test_feature_vectors_fold_by_fold(tmp_path, capsys, monkeypatch):
    write_folds_of_features(tmp_path / "letor")
    (tmp_path / "letor.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    train = ["train", "--config", "letor.toml", "--epochs", "1", "--training.measure", "nDCG@5"]
    main([*train, "--fold", "2"])
    assert verified(capsys, "runs/letor/smoothi/fold2")[0] == 0
    main(train)  # other folds' judgments join qrels.txt
    code, said, below = verified(capsys, "runs/letor")
    assert (code, below) == (0, "Everything that is recorded holds.\n")
    assert len(said) == 6
    manifest = Path("runs/letor/smoothi/fold2/manifest.json")
    facts = json.loads(manifest.read_text())
    assert "java" not in facts
    manifest.write_text(json.dumps({**facts, "best_valid": facts["best_valid"] + 1e-6}))
    assert "valid.run, nDCG@5: expected" in verified(capsys, "runs/letor")[1]["smoothi/fold2"]


def test_mistakes_are_one_line(here, capsys):
    assert "no fold of an experiment here" in failed(capsys, "verify", "towns")
    assert "no fold of an experiment here" in failed(capsys, "verify", "nowhere")
    (TOWNS / "qrels.txt").unlink()
    assert "qrels.txt: cannot be read" in failed(capsys, "verify", str(TOWNS))


def test_it_loads_no_torch(here):
    code = (
        "import sys\nfrom rerank.runs.verify import verify\nfrom pathlib import Path\n"
        "assert verify(Path('runs/towns'))[1]\n"
        "assert not {'torch', 'transformers', 'scipy'} & set(sys.modules), 'too much loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_commit_of_the_source_tree(tmp_path):
    assert source_commit(tmp_path) is None
    (tmp_path / ".git").write_text("gitdir: nowhere")
    assert source_commit(tmp_path) is None
    (tmp_path / ".git").unlink()

    def git(*words):
        mine = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *mine, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD").strip()
    assert source_commit(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert source_commit(tmp_path) == f"{commit}+changes"
