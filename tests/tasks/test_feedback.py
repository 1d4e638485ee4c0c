"""Pseudo-relevance feedback of a dense first stage: the run, what is recorded, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from rerank.cli.main import main
from rerank.data.collections import open_collection
from rerank.data.trec import ranked, read_run, write_run
from rerank.models.bi_encoder import open_bi_encoder
from tests.support.small_collection import SETTINGS, command, failed, in_a_copy

RETRIEVE = ["retrieve", "--collection", "towns", "--first-stage.encoder", "encoder"]
FEEDBACK = [*RETRIEVE, "--first-stage.feedback", "earlier.run"]
RUN = Path("runs/towns/dense=encoder-feedback=earlier.run")


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with BM25's run, `earlier.run`, and the run that it moves the queries of."""
    with in_a_copy(home, tmp_path_factory) as folder:
        Path("towns.toml").write_text(SETTINGS.replace("[encoder]", "folds = 3\n[encoder]"))
        main(["retrieve", "--collection", "towns"])
        Path("runs/towns/bm25.run").rename("earlier.run")
        main(FEEDBACK)
    return folder


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_a_query_moves_towards_the_mean_of_its_best_three_documents(here):
    collection, encoder = open_collection("towns"), open_bi_encoder("encoder", "cpu")

    def vectors(text):
        return encoder.encode_documents([text])[0].astype(np.float64)

    passages = {document.doc_id: vectors(document.text) for document in collection.documents()}
    assert max(map(len, passages.values())) > 1
    earlier, run = read_run("earlier.run"), read_run(RUN)
    assert list(run) == list(collection.queries)
    for query_id, text in collection.queries.items():
        query = encoder.encode_queries({query_id: text})[query_id].astype(np.float64)
        best = [unit(passages[doc_id].mean(0)) for doc_id in ranked(earlier[query_id])[:3]]
        moved = unit(unit(query) + sum(best) / len(best))
        expected = {doc_id: max(float(moved @ unit(one)) for one in some) for doc_id, some in passages.items()}
        assert run[query_id].keys() == expected.keys()
        np.testing.assert_allclose([run[query_id][doc_id] for doc_id in expected], list(expected.values()), atol=1e-5)


def test_queries_that_the_run_does_not_have_are_searched_without_feedback(here, capsys):
    main(RETRIEVE)
    plain = read_run("runs/towns/dense=encoder.run")
    earlier = read_run("earlier.run")
    first, second, *_ = earlier
    write_run("one.run", {first: earlier[first], second: {"nowhere": 1.0}}, "one")
    capsys.readouterr()
    main([*RETRIEVE, "--first-stage.feedback", "one.run"])
    captured = capsys.readouterr()
    assert f"{len(plain) - 1} of {len(plain)} queries have no document in one.run" in captured.err
    found, moved = read_run(captured.out.strip()), read_run(RUN)
    assert found[first] == moved[first] != plain[first]
    assert {q: scores for q, scores in found.items() if q != first} == {q: s for q, s in plain.items() if q != first}


def test_the_record_and_the_manifest_have_the_hash_of_the_run(here):
    main(command("--fold", "1", "--epochs", "1", "--name", "moved", *FEEDBACK[3:]))
    recorded = json.loads(RUN.with_suffix(".json").read_text())["encoder"]["feedback"]
    assert recorded["documents"] == 3
    assert len(recorded["sha256"]) == 64
    facts = json.loads(Path("runs/towns/moved/fold1/manifest.json").read_text())["first_stage"]
    assert facts["encoder"]["feedback"] == recorded
    assert facts["run"] == str(RUN)


def test_score_retrieves_with_it_where_no_run_is_given(here):
    main(command("--fold", "1", "--epochs", "1", "--name", "any"))
    words = ["score", "runs/towns/any/fold1/checkpoint", "--collection", "towns", "--depth", "4", "--out", "scored.run"]
    main([*words, *FEEDBACK[3:]])
    found = {query_id: set(ranked(scores)[:4]) for query_id, scores in read_run(RUN).items()}
    assert {query_id: set(scores) for query_id, scores in read_run("scored.run").items()} == found


def test_another_run_of_the_same_name_is_refused(here, capsys):
    earlier = read_run("earlier.run")
    write_run("earlier.run", {q: dict(list(scores.items())[1:]) for q, scores in earlier.items()}, "other")
    assert failed(capsys, *FEEDBACK) == (
        f"rerank: {RUN}: retrieved with another --first-stage.feedback than the run of now; remove it to retrieve "
        "again, or take another --output.folder"
    )


@pytest.mark.parametrize(
    "lines, words, expected",
    [
        ("", ["--first-stage.feedback", "none.run"], "--first-stage.feedback none.run: no such file"),
        ("q99 Q0 d1 1 1.0 t\n", FEEDBACK[5:], "earlier.run: has none of the"),
        ("{q} Q0 nowhere 1 1.0 t\n", FEEDBACK[5:], "earlier.run: none of its documents (nowhere) is one of"),
        ("{q} Q0 nowhere 1\n", FEEDBACK[5:], "earlier.run:1: "),
    ],
)
def test_a_run_that_cannot_give_feedback_is_one_line(here, capsys, lines, words, expected):
    query_id = next(iter(open_collection("towns").queries))
    Path("earlier.run").write_text(lines.format(q=query_id))
    assert expected in failed(capsys, *RETRIEVE, *words, "--depth", "5")


@pytest.mark.parametrize("words", [[], ["--first-stage.run", "earlier.run"]])
def test_without_an_encoder_it_is_one_line(here, capsys, words):
    line = failed(capsys, "retrieve", "--collection", "towns", "--first-stage.feedback", "earlier.run", *words)
    assert "--first-stage.feedback earlier.run: moves the vectors of queries, so it needs a bi-encoder" in line
