"""`rerank verify`: finished runs hold, and whatever was changed since is named."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.experiments.runs.manifest import FORMAT, source_commit, write_manifest
from rerank.experiments.runs.results import open_results
from rerank.utils.files import kept_hash
from tests.support.small_collection import command, exit_code, failed, in_a_copy
from tests.support.small_features import write_part

TOWNS = Path("runs/towns")
HINGE = TOWNS / "hinge"
FOLD = HINGE / "fold2"
FOLDS = [f"hinge/fold{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with one experiment over all folds."""
    with in_a_copy(home, tmp_path_factory) as folder:
        main(command("--loss", "hinge", "--epochs", "1"))
    return folder


def verified(capsys, folder=TOWNS):
    """The exit code, what is said of each line of the table, and the lines below it."""
    capsys.readouterr()
    code = exit_code("verify", str(folder))
    table, below = capsys.readouterr().out.split("\n\n")
    rows = [line.split(maxsplit=1) for line in table.splitlines()[1:]]
    return code, dict(rows), below


def facts_of(fold):
    return json.loads((fold / "manifest.json").read_text())


def rewrite(fold, **changed):
    """Changes facts of a manifest, and its hash."""
    write_manifest(fold / "manifest.json", facts_of(fold) | changed)


def test_finished_runs_hold(here, capsys, tmp_path, monkeypatch):
    qrels = read_qrels(TOWNS / "qrels.txt")
    for folder in (TOWNS, HINGE):
        code, said, below = verified(capsys, folder)
        assert (code, below) == (0, "Everything that is recorded holds.\n")
        assert list(said) == [*FOLDS, "hinge/all.run"]
        assert all(text.endswith("holds") for text in said.values())
    code, said, _ = verified(capsys, FOLD)
    judged = {query_id: qrels[query_id] for query_id in facts_of(FOLD)["fold"]["test"]}
    of_query = evaluate(judged, read_run(FOLD / "test.run"), ["nDCG@20"])["nDCG@20"].values()
    assert (code, said) == (0, {"hinge/fold2": f"{sum(of_query) / len(of_query):.4f}   holds"})
    (here / "runs").rename(tmp_path / "elsewhere")  # a folder may be moved
    monkeypatch.chdir(tmp_path)
    code, _, below = verified(capsys, tmp_path / "elsewhere" / "towns")
    assert (code, below.splitlines()[0]) == (0, "towns, documents: is not on this machine: not compared")


def test_the_manifest_says_what_was_measured_and_with_what(here):
    facts = facts_of(FOLD)
    assert {part: list(recorded["means"]) for part, recorded in facts["outcome"].items()} == {
        part: list(DEFAULT_MEASURES) for part in ("valid", "test")
    }
    assert set(facts["qrels"]) == {"train", "valid", "test"}
    assert facts["java"]["version"]
    assert facts["documents"].keys() == {"fingerprint", "tokens"}
    assert {"commit", "device_name", "machine", "seconds", "texts", "versions"} <= facts.keys()


def flipped(content):
    return content[:-1] + bytes([content[-1] ^ 1])


