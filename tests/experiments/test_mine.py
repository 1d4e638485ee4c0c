"""`rerank mine`: hard negatives that are neither judged relevant nor near-duplicates of what is."""

import json
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.collections import open_collection
from rerank.data.runs import read_run
from rerank.data.trec import ranked, write_run
from rerank.experiments import score as rescore
from tests.support.small_collection import command, failed

OUT = Path("mined.jsonl")
RUN = "runs/towns/bm25.run"


def mined(*words, by=RUN):
    OUT.unlink(missing_ok=True)
    main(["mine", "towns", "--by", by, "--out", str(OUT), *words])
    return [json.loads(line) for line in OUT.read_text().splitlines()]


def test_a_list_has_a_relevant_document_and_others_that_rank_high(here):
    run, qrels = read_run(RUN), open_collection("towns").qrels
    lists = mined("--negatives", "2", "--ranks", "2", "5")
    relevant = {(q, d) for q, grades in qrels.items() for d, grade in grades.items() if grade > 0}
    assert {(one["query_id"], one["doc_ids"][0]) for one in lists} <= relevant
    for one in lists:
        query_id, (positive, *negatives) = one["query_id"], one["doc_ids"]
        assert one["labels"] == [qrels[query_id][positive], *[0] * len(negatives)]
        places = ranked(run[query_id])[1:5]
        expected = [doc_id for doc_id in places if not qrels[query_id].get(doc_id)]
        assert negatives == expected[:2]
    main(command("--fold", "1", "--training.lists", str(OUT), "--name", "mined"))


def test_margins_are_below_the_score_of_the_relevant_document(here, capsys):
    run, qrels = read_run(RUN), open_collection("towns").qrels
    for words, limit in (
        (["--margin", "0.1"], lambda score: score - 0.1),
        (["--relative-margin", "0.01"], lambda score: 0.99 * score),
    ):
        lists = mined(*words)
        assert lists
        for one in lists:
            scores = run[one["query_id"]]
            positive, *negatives = one["doc_ids"]
            assert all(scores[doc_id] <= limit(scores[positive]) for doc_id in negatives)
    negatives = {q: {d: 1.0 for d, grade in grades.items() if not grade} for q, grades in qrels.items()}
    write_run(negatives, Path("new.run"), "t")
    assert mined(by="new.run")
    for words in (["--margin", "0"], ["--relative-margin", "0"]):  # a document without a score is above none
        assert "no relevant document has a negative" in failed(
            capsys, "mine", "towns", "--by", "new.run", "--out", str(OUT), *words
        )


def test_near_duplicates_of_relevant_documents_are_left_out(here, caplog):
    collection = open_collection("towns")
    query_id = next(iter(collection.qrels))
    relevant = next(doc_id for doc_id, grade in collection.qrels[query_id].items() if grade > 0)
    (document,) = collection.get([relevant])
    with Path("towns/corpus.jsonl").open("a") as corpus:
        corpus.write(json.dumps({"_id": "twin", "text": f"{document.text} indeed"}) + "\n")
        corpus.write(json.dumps({"_id": "other", "text": "nothing of the kind"}) + "\n")
    write_run({query_id: {"twin": 3.0, "other": 2.0, relevant: 1.0}}, Path("new.run"), "t")
    for one in mined(by="new.run"):
        assert one["doc_ids"][1:] == ["other"]
    assert "1 near-duplicates of relevant documents are left out" in caplog.text


def test_a_cross_encoder_ranks_and_random_negatives_repeat(here):
    main(command("--fold", "1"))
    checkpoint = "runs/towns/smoothi/fold1/checkpoint"
    main(["score", checkpoint, RUN, "--out", "scored.run", "--config", "towns.toml"])
    by_model, by_run = mined("--config", "towns.toml", by=checkpoint), mined(by="scored.run")
    assert by_model == by_run
    words = ["--sampling", "random", "--negatives", "1"]
    first, again, other = mined(*words), mined(*words), mined(*words, "--seed", "1")
    assert first == again != other


def test_what_a_cross_encoder_has_scored_is_kept_after_a_kill_and_for_other_options(here, monkeypatch, capsys):
    main(command("--fold", "1"))
    words, checkpoint = ["--config", "towns.toml"], "runs/towns/smoothi/fold1/checkpoint"
    monkeypatch.setattr(rescore, "LEAST_TOKENS", 1)  # a part for each query
    score, asked = rescore.score_candidates, []

    def killed(model, passages, lists, *others):
        asked.extend(one.query_id for one in lists)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return score(model, passages, lists, *others)

    monkeypatch.setattr(rescore, "score_candidates", killed)
    with pytest.raises(SystemExit):
        mined(*words, by=checkpoint)
    assert mined(*words, by=checkpoint)
    assert len(asked) == len(set(asked)) + 1  # only the interrupted part is scored again
    assert mined(*words, "--negatives", "1", by=checkpoint)
    assert len(asked) == len(set(asked)) + 1
    assert ".run already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--ranks", "5", "2"], "--ranks 5 2: expected two ranks from 1, the lower one first"),
        (["--relative-margin", "2"], "--relative-margin 2: expected a share from 0 to 1"),
        (["--margin", "1000"], "mined.jsonl: no relevant document has a negative; take more ranks, or no margin"),
    ],
)
def test_a_mistake_is_one_line(here, capsys, words, expected):
    assert expected in failed(capsys, "mine", "towns", "--by", RUN, "--out", str(OUT), *words)
    assert not OUT.exists()


def test_wrong_files_are_one_line_before_anything_is_ranked(here, capsys):
    words = ["mine", "nowhere", "--out"]  # the collection is opened later
    assert "--out towns: is a folder, expected the name of a file" in failed(capsys, *words, "towns", "--by", RUN)
    line = failed(capsys, "mine", "towns", "--by", "no.run", "--out", str(OUT))
    assert "no.run: no such file; expected a run, or the folder or hub name of a model" in line


def test_settings_without_effect_on_a_pipeline_are_refused(here, capsys):
    """It ranks the queries as they were at the fit, to its own depth."""
    main(["fit", "towns", "--encoder", "none", "--out", "p"])
    rewritten = [
        {**line, "text": "good"} for line in map(json.loads, Path("towns/queries.jsonl").read_text().splitlines())
    ]
    Path("rewritten.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rewritten))
    for flag, value in (("--first-stage.depth", "2"), ("--collection.queries", "rewritten.jsonl")):
        line = failed(capsys, "mine", "towns", "--by", "p", "--out", str(OUT), flag, value)
        assert f"{flag} {value}: has no effect: p has its own settings; leave it out" in line
    assert mined("--seed", "1", "--sampling", "random", by="p")
