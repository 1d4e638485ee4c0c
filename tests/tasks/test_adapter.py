"""A query adapter: its scores against a loop, its checkpoint in sentence-transformers, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.cli.main import main
from rerank.data.candidates import standardised
from rerank.data.collections import open_collection
from rerank.data.folds import read_folds
from rerank.data.trec import ranked, read_run
from rerank.models.bi_encoder import open_bi_encoder
from rerank.models.bi_encoder_files import bi_encoder_hash
from rerank.models.query_adapter import QueryAdapter, VectorPairs, load_adapter, standardising_scale
from tests.support.small_collection import SETTINGS, failed, in_a_copy

LISTS = ["--lists.relevant", "all", "--lists.non-relevant", "all", "--training.lists-per-epoch", "all"]
RATES = ["--training.head-lr", "3e-3", "--loss", "hinge", "--epochs", "3", "--batch-size", "1"]
COMMON = ["train", "--config", "towns.toml", "--encoder.architecture", "query-adapter", "--depth", "6"]
TRAIN = [*COMMON, *LISTS, *RATES, "--encoder.first-stage-weight", "2", "--name", "adapter"]
FOLD = Path("runs/towns/adapter/fold1")


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with an adapter, trained on all folds."""
    with in_a_copy(home, tmp_path_factory) as folder:
        Path("towns.toml").write_text(SETTINGS.replace("[encoder]", "folds = 3\n[encoder]"))
        main([*TRAIN, "--fold", "all"])
    return folder


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def similarities(encoder, collection, query_id, doc_ids, matrix):
    """The largest product of a query's vector times the matrix with a passage of each document, one by one."""
    texts = {document.doc_id: document.text for document in collection.documents()}
    query = unit(encoder.encode_queries({query_id: collection.queries[query_id]})[query_id].astype(np.float64))
    found = [unit(encoder.encode_documents([texts[doc_id]])[0].astype(np.float64)) for doc_id in doc_ids]
    return [max(float(matrix @ query @ passage) for passage in passages) for passages in found]


def test_the_test_run_has_the_scores_of_a_loop_over_the_definition(here):
    collection, encoder = open_collection("towns"), open_bi_encoder("encoder", "cpu")
    matrix = load_adapter(FOLD / "checkpoint").matrix().double().numpy()
    first, run = read_run("runs/towns/bm25.run"), read_run(FOLD / "test.run")
    (fold,) = (fold for fold in read_folds(Path("runs/towns/folds.json")) if fold.name == "1")
    assert set(run) == set(fold.test)
    for query_id, scores in run.items():
        doc_ids = ranked(first[query_id])[:6]
        from_bm25 = standardised([first[query_id][doc_id] for doc_id in doc_ids])
        from_vectors = similarities(encoder, collection, query_id, doc_ids, matrix)
        expected = {d: 2 * z + s for d, z, s in zip(doc_ids, from_bm25, from_vectors, strict=True)}
        assert scores.keys() == expected.keys()
        np.testing.assert_allclose([scores[d] for d in expected], list(expected.values()), atol=1e-4)