def instead(old, new):
    return lambda content: content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("file", "damage", "rows", "told"),
    [
        ("hinge/fold2/test.run", instead(b" 1 ", b" 9 "), ["hinge/fold2"], "test.run: expected SHA-256"),
        ("hinge/fold2/test.run", instead(b" Q0 ", b" "), ["hinge/fold2", "hinge/all.run"], "test.run:1: expected"),
        ("hinge/fold2/test.run", None, ["hinge/fold2", "hinge/all.run"], "test.run: expected a file, found none"),
        ("hinge/fold2/log.jsonl", None, ["hinge/fold2"], "log.jsonl: expected a file, found none"),
        ("hinge/fold2/checkpoint/model.safetensors", flipped, ["hinge/fold2"], "model.safetensors: expected XXH3"),
        ("hinge/fold2/checkpoint/README.md", None, ["hinge/fold2"], "checkpoint/README.md: expected a file"),
        ("hinge/fold2/manifest.json", instead(b"{", b"["), ["hinge/fold2"], "manifest.json: not JSON"),
        ("hinge/fold2/manifest.json", lambda _: b"{}", ["hinge/fold2"], "has no manifest_hash; expected a manifest"),
        ("hinge/fold2/manifest.json", instead(b'"epochs": 1', b'"epochs": 2'), ["hinge/fold2"], "was changed since"),
        (
            "hinge/fold2/manifest.json",
            instead(f'"format": {FORMAT}'.encode(), b'"format": 1'),
            ["hinge/fold2"],
            f"expected format {FORMAT}, got 1, which another version of rerank wrote; run the command again",
        ),
        ("hinge/fold2/manifest.json", None, ["hinge/fold2"], "manifest.json: cannot be read"),
        ("hinge/config.toml", instead(b"epochs = 1", b"epochs = 3"), FOLDS, "training.epochs: expected 1, found 3"),
        ("hinge/config.toml", instead(b"[training]", b"training"), FOLDS, "not TOML"),
        ("hinge/all.run", instead(b" Q0 d", b" Q0 x"), ["hinge/all.run"], "found 1 queries that differ: q"),
        ("bm25.run", instead(b" 1 ", b" 9 "), FOLDS, "bm25.run: expected SHA-256"),
        ("bm25.run", None, FOLDS, "bm25.run: expected a file, found none"),
        ("../../towns/corpus.jsonl", flipped, FOLDS, "towns, documents: expected "),
        ("qrels.txt", instead(b"q0 0 d0-0 1", b"q0 0 d0-0 0"), FOLDS, "queries: expected SHA-256"),
        ("hinge/fold2", None, ["hinge/fold2", "hinge/all.run"], "manifest.json: cannot be read"),
    ],
)
def test_what_was_changed_is_named(here, capsys, file, damage, rows, told):
    path = TOWNS / file
    if path.is_dir():
        shutil.rmtree(path)
    elif damage is None:
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(damage(content))
        assert path.read_bytes() != content
    code, said, below = verified(capsys)
    assert code == 1
    assert [name for name, text in said.items() if not text.endswith("holds")] == rows
    assert told in said[rows[0]]
    assert below == f"{len(rows)} of 6 fail.\n"


def test_an_unfinished_fold_is_no_failure(here, capsys):
    shutil.rmtree(FOLD)
    (HINGE / "all.run").unlink()
    code, said, _ = verified(capsys)
    assert (code, said["hinge/fold2"]) == (0, "not finished")


def test_other_folds_are_named(here, capsys):
    text = (TOWNS / "folds.json").read_text()
    text = text.replace('"name": "2"', '"name": "0"').replace('"name": "3"', '"name": "2"')
    (TOWNS / "folds.json").write_text(text)
    code, said, _ = verified(capsys)
    assert code == 1
    assert "folds.json: expected the train and valid and test queries of the manifest" in said["hinge/fold2"]
    assert said["hinge/fold3"] == "expected a fold of folds.json, 1, 0, 2, 4, 5; found 3"
    assert said["hinge/fold1"].endswith("holds")


def test_a_run_beside_the_experiments_has_the_hash_of_its_manifest(here, capsys):
    run = TOWNS / "both.run"
    main(["fuse", str(TOWNS / "bm25.run"), str(HINGE / "all.run"), "--out", str(run)])
    assert verified(capsys)[1]["both.run"] == "holds"
    run.write_text(run.read_text().replace(" 1 ", " 9 ", 1))
    code, said, below = verified(capsys)
    assert (code, below) == (1, "1 of 7 fail.\n")
    assert "both.run: expected SHA-256" in said["both.run"]
    (TOWNS / "both.run.json").write_text("[]")
    assert "both.run.json: " in verified(capsys)[1]["both.run"]


def test_values_are_computed_again(here, capsys):
    outcome = facts_of(FOLD)["outcome"]
    outcome["test"]["means"]["AP"] += 1e-6
    rewrite(FOLD, outcome=outcome, best_valid=facts_of(FOLD)["best_valid"] + 1e-6)
    said = verified(capsys)[1]["hinge/fold2"]
    assert "test.run, AP: expected 0." in said
    assert "valid.run, nDCG@20: expected 0." in said


def test_a_first_stage_from_elsewhere_is_checked(here, capsys, tmp_path, monkeypatch):
    shutil.copy(TOWNS / "bm25.run", "mine.run")
    main(command("--loss", "hinge", "--epochs", "1", "--fold", "1", "--name", "mine", "--first-stage.run", "mine.run"))
    assert facts_of(TOWNS / "mine" / "fold1")["java"] is None
    with monkeypatch.context() as elsewhere:  # the path that was given is relative to the folder of the training
        elsewhere.chdir(tmp_path)
        assert verified(capsys, here / TOWNS / "mine")[1]["mine/fold1"].endswith("holds")
        assert open_results(here / TOWNS / "mine", "nDCG@20").experiments[0].candidates()
    (here / "mine.run").rename("moved.run")
    assert f"{here}/mine.run: expected a file" in verified(capsys, TOWNS / "mine")[1]["mine/fold1"]
    (here / "moved.run").rename("mine.run")
    Path("mine.run").write_text(Path("mine.run").read_text().replace(" 1 ", " 9 ", 1))
    code, said, _ = verified(capsys, TOWNS / "mine")
    assert code == 1
    assert "mine.run: expected SHA-256" in said["mine/fold1"]
    Path("mine.run").unlink()
    assert "mine.run: expected a file, found none" in verified(capsys, TOWNS / "mine")[1]["mine/fold1"]


