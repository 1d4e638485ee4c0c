"""The public class: texts in, scores out, the same scores as those of the command line."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank import BiEncoder, Reranker
from rerank.cli.main import main
from rerank.data.collections import open_collection
from rerank.data.runs import read_run
from rerank.data.splitting import Cut
from rerank.models import cross_encoder
from rerank.models.reranker import Ranked
from rerank.retrieval.bm25 import retrieve
from rerank.utils.errors import UserError
from tests.models.tiny import BF16_CASES
from tests.support.fake_cards import insert_card
from tests.support.small_collection import command
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

DOCUMENTS = ["amber birch", "", "cedar delta ember", "amber birch", " ".join(WORDS * 20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cross-encoder that takes 24 tokens, so that the last of DOCUMENTS has many passages."""
    return make_cross_encoder("bert", tmp_path_factory.mktemp("reranker") / "bert", WORDS, max_positions=24)


@pytest.fixture
def reranker(folder):
    return Reranker.load(folder, device="cpu")


@pytest.mark.parametrize("cut", [(), ("--encoder.passage-tokens", "12", "--encoder.passage-overlap", "4")], ids=len)
def test_scores_are_those_of_rerank_score(here, cut):
    """A checkpoint records how it cuts documents."""
    main(command("--fold", "1", "--encoder.pooling", "max", "--encoder.max-doc-tokens", "30", *cut))
    checkpoint = "runs/towns/smoothi/fold1/checkpoint"
    main(["score", checkpoint, "runs/towns/bm25.run", "--out", "again.run", "--config", "towns.toml"])
    expected = read_run("again.run")
    reranker, collection = Reranker.load(checkpoint), open_collection("towns")
    assert (reranker.model.pooling, reranker.model.max_doc_tokens) == ("max", 30)
    assert reranker.model.cut == (Cut(12, 4) if cut else Cut())

    run = reranker.rerank(read_run("runs/towns/bm25.run"), collection)
    assert run.keys() == expected.keys()
    for query_id, scores in expected.items():
        assert run[query_id] == pytest.approx(scores, abs=1e-5)
        alone = reranker.score(
            collection.queries[query_id], [document.text for document in collection.get(list(scores))]
        )
        assert alone.tolist() == pytest.approx(list(scores.values()), abs=1e-5)
    assert len({score for scores in expected.values() for score in scores.values()}) > 20


@pytest.mark.parametrize(("top_k", "error"), [(-1, ValueError), (0, ValueError), ("2", TypeError), (True, TypeError)])
def test_a_number_of_documents_is_a_whole_number_from_1(reranker, top_k, error):
    for rank in (reranker.rank, reranker.rank_passages):
        with pytest.raises(error, match="top_k: expected"):
            rank("amber", ["birch", "amber"], top_k=top_k)


def test_eight_threads_get_the_answers_of_one(folder, tmp_path):
    encoder = make_encoder("bert", tmp_path / "bert", WORDS, max_positions=24)
    queries = [f"{word} {WORDS[0]}" for word in WORDS]

    def opened():
        """A function of a query with models that no thread has called yet."""
        reranker, bi_encoder = Reranker.load(folder, device="cpu"), BiEncoder.load(encoder, device="cpu")

        def answer(query):
            vectors = (bi_encoder.encode_queries([query]), *bi_encoder.encode_documents([query, DOCUMENTS[-1]]))
            return reranker.rank_passages(query, DOCUMENTS), [array.tolist() for array in vectors]

        return answer

    expected = list(map(opened(), queries))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened(), queries)) == expected


def test_a_saved_model_gives_the_same_scores(reranker, tmp_path):
    expected = reranker.score("amber", DOCUMENTS)
    reranker.save(tmp_path / "saved")
    again = Reranker.load(tmp_path / "saved", device="cpu")
    assert again.score("amber", DOCUMENTS).tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    with pytest.raises(UserError, match="saved: "):
        reranker.save(tmp_path / "saved")


