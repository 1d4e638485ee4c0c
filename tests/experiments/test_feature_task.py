"""Training on feature vectors as a user types it: train, resume, eval, and the settings that make no sense."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rerank.cli.main import main
from rerank.config import Config
from rerank.data.runs import read_qrels, read_run
from rerank.experiments import train as experiment
from rerank.experiments.feature_task import FeatureDataset
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.losses import smoothi
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp
from rerank.training import gradients
from rerank.training import loop as training
from rerank.utils.errors import UserError
from tests.support.small_collection import epochs_of, exit_code, failed
from tests.support.small_features import write_folds_of_features, write_part

FOLD = Path("runs/letor/smoothi/fold1")


@pytest.fixture
def here(letor):
    return letor


def command(*words):
    return ["train", "--config", "letor.toml", *words]


def test_all_folds_and_the_table(here, capsys):
    main(command("--epochs", "1", "--fold", "2"))
    main(["eval", "runs/letor/smoothi/fold2/test.run"])
    assert "queries of fold 2" in capsys.readouterr().out  # no other fold is known yet
    main(command("--epochs", "1"))
    main(command("--epochs", "1", "--loss", "listnet", "--training.measure", "ndcg_cut_10"))
    assert capsys.readouterr().out.split() == ["runs/letor/smoothi", "runs/letor/listnet"]
    everything = read_run("runs/letor/listnet/all.run")
    judged = read_qrels("runs/letor/qrels.txt")
    assert {q: set(documents) for q, documents in everything.items()} == {q: set(of) for q, of in judged.items()}
    assert len(everything) == 30
    folds = json.loads(Path("runs/letor/folds.json").read_text())
    assert [fold["name"] for fold in folds] == ["1", "2", "3", "4", "5"]
    for fold in folds:
        folder = Path(f"runs/letor/listnet/fold{fold['name']}")
        assert set(read_run(folder / "test.run")) == set(fold["test"])
        assert set(read_run(folder / "valid.run")) == set(fold["valid"])
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["fold"] == fold
        assert manifest["features"]["width"] == 4
        assert len(manifest["features"]["files"]) == 3
        assert not (folder / "state").exists()
    main(["eval", "runs/letor/smoothi/all.run", "runs/letor/listnet/all.run"])
    table = capsys.readouterr().out
    assert "over 5 folds, 30 queries" in table
    assert "Every run has every query." in table


def test_it_learns(here):
    main(command("--fold", "1", "--epochs", "40", "--training.measure", "ndcg"))
    ndcg = [record["ndcg"] for record in epochs_of(FOLD)]
    assert max(record["valid"] for record in epochs_of(FOLD)) > 0.85
    assert ndcg[-1] > ndcg[0] + 0.05


def test_the_epoch_with_the_lowest_validation_loss_is_kept(here):
    main(command("--fold", "1", "--epochs", "12", "--training.lr", "0.3"))
    losses = [-record["valid"] for record in epochs_of(FOLD)]
    assert losses.index(min(losses)) < len(losses) - 1  # a rate so large that the last epoch is not the best
    judged = read_qrels("runs/letor/qrels.txt")
    found = []
    for query_id, scores in read_run(FOLD / "valid.run").items():
        labels = torch.tensor([[float(judged[query_id][doc_id]) for doc_id in scores]])
        found.append(float(smoothi(torch.tensor([list(scores.values())]), labels)))
    assert sum(found) / len(found) == pytest.approx(min(losses), abs=1e-4)
    manifest = json.loads((FOLD / "manifest.json").read_text())
    assert manifest["best_epoch"] == losses.index(min(losses)) + 1


def test_a_seed_repeats_a_run_and_a_resumed_one_ends_as_the_whole(here, capsys, monkeypatch):
    main(command("--fold", "1"))
    main(command("--fold", "1", "--name", "again"))
    main(command("--fold", "1", "--name", "other", "--seed", "1"))
    save = training.save_state

    def interrupt(*arguments):
        kept = save(*arguments)
        if len(arguments[3]) == 2:
            raise KeyboardInterrupt
        return kept

    monkeypatch.setattr(training, "save_state", interrupt)
    assert exit_code(*command("--fold", "1", "--name", "resumed")) == 130
    monkeypatch.setattr(training, "save_state", save)
    main(command("--fold", "1", "--name", "resumed"))
    assert "resuming after epoch 2" in capsys.readouterr().err
    whole = epochs_of(FOLD)
    assert epochs_of(Path("runs/letor/again/fold1")) == epochs_of(Path("runs/letor/resumed/fold1")) == whole
    assert epochs_of(Path("runs/letor/other/fold1")) != whole
    run = read_run(FOLD / "test.run")
    assert read_run("runs/letor/again/fold1/test.run") == read_run("runs/letor/resumed/fold1/test.run") == run


def test_a_transform_changes_the_network_and_its_checkpoint(here):
    runs = []
    for name in ("none", "log1p"):
        main(command("--fold", "1", "--name", name, "--network.transform", name))
        folder = Path(f"runs/letor/{name}/fold1")
        runs.append(read_run(folder / "test.run"))
        assert json.loads((folder / "checkpoint" / "config.json").read_text()).get("transform", "none") == name
        for query_id, vectors in vectors_of("letor/Fold1/test.txt").items():
            scores = open_feature_mlp(folder / "checkpoint")(torch.tensor(list(vectors.values())))
            assert runs[-1][query_id] == pytest.approx(dict(zip(vectors, scores.tolist(), strict=True)), abs=1e-5)
    assert runs[0] != runs[1]


def vectors_of(path):
    """query_id -> doc_id -> its feature vector."""
    found = {}
    for line in Path(path).read_text().splitlines():
        words = line.split()
        found.setdefault(words[1].removeprefix("qid:"), {})[words[-1]] = [float(w.split(":")[1]) for w in words[2:6]]
    return found


def test_an_epoch_is_every_training_query_once(here, monkeypatch):
    seen = []
    monkeypatch.setattr(
        training, "accumulate_gradient", lambda model, batch, *rest: seen.append(batch) or gradient(model)
    )

    def gradient(model):
        sum(parameter.sum() for parameter in model.parameters()).backward()
        return torch.zeros(len(seen[-1].labels), 2, dtype=torch.float64)

    main(command("--fold", "1", "--epochs", "2"))
    train = json.loads(Path("runs/letor/folds.json").read_text())[0]["train"]
    steps = [batch.query_ids for batch in seen]
    assert [len(step) for step in steps] == [4, 4, 4, 4, 2] * 2
    first, second = ([q for step in half for q in step] for half in (steps[:5], steps[5:]))
    assert sorted(first) == sorted(second) == sorted(train)
    assert first != second


def test_a_set_with_one_fold_is_evaluated_on_its_test_queries(here, capsys):
    for part, queries in (("train", range(12)), ("valid", range(12, 16)), ("test", range(16, 24))):
        write_part(here / "yahoo" / f"set1.{part}.txt", list(queries))
    main(command("--collection", "yahoo", "--seed", "3", "--name", "seed3"))
    main(["eval", "runs/yahoo/seed3/all.run"])
    assert "queries of fold 1" in (table := capsys.readouterr().out)
    assert "8 queries" in table
    assert "Every run has every query." in table


def test_feature_files_without_a_training_file_are_not_taken_for_texts(here, capsys):
    (here / "letor" / "Fold1").rename(here / "sample")
    (here / "sample" / "train.txt").unlink()
    line = failed(capsys, *command("--collection", "sample"))
    assert "sample: expected train.txt or set1.train.txt or trainingset.txt, .gz or not, got none" in line
    assert "corpus.jsonl" not in line


def test_a_finished_fold_of_other_files_is_not_mixed_with(here, capsys):
    main(command("--fold", "1"))
    write_folds_of_features(here / "letor", seed=1)
    assert "other feature files" in failed(capsys, *command("--fold", "1"))
    main(command("--fold", "1", "--output.folder", "elsewhere"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--collection", "letor"], "--lists.relevant all"),
        (command("--lists.non-relevant", "3"), "--lists.non-relevant all, as in configs/mq2008.toml"),
        (command("--fold", "6"), "fold 6: no such fold; expected 1, 2, 3, 4, 5, all or final"),
        (command("--network.hidden", "0"), "--network.hidden: got 0, expected 1 or more"),
        (command("--network.transform", "cube"), "cube"),
        (command("--training.measure", "losses"), "losses"),
        (command("--training.lists-per-epoch", "most"), "--training.lists-per-epoch"),
        (["retrieve", "--collection", "letor"], "letor: holds feature vectors, no text: there is nothing to retrieve"),
        (["score", "c", "r.run", "--out", "o.run", "--collection", "letor"], "letor: holds feature vectors, no text"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(here, capsys, words, expected):
    assert expected in failed(capsys, *words)
    assert not list(Path().rglob("*.run"))


def test_several_processes_are_refused():
    with pytest.raises(UserError, match="2 processes: batch norm"):
        FeatureDataset(Config(), None, [], {}).task(None, SimpleNamespace(num_processes=2))


def test_no_relevant_document_to_learn_from(here, capsys):
    for part in ("train", "vali", "test"):
        path = here / "letor" / "Fold3" / f"{part}.txt"
        path.write_text("".join("0" + line[1:] for line in path.read_text().splitlines(keepends=True)))
    assert "fold 3: none of its 18 training queries has a relevant document" in failed(capsys, *command("--fold", "3"))


def test_out_of_memory_says_what_to_take_less_of(here, capsys, monkeypatch):
    def exhausted(*arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(gradients, "exact_metric", exhausted)
    line = failed(capsys, *command("--fold", "1"))
    assert "out of memory with the " in line
    assert "--training.lists-per-step" in line


@pytest.mark.parametrize("name", ["mq2007", "mq2008", "web30k", "yahoo"])
def test_the_configurations_of_feature_sets_are_the_papers(name, monkeypatch):
    seen = []
    monkeypatch.setattr(
        experiment, "train_folds", lambda config, *_: seen.append(config) or ExperimentFolder(Path("runs"))
    )
    main(["train", "--config", name])
    table = seen[0].training
    assert (seen[0].lists.relevant, seen[0].lists.non_relevant, seen[0].network.hidden) == ("all", "all", 1024)
    assert (table.epochs, table.patience, table.lists_per_epoch, table.lists_per_step) == (50, 50, "all", 128)
    assert (table.measure, table.precision) == ("loss", "float32")


def test_a_final_model_scores_another_file(here, capsys):
    """It learns from the queries of all folds, and a file may leave out features that are 0 in all its lines."""
    main(command("--epochs", "2", "--fold", "final"))
    folder = Path("runs/letor/smoothi/final")
    fold = json.loads((folder / "manifest.json").read_text())["fold"]
    assert len({*fold["train"], *fold["valid"]}) == 30
    assert not fold["test"]
    capsys.readouterr()
    Path("new.txt").write_text("0 qid:a 1:0.5 # docid = x\n0 qid:a 2:0.9 # docid = y\n0 qid:b 1:0.1 # docid = z\n")
    main(["score", str(folder / "checkpoint"), "--collection", "new.txt", "--out", "new.run"])
    run = read_run("new.run")
    assert {query_id: set(scores) for query_id, scores in run.items()} == {"a": {"x", "y"}, "b": {"z"}}
    model = open_feature_mlp(folder / "checkpoint")
    features = torch.zeros(3, model.features)
    features[0, 0], features[1, 1], features[2, 0] = 0.5, 0.9, 0.1
    with torch.no_grad():
        expected = model(features).tolist()
    assert [run["a"]["x"], run["a"]["y"], run["b"]["z"]] == pytest.approx(expected, abs=1e-6)
    Path("wide.txt").write_text("0 qid:a 999:1\n")
    line = failed(capsys, "score", str(folder / "checkpoint"), "--collection", "wide.txt", "--out", "wide.run")
    assert f"wide.txt: has features 1 to 999; the model was trained with 1 to {model.features}" in line
    Path("bare.txt").write_text("1 1:0.5 2:0.1\n")
    wrong = {
        "letor": "is a folder",
        "no.txt": "no such file",
        "bare.txt": "its first line has features, but no qid:QUERY after the label",
    }
    for source, reason in wrong.items():
        line = failed(capsys, "score", str(folder / "checkpoint"), "--collection", source, "--out", "new2.run")
        assert f"--collection {source}: {reason}, and {folder / 'checkpoint'} is a model of feature vectors" in line
    assert "has features, but no qid:QUERY after the label" in failed(capsys, *command("--collection", "bare.txt"))


def test_a_file_without_feature_0_is_scored_by_the_numbers_of_its_features(here, capsys):
    """A line leaves a feature out that is 0, so that only a model knows that features are numbered from 0."""
    lines = re.sub(r" (\d):", lambda number: f" {int(number[1]) - 1}:", Path("letor/Fold1/train.txt").read_text())
    Path("zero.txt").write_text(lines)
    main(command("--epochs", "2", "--fold", "final", "--collection", "zero.txt"))
    checkpoint = "runs/zero/smoothi/final/checkpoint"
    for name, left_out in (("with", "0:0.0 "), ("without", "")):
        Path(f"{name}.txt").write_text(f"0 qid:a {left_out}1:0.5 # docid = x\n0 qid:a 2:0.9 # docid = y\n")
        main(["score", checkpoint, "--collection", f"{name}.txt", "--out", f"{name}.run"])
    assert read_run("without.run") == read_run("with.run")
    main(command("--epochs", "1", "--fold", "final", "--collection", "letor"))
    words = ["runs/letor/smoothi/final/checkpoint", "--collection", "with.txt", "--out", "new.run"]
    assert "with.txt: has features 0 to 2; the model was trained with 1 to 4" in failed(capsys, "score", *words)


def test_dropout_changes_training_and_not_scoring(here):
    """Each hidden unit of a step is kept with probability 1 - p, and divided by it."""
    main(command("--epochs", "2", "--fold", "1", "--name", "without"))
    main(command("--epochs", "2", "--fold", "1", "--name", "with", "--network.dropout", "0.5"))
    main(command("--epochs", "2", "--fold", "1", "--name", "again", "--network.dropout", "0.5"))
    runs = {name: read_run(f"runs/letor/{name}/fold1/test.run") for name in ("without", "with", "again")}
    assert runs["with"] == runs["again"] != runs["without"]
    model = FeatureMLP(3, 2000, 0, dropout=0.5).train()
    torch.manual_seed(0)
    features = torch.randn(50, 3)
    plain = FeatureMLP(3, 2000, 0).train()
    with torch.no_grad():
        mean = torch.stack([model(features) for _ in range(200)]).mean(dim=0)
        assert torch.allclose(mean, plain(features), atol=0.25)
        assert torch.equal(model.eval()(features[:5]), model(features[:5]))
