"""Grades that a loss cannot learn from: one line before the first step, and no limit where there need be none."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rerank.cli.main import main
from tests.support.small_collection import command, failed

OTHERS = (
    "or another --loss.metric than ndcg, or one of the losses approx, bce, fastsort, hinge, lambda_loss, listap, "
    "listmle, listnet, mse, neural_ndcg, ot, pairwise_softmax, pirank, ranknet, softmax"
)
REFUSED = f"grade 60: the loss smoothi learns from grades up to 10; take lower ones, {OTHERS}"


def grades(number):
    """The grades of the collection, with `number` in place of 1."""
    path = Path("towns/qrels/test.tsv")
    path.write_text(re.sub(r"\t1$", f"\t{number}", path.read_text(), flags=re.M))


def test_judgments_are_refused_with_their_line(here, capsys):
    grades(60)
    (here / "runs/towns/bm25.run").unlink()
    line = f"rerank: towns/qrels/test.tsv:2: {REFUSED}"
    assert failed(capsys, *command()) == line
    assert failed(capsys, *command("--loss.metric", "ndcg@5")) == line
    Path("stages.toml").write_text(
        """[stages.bm25]
        kind = "bm25"
        [stages.answer]
        kind = "cross-encoder"
        of = "bm25"
        encoder = "encoder"
        """
    )
    assert failed(capsys, "fit", "towns", "--pipeline", "stages.toml") == line
    assert not list(here.glob("runs/towns/**/*.run"))


def test_training_lists_and_feature_files_are_refused_with_their_line(here, capsys):
    lists = [{"query_id": "q1", "doc_ids": ["d1-0", "d1-1"], "labels": labels} for labels in ([1, 0], [0, 60])]
    Path("lists.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lists))
    assert failed(capsys, *command("--training.lists", "lists.jsonl")) == f"rerank: lists.jsonl:2: {REFUSED}"
    labels = {query: [0, 1, 60 if query == 2 else 2] for query in range(9)}
    lines = [f"{label} qid:{query} 1:{label}" for query, of in labels.items() for label in of]
    Path("features.txt").write_text("\n".join(lines) + "\n")
    words = "train", "--collection", "features.txt", "--lists.relevant", "all", "--lists.non-relevant", "all"
    assert failed(capsys, *words) == f"rerank: features.txt:9: {REFUSED}"


@pytest.mark.parametrize("words", [("--loss", "approx"), ("--loss.metric", "ap")])
def test_other_losses_and_metrics_learn_from_any_grade(here, capsys, words):
    grades(360)
    main(command("--fold", "1", "--epochs", "1", *words))
    (epoch,) = map(json.loads, next(Path("runs/towns").glob("*/fold1/log.jsonl")).read_text().splitlines())
    assert np.isfinite([epoch["loss"], epoch["ndcg"], epoch["valid"]]).all()
    assert 0 < epoch["loss"] < 1
    assert 0 < epoch["ndcg"] < 1