def test_a_model_is_pushed_to_the_hub_as_it_is_saved(reranker, monkeypatch):
    pushed = {}

    class Hub:
        def __init__(self, token):
            pushed["token"] = token

        def create_repo(self, repo_id, private, exist_ok):
            pushed.update(repo_id=repo_id, private=private)
            return f"https://hub/{repo_id}"

        def upload_folder(self, repo_id, folder_path, commit_message):
            pushed["score"] = Reranker.load(folder_path, device="cpu").score("amber", ["birch"]).tolist()

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert reranker.push_to_hub("me/model", private=True, token="hf_x") == "https://hub/me/model"
    assert (pushed["repo_id"], pushed["private"], pushed["token"]) == ("me/model", True, "hf_x")
    assert pushed["score"] == pytest.approx(reranker.score("amber", ["birch"]).tolist(), abs=1e-6)

    pushed.clear()
    monkeypatch.setattr(reranker, "model", "an exported graph")
    with pytest.raises(UserError, match="is an exported graph, not a model; copy its folder instead"):
        reranker.push_to_hub("me/graph")
    assert "repo_id" not in pushed


def test_documents_are_ranked_best_first(reranker):
    scores = reranker.score("fjord", DOCUMENTS)
    assert (scores.dtype, scores.shape) == (np.float32, (5,))
    ranking = reranker.rank("fjord", DOCUMENTS)
    assert sorted(r.index for r in ranking) == [0, 1, 2, 3, 4]
    assert [r.score for r in ranking] == sorted(scores.tolist(), reverse=True)
    pairs = [("fjord", document) for document in reversed(DOCUMENTS)]
    np.testing.assert_allclose(reranker.predict(pairs)[::-1], scores, atol=1e-6)
    settings = "pooling='mean', max_doc_tokens=800, device='cpu', precision='float32'"
    assert repr(reranker) == f"Reranker('{reranker.name}', {settings})"
    assert all(r == Ranked(r.index, scores[r.index], DOCUMENTS[r.index]) for r in ranking)
    assert reranker.rank("fjord", DOCUMENTS, top_k=2) == ranking[:2]
    assert reranker.rank("fjord", DOCUMENTS, top_k=9) == ranking


def test_equal_texts_have_equal_scores_and_stay_in_their_order(reranker):
    scores = reranker.score("fjord", DOCUMENTS)
    assert scores[0] == pytest.approx(scores[3], abs=1e-6)
    assert [ranked.index for ranked in reranker.rank("fjord", ["amber"] * 5)] == [0, 1, 2, 3, 4]
    assert reranker.score("fjord", []).shape == (0,)
    assert reranker.rank("fjord", []) == []
    assert np.isfinite(reranker.score("", ["", "amber"])).all()


def test_scores_do_not_depend_on_the_budget_which_halves_when_memory_runs_out(folder, reranker, monkeypatch):
    expected, forward = reranker.score("fjord", DOCUMENTS), reranker.model.forward
    for tokens in (1, 100, 10_000):
        small = Reranker.load(str(folder), device="cpu", max_tokens_per_forward=tokens)
        np.testing.assert_allclose(small.score("fjord", DOCUMENTS), expected, atol=1e-5)

    def limited(inputs):
        if len(inputs.input_ids) > 60:
            raise RuntimeError("CUDA out of memory.")
        return forward(inputs)

    reranker.scorer.budget.tokens = 100
    monkeypatch.setattr(reranker.model, "forward", limited)
    np.testing.assert_allclose(reranker.score("fjord", DOCUMENTS), expected, atol=1e-5)
    assert reranker.scorer.budget.tokens <= 60


@pytest.mark.parametrize(("asked", "limits", "precision"), BF16_CASES)
def test_bf16_is_used_where_it_is_asked_for_and_where_it_gains(folder, monkeypatch, caplog, asked, limits, precision):
    monkeypatch.setattr("rerank.models.gpu.bf16_gain", lambda: 4.0)
    for name, value in limits.items():
        monkeypatch.setattr(cross_encoder, name, value)
    exact = Reranker.load(folder, device="cpu", precision="float32").score("fjord", DOCUMENTS)
    reranker = Reranker.load(folder, device="cpu", precision=asked)
    difference = np.abs(reranker.score("fjord", DOCUMENTS) - exact).max()
    assert (reranker.scorer.precision, difference > 0) == (precision, precision == "bf16")
    assert difference < 0.1
    assert ("computed in float32: bf16 changes the values of this model by" in caplog.text) == ("FARTHEST" in limits)


