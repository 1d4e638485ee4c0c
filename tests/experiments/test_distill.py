"""`rerank distill`: the teacher scores every candidate once, and the student learns its order."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from rerank import Reranker
from rerank.cli.main import main
from rerank.config import Config, LossSettings, OutputSettings, TrainingSettings
from rerank.data.collections import open_collection
from rerank.data.runs import read_run
from rerank.experiments import distill as teaching
from rerank.experiments.distill import distill
from rerank.experiments.train import open_experiment, train_folds
from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from tests.support.small_collection import failed
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder, make_encoder


@pytest.fixture
def teacher(here):
    """A cross-encoder that was not trained: its scores are far apart, and say nothing about relevance."""
    return make_teacher("teacher")


def make_teacher(folder, seed=7, scale=100):
    """Writes a teacher; with a scale of 0, all its scores are equal."""
    model = open_cross_encoder("encoder", "mean", seed=seed)
    model.head.weight.data *= scale
    Path(folder).mkdir(parents=True)
    save_cross_encoder(model, Path(folder))
    return folder


def command(*words):
    return ["distill", "teacher", "--config", "towns.toml", *words]


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def scored():
    """The records of the one file of training lists in runs/towns."""
    (path,) = Path("runs/towns").glob("teacher-*.jsonl")
    return records(path)


def test_the_teacher_scores_every_candidate_once_and_its_scores_are_training_lists(here, teacher, capsys):
    with Path("towns/queries.jsonl").open("a") as queries:
        queries.write(json.dumps({"_id": "unjudged", "text": "good amber"}) + "\n")
    main(command("--fold", "1", "--epochs", "1"))
    assert capsys.readouterr().out == "runs/towns/distill-margin_mse\n"
    run, lists = read_run("runs/towns/bm25.run"), scored()
    assert {record["query_id"] for record in lists} == set(open_collection("towns").queries)
    of_judged = [record for record in lists if record["query_id"] in run]
    assert {record["query_id"]: record["doc_ids"] for record in of_judged} == {q: list(run[q]) for q in run}
    main(["score", "teacher", "runs/towns/bm25.run", "--collection", "towns", "--out", "teacher.run"])
    of_teacher = read_run("teacher.run")
    for record in of_judged:
        expected = [of_teacher[record["query_id"]][doc_id] for doc_id in record["doc_ids"]]
        assert record["labels"] == pytest.approx(expected, abs=1e-4)
    (path,) = Path("runs/towns").glob("teacher-*.jsonl")
    fold = json.loads(Path("runs/towns/distill-margin_mse/fold1/manifest.json").read_text())
    facts = fold["training_lists"]
    counts = {"lists": len(lists), "trained_on": len(lists) - 6, "held_out": 6}
    assert facts.items() >= {"file": str(path), **counts}.items()
    assert not list(Path("runs/towns").glob("*.parts"))

    main(["train", "--config", "towns.toml", "--fold", "1", "--epochs", "1", "--loss", "margin_mse",
          "--training.lists", str(path), "--name", "by-hand"])  # fmt: skip
    runs = [Path(f"runs/towns/{name}/fold1/test.run").read_text() for name in ("distill-margin_mse", "by-hand")]
    assert runs[0].replace(" distill-margin_mse\n", " by-hand\n") == runs[1]


def test_a_list_has_so_many_documents_drawn_by_the_seed(here, teacher, capsys):
    main(command("--fold", "1", "--epochs", "1"))
    whole = {record["query_id"]: dict(zip(record["doc_ids"], record["labels"], strict=True)) for record in scored()}
    (path,) = Path("runs/towns").glob("teacher-*.jsonl")
    drawn = {}
    for seed in "0", "1":
        main(command("--fold", "1", "--epochs", "1", "--documents", "3", "--seed", seed, "--name", f"drawn{seed}"))
        (lists,) = set(Path("runs/towns").glob("teacher-*.jsonl")) - {path, *drawn}
        drawn[lists] = records(lists)
        for record in drawn[lists]:
            scores = whole[record["query_id"]]
            assert len(record["doc_ids"]) == min(3, len(scores))
            assert record["doc_ids"] == [doc_id for doc_id in scores if doc_id in record["doc_ids"]]
            assert record["labels"] == [scores[doc_id] for doc_id in record["doc_ids"]]
    of_first, of_second = drawn.values()
    assert of_first != of_second
    capsys.readouterr()
    assert "--documents 1: expected all, or two or more" in failed(capsys, *command("--documents", "1"))


def test_several_teachers_a_run_among_them(here, teacher, capsys):
    """The labels are the mean of the scores, each standardised in its list."""
    main(["score", "teacher", "runs/towns/bm25.run", "--collection", "towns", "--out", "teacher.run"])
    main(["distill", "teacher", "runs/towns/bm25.run", "--config", "towns.toml", "--fold", "1", "--epochs", "1"])
    bm25, of_teacher = read_run("runs/towns/bm25.run"), read_run("teacher.run")
    for record in scored():
        columns = [[run[record["query_id"]][d] for d in record["doc_ids"]] for run in (of_teacher, bm25)]
        expected = np.mean([(np.array(c) - np.mean(c)) / (np.std(c) or 1) for c in columns], axis=0)
        assert record["labels"] == pytest.approx(expected, abs=1e-3)
    line = failed(capsys, "distill", "--config", "towns.toml", "--fold", "1")
    assert "teachers: expected one or more, each once; got none" in line


def test_other_folds_losses_and_students_take_the_scores_that_are_there(here, teacher, capsys, monkeypatch):
    main(command("--fold", "1", "--epochs", "1"))
    before = scored()
    make_encoder("bert", here / "student", ["good", "bad"], max_positions=24)
    monkeypatch.setattr(teaching, "rescore", None)  # nothing is scored again
    capsys.readouterr()
    main(command("--fold", "2", "--epochs", "1"))
    main(command("--fold", "1", "--epochs", "1", "--loss", "distill_kl", "--student", "student"))
    assert capsys.readouterr().err.count(".run already exists") == 2
    assert scored() == before
    names = ("distill-margin_mse/fold2", "distill-distill_kl/fold1")
    manifests = [Path(f"runs/towns/{name}/manifest.json") for name in names]
    assert [json.loads(path.read_text())["config"]["encoder"]["name"] for path in manifests] == ["encoder", "student"]


def test_scores_in_tf32_are_others(here, teacher, monkeypatch):
    """With lists of two documents, the shortest that teach."""
    words = command("--fold", "1", "--epochs", "1", "--first-stage.depth", "2")
    main(words)
    assert {len(record["doc_ids"]) for record in scored()} == {2}
    monkeypatch.setattr(teaching, "uses_tf32", lambda accelerator: True)
    main([*words, "--name", "tf32"])
    assert len(list(Path("runs/towns").glob("teacher-*.jsonl"))) == 2


def test_the_student_learns_the_order_of_a_teacher_that_was_trained_on_the_collection_which_is_said(here, caplog):
    settings = TrainingSettings(epochs=6, lists_per_epoch="all", lists_per_step=3, lr=1e-3, head_lr=1e-2, device="cpu")
    config = Config(collection="towns", encoder="encoder", loss="hinge", training=settings)
    teacher = train_folds(config, "1").fold("1").checkpoint
    for loss in ("margin_mse", "distill_kl"):
        student = replace(config, loss=LossSettings(loss))
        folder = distill(student, str(teacher), "1")
        assert folder.path == Path(f"runs/towns/distill-{loss}")
        before, after = agreement(student, folder.fold("1").checkpoint)
        assert after > before + 0.3
    assert "checkpoint: was trained on judgments of this collection" in caplog.text


def agreement(config, checkpoint):
    """The mean rank correlation of student and teacher on the training queries, before and after training."""
    (lists,) = Path("runs/towns").glob("teacher-*.jsonl")
    training, output = replace(config.training, lists=str(lists)), OutputSettings(name="look-" + config.loss.name)
    experiment = open_experiment(replace(config, training=training, output=output), "1")
    task = experiment.dataset.task(experiment.dataset.folds[0], experiment.accelerator)

    def correlation():
        run = task.score("train")
        values = [kendalltau([run[c.query_id][d] for d in c.doc_ids], c.labels)[0] for c in task.lists["train"]]
        return sum(values) / len(values)

    before = correlation()
    task.load(checkpoint)
    return before, correlation()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--loss", "hinge"],
            "learns from judgments, not from a teacher's scores; expected adr_mse, distill_kl, margin_mse, rank_distil",
        ),
        (["--training.lists", "towns.toml"], "--training.lists towns.toml: the teacher makes the lists"),
        (["--training.measure", "loss"], "--training.measure loss: margin_mse needs a teacher's scores"),
        (["--lists.relevant", "2"], "--lists.relevant: has no effect on `rerank distill`"),
    ],
)
def test_a_mistake_is_one_line(here, teacher, capsys, words, expected):
    assert expected in failed(capsys, *command("--epochs", "1", *words))
    assert not list(Path("runs").rglob("test.run"))


def test_a_teacher_must_be_a_trained_cross_encoder(here, capsys):
    words = ["--config", "towns.toml", "--fold", "1"]
    assert "encoder nowhere" in failed(capsys, "distill", "nowhere", *words)
    line = failed(capsys, "distill", "no.run.gz", *words)
    assert "no.run.gz: no such file; expected a run, or the folder or hub name of a model" in line
    assert "lacks config.json" in failed(capsys, "distill", "runs/towns", *words)
    assert "encoder ./nowhere: no such folder" in failed(capsys, "distill", "./nowhere", *words)
    assert "encoder: an encoder without a trained head" in failed(capsys, "distill", "encoder", *words)


def test_a_teacher_with_a_prompt(here, capsys):
    """A hub model has no prompt of its own: with --teacher-template its scores are those of the whole text."""
    make_cross_encoder("bert", Path("teacher"), [*WORDS, "good", "bad"], max_positions=24)
    words = ["--fold", "1", "--epochs", "1", "--teacher-template"]
    assert "--teacher-template '{query}': expected" in failed(capsys, *command(*words, "{query}"))
    template = "good {query} bad {document}"
    main(command(*words, template))
    model, collection = Reranker.load("teacher", template=template), open_collection("towns")
    for record in scored():
        texts = [document.text for document in collection.get(record["doc_ids"])]
        expected = model.score(collection.queries[record["query_id"]], texts)
        assert record["labels"] == pytest.approx(expected.tolist(), abs=1e-4)
    (file,) = Path("runs/towns").glob("teacher-*.run.json")
    manifest = json.loads(file.read_text())
    assert manifest["config"]["encoder"]["template"] == template