def test_feature_vectors_fold_by_fold(letor, capsys):
    train = ["train", "--config", "letor.toml", "--epochs", "1", "--training.measure", "nDCG@5"]
    main([*train, "--fold", "2"])
    checkpoint = Path("runs/letor/smoothi/fold2/checkpoint")
    assert sorted(path.name for path in checkpoint.iterdir()) == ["config.json", "model.safetensors"]  # no model card
    assert verified(capsys, "runs/letor/smoothi/fold2")[0] == 0
    main(train)  # other folds' judgments join qrels.txt
    code, said, below = verified(capsys, "runs/letor")
    assert (code, below) == (0, "Everything that is recorded holds.\n")
    assert len(said) == 6
    assert "java" not in facts_of(Path("runs/letor/smoothi/fold2"))
    lines = Path("letor/Fold2/vali.txt").read_text().splitlines(keepends=True)
    Path("letor/Fold2/vali.txt").write_text("".join(lines[:-1]))
    code, said, _ = verified(capsys, "runs/letor")
    assert (code, said["smoothi/fold1"][-5:]) == (1, "holds")
    assert "letor, vali.txt: expected " in said["smoothi/fold2"]
    Path("letor/Fold2").rename("elsewhere")
    code, said, below = verified(capsys, "runs/letor")
    files = [f"letor, {name}.txt: is not on this machine: not compared" for name in ("train", "vali", "test")]
    assert code == 0
    assert below.splitlines() == [*files, "All else that is recorded holds; 3 of the inputs could not be compared."]


def test_a_file_of_feature_vectors_is_hashed_once_for_all_folds(letor, capsys, monkeypatch):
    write_part(Path("all.txt"), list(range(15)))
    main(["train", "--config", "letor.toml", "--epochs", "1", "--collection", "all.txt", "--collection.folds", "3"])
    hashed = []

    def note(path):
        hashed.append(path)
        return kept_hash(path)

    monkeypatch.setattr("rerank.experiments.runs.verify.kept_hash", note)
    assert verified(capsys, "runs/all")[0] == 0
    assert hashed == [Path("all.txt")]


def test_a_final_model_of_feature_vectors_before_and_beside_folds(letor, capsys):
    for fold in ("final", "2"):
        main(["train", "--config", "letor.toml", "--epochs", "1", "--fold", fold])
        code, said, _ = verified(capsys, "runs/letor")
        assert (code, said["smoothi/final"]) == (0, "holds")
    assert len(read_qrels("runs/letor/qrels.txt")) == 30
    assert said["smoothi/fold2"].endswith("holds")


def test_mistakes_are_one_line(here, capsys):
    assert "no fold of an experiment here" in failed(capsys, "verify", "towns")
    assert "no fold of an experiment here" in failed(capsys, "verify", "nowhere")
    (TOWNS / "qrels.txt").unlink()
    assert "qrels.txt: cannot be read" in failed(capsys, "verify", str(TOWNS))


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


@pytest.mark.parametrize(
    "name", ["bm25.run", "qrels.txt", "folds.json", "hinge", "hinge/config.toml", "hinge/fold2/test.run"]
)
def test_links_and_fifos_in_a_folder_of_runs_are_refused(here, capsys, name):
    """Also those of files that all experiments share, and of an experiment."""
    commands = [("report", str(TOWNS)), ("plot", "learning", str(HINGE), "--out", "new.pdf"), ("verify", str(TOWNS))]
    (TOWNS / name).rename("outside")
    for make in (lambda path: path.symlink_to(here / "outside"), os.mkfifo)[: 1 if name == "hinge" else 2]:
        make(TOWNS / name)
        for words in commands:
            code = exit_code(*words)
            said = "".join(capsys.readouterr())
            assert code in (2, 1 if words[0] == "verify" else 2)
            assert any(words in said for words in ("is a link that leads out of", "is a FIFO", "has no qrels.txt"))
        (TOWNS / name).unlink()
