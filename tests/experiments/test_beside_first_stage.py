"""`rerank train` beside its first stage: its value of the same validation queries in log, table and last line."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import write_run
from rerank.evaluation.evaluate import evaluate
from tests.support.parsed_html import Page
from tests.support.small_collection import command, epochs_of

FOLD = Path("runs/towns/smoothi/fold1")
DEPTH = 5


def first_stage_value(run, measure):
    """The mean over the validation queries, of the candidates alone, by a way of its own."""
    valid = json.loads((FOLD / "manifest.json").read_text())["fold"]["valid"]
    best = {q: dict(sorted(run[q].items(), key=lambda found: -found[1])[:DEPTH]) for q in valid}
    qrels = {q: grades for q, grades in read_qrels("runs/towns/qrels.txt").items() if q in valid}
    return fmean(evaluate(qrels, best, [measure])[measure].values())


def test_each_epoch_has_the_first_stages_value_of_the_same_queries(here, capsys):
    main(command("--fold", "1", "--depth", str(DEPTH), "--training.measure", "AP"))
    said = capsys.readouterr().err
    records = epochs_of(FOLD)
    expected = first_stage_value(read_run(f"runs/towns/bm25-depth={DEPTH}.run"), "AP")
    assert [record["first_stage"] for record in records] == pytest.approx([expected] * 2)
    shown = [f"{record[key]:.4f}" for record in records for key in ("valid", "first_stage")]
    found = re.findall(r"epoch \d: .*, validation (0\.\d{4})(?: \(best\))?, first stage (0\.\d{4})", said)
    assert [value for pair in found for value in pair] == shown
    facts = json.loads((FOLD / "manifest.json").read_text())
    assert facts["first_stage_valid"] == records[0]["first_stage"]
    assert ("ends behind its first stage" in said) == (facts["best_valid"] < facts["first_stage_valid"])
    main(["report", "runs/towns/smoothi", "--out", "report.html"])
    assert f"{facts['best_valid']:.4f}{facts['first_stage_valid']:.4f}" in Page(Path("report.html")).text


def test_a_training_that_ends_behind_its_first_stage_says_what_to_do(here, capsys):
    judged = read_qrels("runs/towns/qrels.txt")
    ideal = {q: {d: 2.0 * grade - n / 100 for n, (d, grade) in enumerate(of.items())} for q, of in judged.items()}
    write_run(ideal, Path("ideal.run"), "ideal")
    main(command("--fold", "1", "--first-stage.run", "ideal.run", "--lr", "0", "--training.head-lr", "0"))
    facts = json.loads((FOLD / "manifest.json").read_text())
    assert facts["first_stage_valid"] == 1
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "behind" in line)
    against = f"fold 1 ends behind its first stage: nDCG@20 {facts['best_valid']:.4f} against 1.0000 on 3 validation"
    assert against in line
    assert "`rerank fuse`" in line
    assert "`rerank fit`" in line
    assert "these 9 that trained it (a plain encoder needed 1,000 on NFCorpus)" in line


def test_a_loss_has_no_value_of_the_first_stage(here, capsys):
    main(command("--fold", "1", "--training.measure", "loss"))
    assert "first stage" not in capsys.readouterr().err.split("epoch 1", 1)[1]
    assert "first_stage_valid" not in json.loads((FOLD / "manifest.json").read_text())