def test_training_begins_with_the_ranking_of_the_bi_encoder_and_changes_it(here):
    encoder = open_bi_encoder("encoder", "cpu")
    scale = json.loads((FOLD / "manifest.json").read_text())["adapter"]["scale"]
    identity = scale * torch.eye(len(encoder.encode_queries({"q": "amber"})["q"]))
    assert not torch.allclose(load_adapter(FOLD / "checkpoint").matrix(), identity, atol=1e-3)
    main([*(word if word != "3e-3" else "0" for word in TRAIN[:-1]), "still", "--fold", "1"])
    torch.testing.assert_close(load_adapter(Path("runs/towns/still/fold1/checkpoint")).matrix(), identity)
    losses = [json.loads(line)["loss"] for line in (FOLD / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]


def test_the_checkpoint_is_a_bi_encoder_that_retrieves_with_the_adapter(here, capsys):
    from sentence_transformers import SentenceTransformer

    collection, encoder = open_collection("towns"), open_bi_encoder("encoder", "cpu")
    matrix = load_adapter(FOLD / "checkpoint").matrix().double().numpy()
    model = SentenceTransformer(str(FOLD / "checkpoint"), device="cpu")
    query = unit(encoder.encode_queries({"q": "amber birch"})["q"].astype(np.float64))
    np.testing.assert_allclose(model.encode_query("amber birch"), matrix @ query, atol=1e-5)
    capsys.readouterr()
    main(["retrieve", "--config", "towns.toml", "--first-stage.encoder", str(FOLD / "checkpoint"), "--depth", "5"])
    run = read_run(capsys.readouterr().out.strip())
    doc_ids = [document.doc_id for document in collection.documents()]
    for query_id in list(run)[:3]:
        expected = similarities(encoder, collection, query_id, doc_ids, matrix)
        np.testing.assert_allclose(sorted(run[query_id].values()), sorted(expected)[-5:], atol=1e-4)
    card = (FOLD / "checkpoint" / "README.md").read_text()
    assert "model.encode_query([query])" in card
    assert "plus 2 times" in card


def test_the_hash_of_a_bi_encoder_covers_the_matrix(here):
    (weights,) = Path(FOLD / "checkpoint").glob("*_Router/query_*_Dense/model.safetensors")
    before = bi_encoder_hash(str(FOLD / "checkpoint"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    assert bi_encoder_hash(str(FOLD / "checkpoint")) != before


def test_its_folds_are_evaluated_and_verified_and_a_final_one_is_trained(here, capsys):
    main(["eval", "runs/towns/bm25.run", "runs/towns/adapter/all.run", "--measures", "nDCG@10"])
    assert "adapter" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["verify", "runs/towns/adapter"])
    assert ended.value.code == 0
    main([*TRAIN, "--fold", "final"])
    assert (Path("runs/towns/adapter/final/checkpoint") / "modules.json").is_file()


def test_a_second_training_gives_the_same_run(here):
    main([*TRAIN[:-1], "again", "--fold", "1"])
    assert read_run("runs/towns/again/fold1/test.run") == read_run(FOLD / "test.run")


def test_the_gradient_is_that_of_the_definition():
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    lists, documents = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 2, 3, 5])
    pairs = VectorPairs(drawn(2, 4), drawn(6, 4), lists, documents, 6)
    model = QueryAdapter(4).double()
    model.scale = 3.0
    weights = drawn(6)

    def weighted_sum(change):
        return (weights * torch.func.functional_call(model, {"change": change}, (pairs,))).sum()

    change = (0.3 * drawn(4, 4)).requires_grad_()
    assert torch.autograd.gradcheck(weighted_sum, (change,))
    change = change.detach()
    scores = torch.func.functional_call(model, {"change": change}, (pairs,))
    for document in range(6):
        rows = [row for row in range(6) if documents[row] == document]
        products = [
            3 * (pairs.queries[lists[row]] + change @ pairs.queries[lists[row]]) @ pairs.passages[row] for row in rows
        ]
        assert float(scores[document]) == pytest.approx(float(max(products, default=0)), abs=1e-12)


def test_the_scale_gives_scores_a_standard_deviation_of_one_on_average():
    generator = torch.Generator().manual_seed(0)
    model = QueryAdapter(4)
    rows = torch.arange(7)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator)

    lists = [VectorPairs(drawn(1, 4), drawn(7, 4), torch.zeros_like(rows), rows, 7) for _ in range(5)]
    model.scale = standardising_scale(model, lists)
    deviations = [float(model(pairs).detach().std(correction=0)) for pairs in lists]
    assert sum(deviations) / 5 == pytest.approx(1, rel=1e-5)
    assert standardising_scale(model, []) == 1.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pretraining.steps", "2"], "got --pretraining.steps 2; leave one out"),
        (["--training.lists", "towns.toml"], "got --training.lists towns.toml; leave one out"),
        (["--encoder.lora-rank", "2"], "got --encoder.lora-rank 2; leave one out"),
    ],
)
def test_what_an_adapter_cannot_do_is_one_line(here, capsys, flags, message):
    assert message in failed(capsys, *COMMON, "--fold", "1", *flags)


def test_it_is_not_distilled(here, capsys):
    words = ["distill", "encoder", *COMMON[1:], "--loss", "margin_mse"]
    assert "--encoder.architecture query-adapter: learns from judged candidates" in failed(capsys, *words)