def test_queries_that_the_collection_does_not_have_are_skipped(home, monkeypatch, caplog):
    monkeypatch.chdir(home)
    reranker = Reranker.load(make_cross_encoder("bert", home / "whole", WORDS, max_positions=24), device="cpu")
    collection = open_collection("towns")
    monkeypatch.setattr("rerank.utils.progress.log.propagate", True)
    run = reranker.rerank({"q0": {"d0-0": 1.0, "d0-1": 2.0}, "x": {"d0-0": 1.0}}, collection, depth=1)
    assert {query_id: list(scores) for query_id, scores in run.items()} == {"q0": ["d0-1"]}
    assert "1 queries of the run are not in towns, such as x: skipped" in caplog.text
    with pytest.raises(UserError, match="towns: has none of the 1 queries of the run, such as x"):
        reranker.rerank({"x": {"d0-0": 1.0}}, collection)
    assert reranker.rerank({}, collection) == {}


def test_a_collection_without_judgments_and_with_new_queries_is_re_ranked(here):
    shutil.rmtree("towns/qrels")
    Path("new.tsv").write_text("n1\tamber0 good\nn2\tbirch1\n")
    reranker = Reranker.load(make_cross_encoder("bert", here / "whole", WORDS, max_positions=24), device="cpu")
    for collection, queries in ((open_collection("towns"), 15), (open_collection("towns", queries="new.tsv"), 2)):
        run = retrieve(collection, depth=5)
        assert len(run) == queries
        better = reranker.rerank(run, collection)
        assert {query_id: set(found) for query_id, found in better.items()} == {
            q: set(found) for q, found in run.items()
        }


def test_a_card_that_torch_cannot_run_on_is_an_error(folder, monkeypatch):
    insert_card(monkeypatch, "Tesla K80", (3, 7))
    for device in (None, "cuda", "cuda:0"):
        with pytest.raises(UserError, match=r'the NVIDIA GPU of this machine: it has .* 3.7.*; device="cpu" takes the'):
            Reranker.load(folder, device=device)
    assert Reranker.load(folder, device="cpu").scorer.device.type == "cpu"


def test_a_card_that_is_not_the_current_one_is_asked_for_its_own_precision(folder, monkeypatch):
    """The model stays on the CPU; torch only reports what the two cards can do."""
    insert_card(monkeypatch, "Tesla T4", (7, 5), others=[(8, 0)])
    empty = torch.empty  # by which `open_device` tries a card
    monkeypatch.setattr(torch, "empty", lambda *sizes, device=None, **settings: empty(*sizes, **settings))

    def opened(device, **settings):
        with monkeypatch.context() as patch:
            patch.setattr(cross_encoder.CrossEncoder, "to", lambda self, device: self)
            patch.setattr(cross_encoder.CrossEncoder, "_packing_error", lambda model, autocast: "")
            reranker = Reranker.load(folder, device=device, **settings)
        return reranker.scorer.precision, reranker.model.flash

    assert [opened(device) for device in ("cuda", "cuda:0", "cuda:1")] == [*2 * [("fp16", False)], ("bf16", True)]
    assert opened("cuda:1", precision="bf16") == ("bf16", True)
    with pytest.raises(UserError, match="precision bf16: Tesla T4 has no bf16"):
        opened("cuda:0", precision="bf16")


def test_wrong_arguments_are_refused(folder, reranker, tmp_path):
    with pytest.raises(TypeError, match="documents: expected a sequence of texts, got one text"):
        reranker.score("fjord", "amber")
    with pytest.raises(TypeError, match=r"collection: expected an opened one, got 'towns'"):
        reranker.rerank({"q1": {"d1": 1.0}}, "towns")
    with pytest.raises(TypeError, match=r"run: expected {query_id: {doc_id: score}}, got str"):
        reranker.rerank("bm25.run", "towns")
    encoder = make_encoder("bert", tmp_path, WORDS)
    for load, model in ((Reranker.load, folder), (BiEncoder.load, encoder)):
        with pytest.raises(ValueError, match="precision: got half, expected auto, float32, bf16, fp16"):
            load(model, device="cpu", precision="half")
        for device in ("cuda:7", "xla"):
            with pytest.raises(UserError, match=f"device {device}: .*; expected a device of this machine, such as cpu"):
                load(model, device=device)
    with pytest.raises(UserError, match=r"--encoder.pooling maxx: no such pooling; did you mean max\?"):
        Reranker.load(folder, device="cpu", pooling="maxx")
    for name in ("max_doc_tokens", "passage_tokens", "passage_overlap", "max_tokens_per_forward"):
        with pytest.raises(ValueError, match=f"{name}: expected [01] or more, got -3"):
            Reranker.load(folder, device="cpu", **{name: -3})
        with pytest.raises(TypeError, match=f"{name}: expected a whole number, got None"):
            Reranker.load(folder, device="cpu", **{name: None})
    for name in ("pooling", "template"):
        with pytest.raises(TypeError, match=f"{name}: expected a (name|text), got (3|int)"):
            Reranker.load(folder, device="cpu", **{name: 3})
    with pytest.raises(UserError, match="an encoder without a trained head: its architecture is BertModel"):
        Reranker.load(encoder)


def test_first_stage_scores_that_are_no_finite_numbers_are_refused(reranker, monkeypatch):
    monkeypatch.setattr(reranker.model, "first_stage_weight", 0.5)
    for scores, error, expected in [
        ([1.0, float("nan")], UserError, r"first_scores\[1\]: got nan, expected a finite score \(float32\)"),
        ([1e308, 1.0], UserError, r"first_scores\[0\]: got 1e\+308, expected a finite score"),
        (["x", 1.0], TypeError, r"first_scores\[0\]: expected a number, got 'x'"),
        ({0: 1.0, 1: 2.0}, TypeError, "first_scores: expected a sequence of numbers, got dict"),
        ([1.0], ValueError, "first_scores: got 1 for 2 documents"),
    ]:
        for ask in (reranker.rank, reranker.score, reranker.rank_passages):
            with pytest.raises(error, match=expected):
                ask("fjord", ["amber", "birch"], first_scores=scores)


@pytest.mark.parametrize("template", ["", "Query: {query} Document: {document}"])
def test_the_best_passage_has_by_itself_the_score_of_its_document(folder, template):
    """With the pooling max the score of a document is that of its best passage."""
    reranker = Reranker.load(folder, device="cpu", pooling="max", template=template)
    documents = [*DOCUMENTS, *make_texts({f"d{number}": 40 * number for number in range(1, 6)}).values()]
    ranked, passages = reranker.rank("fjord", documents), reranker.rank_passages("fjord", documents)
    assert [(best.index, best.score) for best in passages] == [(found.index, found.score) for found in ranked]
    texts = [documents[best.index][best.begin : best.end] for best in passages]
    assert reranker.score("fjord", texts).tolist() == pytest.approx([best.score for best in passages], abs=1e-5)
    assert any(best.begin > 0 for best in passages)
    assert all(len(text.split()) <= 24 for text in texts)
    assert reranker.rank_passages("fjord", documents, top_k=3) == passages[:3]
    assert reranker.rank_passages("fjord", []) == []


def test_a_score_that_is_not_finite_is_an_error_that_does_not_show_the_query(reranker):
    torch.nn.init.constant_(reranker.model.encoder.classifier.bias, float("nan"))
    for ask in (reranker.score, reranker.rank_passages):
        with pytest.raises(UserError, match="query 0, document 0: the model's score is nan, expected a finite number"):
            ask("a secret", DOCUMENTS)
