"""What each stage computes, against loops over its definition in float64."""

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest

from rerank.config import Config, FirstStageSettings, TrainingSettings
from rerank.data.candidates import standardised
from rerank.data.folds import read_folds
from rerank.data.runs import read_run
from rerank.data.trec import ranked
from rerank.data.types import Fold
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.fusion import fuse_ranks, fuse_scores
from rerank.evaluation.weights import is_ahead, tune_weights
from rerank.experiments.train import train_folds
from rerank.models.late_interaction import groups_of_tokens, rotation_of
from rerank.models.reranker import Reranker
from rerank.pipelines.stages import BM25Stage, CrossEncoderStage, features
from rerank.pipelines.stages import world as worlds
from rerank.pipelines.stages.bm25 import K1, B
from rerank.pipelines.stages.neighbours import WEIGHTS as NEIGHBOUR_WEIGHTS
from rerank.pipelines.stages.neighbours import word_similarities
from rerank.pipelines.stages.similar_queries import WEIGHTS
from rerank.retrieval.bm25 import Searcher, retrieve
from rerank.retrieval.words import find_words
from tests.pipelines.stages.worlds import FOLD, STAGES, TESTED, Judged, fitted, open_world, ranked_by, runs_below


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def passages_of(world):
    """doc_id -> the unit vectors of its passages, one document at a time."""
    encode = world.encoder("encoder").encode_documents
    return {document.doc_id: encode([document.text])[0].astype(np.float64) for document in world.texts.documents()}


def query_of(world, query_id):
    text = world.collection.queries[query_id]
    return world.encoder("encoder").encode_queries([text])[0].astype(np.float64)


def expect_scores(found, expected, atol=1e-5):
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[doc_id] for doc_id in expected], list(expected.values()), atol=atol)


def test_bm25_is_pyserinis(world, tmp_path):
    whole = retrieve(world.collection, 1000, 0.9, 0.4, cache=world.folder.index)
    assert ranked_by(fitted(world, "bm25", tmp_path), world, "bm25") == {q: whole[q] for q in TESTED}


def test_bm25_takes_of_the_almost_best_settings_the_nearest_to_its_own(world, tmp_path):
    judged = {q: world.collection.queries[q] for q in (*FOLD.train, *FOLD.valid)}
    qrels = {query_id: world.collection.qrels[query_id] for query_id in judged}
    values = {}
    for k1, b in [(0.0, 1.0), *itertools.product(K1, B)]:
        run = Searcher(world.index, k1, b).search(judged, 100)
        values[k1, b] = list(evaluate(qrels, run, ["nDCG@20"])["nDCG@20"].values())
    best = max(values.values(), key=fmean)
    good = [place for place, of in values.items() if fmean(of) >= fmean(best) - stdev(best) / len(best) ** 0.5 / 2]
    k1, b = min(good, key=lambda place: ((place[0] - 0) / 2) ** 2 + (place[1] - 1) ** 2)
    settings = BM25Stage(0.0, 1.0, tune=True)
    ranker = settings.fit(world, FOLD, [], tmp_path)
    ranker.save(tmp_path)
    asked = {q: world.collection.queries[q] for q in TESTED}
    for one in (ranker, settings.open(open_world(), tmp_path)):
        assert one.rank(asked, []) == Searcher(world.index, k1, b).search(asked, 1000)


def test_bm25_with_rm3_adds_words_of_the_best_documents(world, tmp_path):
    asked = {q: world.collection.queries[q] for q in TESTED}
    run = BM25Stage(rm3=True).fit(world, FOLD, [], tmp_path).rank(asked, [])
    assert run == Searcher(world.index_with_words, rm3=True).search(asked, 1000)


def test_a_dense_score_is_that_of_the_best_passage(world, tmp_path):
    passages = passages_of(world)
    assert max(map(len, passages.values())) > 1
    run = ranked_by(fitted(world, "dense", tmp_path), world, "dense")
    for query_id in TESTED:
        query = unit(query_of(world, query_id))
        expect_scores(run[query_id], {d: float((unit(some) @ query).max()) for d, some in passages.items()})


def test_feedback_moves_a_query_towards_the_best_three_documents(world, tmp_path):
    passages = passages_of(world)
    run = ranked_by(fitted(world, "feedback", tmp_path), world, "feedback")
    first = fuse_ranks(runs_below(world, "feedback", TESTED))
    for query_id in TESTED:
        best = [unit(passages[doc_id].mean(0)) for doc_id in ranked(first[query_id])[:3]]
        query = unit(unit(query_of(world, query_id)) + sum(best) / 3)
        expect_scores(run[query_id], {d: float((unit(some) @ query).max()) for d, some in passages.items()})


def test_feedback_of_a_query_that_no_stage_found_leaves_its_vector(world, tmp_path):
    queries = {query_id: world.collection.queries[query_id] for query_id in TESTED}
    run = fitted(world, "feedback", tmp_path).rank(queries, [{}, {}])
    assert run == ranked_by(STAGES["dense"].open(world, tmp_path), world, "dense")


def test_fusion_has_weights_that_the_queries_choose_that_do_not_test(world, tmp_path):
    qrels, noise = world.collection.qrels, random.Random(0)
    runs = [{q: {d: g + noise.gauss(0, s) for d, g in of.items()} for q, of in qrels.items()} for s in (0.6, 0.9)]
    judged = {query_id: qrels[query_id] for query_id in (*FOLD.train, *FOLD.valid)}
    assert STAGES["fusion"].fit(world, FOLD, runs, tmp_path).weights == tune_weights(runs, judged, "nDCG@20")


def test_fusion_without_judgments_weighs_all_alike(world, tmp_path):
    ranker = STAGES["fusion"].fit(world, Fold("final", (), (), ()), [], tmp_path)
    assert ranker.weights == (0.5, 0.5)
    expected = fuse_scores(runs_below(world, "fusion", TESTED), (0.5, 0.5))
    assert ranked_by(ranker, world, "fusion") == {q: {d: s[d] for d in ranked(s)} for q, s in expected.items()}


def test_an_adapters_score_is_a_product_with_its_matrix_and_the_score_below(world, tmp_path):
    passages, (first,) = passages_of(world), runs_below(world, "query-adapter", TESTED)
    ranker = fitted(world, "query-adapter", tmp_path)
    run, change = ranked_by(ranker, world, "query-adapter"), ranker.model.change.detach().double().numpy()
    matrix = ranker.model.scale * (np.eye(len(change)) + change)
    assert not np.allclose(matrix, ranker.model.scale * np.eye(len(matrix)))
    for query_id in TESTED:
        doc_ids = ranked(first[query_id])
        query = matrix @ unit(query_of(world, query_id))
        below = standardised([first[query_id][doc_id] for doc_id in doc_ids[:4]])
        products = [float((unit(passages[doc_id]) @ query).max()) for doc_id in doc_ids[:4]]
        expected = {d: 2 * z + product for d, z, product in zip(doc_ids[:4], below, products, strict=True)}
        expect_scores({d: run[query_id][d] for d in doc_ids[:4]}, expected, 1e-4)
        assert ranked(run[query_id])[4:] == doc_ids[4:]


def test_similar_judged_queries_vote_for_their_relevant_documents(world, tmp_path):
    settings, judged = STAGES["similar-queries"], (*FOLD.train, *FOLD.valid)
    (first,) = runs_below(world, "similar-queries", (*judged, *TESTED))
    some = random.Random(0)
    best = [ranked(scores)[0] for scores in first.values()]
    qrels = {query_id: dict.fromkeys(some.sample(best, some.randint(2, 5)), 1) for query_id in judged}
    world = world.changed(collection=Judged(world.collection, qrels))
    vectors = {query_id: unit(query_of(world, query_id)) for query_id in (*judged, *TESTED)}

    def votes(query_id):
        """doc_id -> its votes, from the three most similar of the other judged queries."""
        others = [other for other in judged if other != query_id]
        nearest = sorted(others, key=lambda other: -float(vectors[query_id] @ vectors[other]))[:3]
        found = {}
        for other in nearest:
            for doc_id in qrels[other]:
                vote = max(0.0, float(vectors[query_id] @ vectors[other])) ** 12 / len(qrels[other]) ** 0.5
                found[doc_id] = found.get(doc_id, 0.0) + vote
        return {doc_id: found.get(doc_id, 0.0) for doc_id in ranked(first[query_id])[:4]}

    def scores(query_id, weight):
        voted = votes(query_id)
        own = standardised([first[query_id][doc_id] for doc_id in voted])
        return {d: z + weight * vote for (d, vote), z in zip(voted.items(), own, strict=True)}

    spread = np.sqrt(np.mean([np.var(list(votes(query_id).values())) for query_id in judged]))
    means = {}
    for steps in WEIGHTS:
        run = {query_id: scores(query_id, steps / spread) for query_id in judged}
        (values,) = evaluate(qrels, run, ["nDCG@20"]).values()
        means[steps / spread] = fmean(values.values())
    ranker = fitted(world, "similar-queries", tmp_path)
    assert ranker.weight == pytest.approx(max(means, key=means.get), abs=1e-4)
    run = ranked_by(replace(ranker, weight=0.5), world, "similar-queries")
    assert any(vote for query_id in TESTED for vote in votes(query_id).values())
    for query_id in TESTED:
        expected = scores(query_id, 0.5)
        expect_scores({d: run[query_id][d] for d in expected}, expected, 1e-4)
        assert ranked(run[query_id])[settings.depth :] == ranked(first[query_id])[settings.depth :]


def test_a_document_gets_the_mean_score_of_the_candidates_that_share_its_words(world, tmp_path):
    judged = (*FOLD.train, *FOLD.valid)
    (first,) = runs_below(world, "neighbours", (*judged, *TESTED))
    texts, qrels = {d.doc_id: d.text for d in world.texts.documents()}, world.collection.qrels

    def scores(query_id, weight):
        doc_ids = ranked(first[query_id])[:4]
        own = dict(zip(doc_ids, standardised([first[query_id][d] for d in doc_ids]), strict=True))
        words = {d: Counter(word.term for word in find_words(texts[d])) for d in doc_ids}
        among = Counter(word for counts in words.values() for word in counts)
        vectors = {
            d: {word: (1 + math.log(n)) * math.log(1 + len(doc_ids) / among[word]) for word, n in counts.items()}
            for d, counts in words.items()
        }
        found = {}
        for d, vector in vectors.items():
            cosines = {}
            for other in doc_ids:
                product = sum(value * vectors[other].get(word, 0.0) for word, value in vector.items())
                lengths = math.hypot(*vector.values()) * math.hypot(*vectors[other].values())
                cosines[other] = product / lengths if lengths else 0.0
            nearest = sorted((other for other in doc_ids if other != d), key=lambda other: -cosines[other])[:2]
            total = sum(cosines[other] ** 2 for other in nearest)
            mean = sum(cosines[other] ** 2 * own[other] for other in nearest) / total if total else 0.0
            found[d] = own[d] + weight * mean
        return found

    ranker = fitted(world, "neighbours", tmp_path)
    by_query = {}
    for weight in NEIGHBOUR_WEIGHTS:
        run = {query_id: scores(query_id, weight) for query_id in judged}
        (by_query[weight],) = evaluate({q: qrels[q] for q in judged}, run, ["nDCG@20"]).values()
    best = max(by_query.values(), key=lambda values: fmean(values.values()))
    assert ranker.weight == next(w for w, values in by_query.items() if values is best or not is_ahead(best, values))
    for one in (replace(ranker, weight=0.5), STAGES["neighbours"].unlearned().open(world, tmp_path)):
        run = ranked_by(one, world, "neighbours")
        for query_id in TESTED:
            expected = scores(query_id, 0.5)
            expect_scores({d: run[query_id][d] for d in expected}, expected, 1e-5)
            assert ranked(run[query_id])[4:] == ranked(first[query_id])[4:]


def test_documents_without_words_are_similar_to_none():
    assert word_similarities([[], ["a", "a", "b"], ["b", "a", "a"], []]) == pytest.approx(
        np.diag([0, 1, 1, 0]) + np.eye(4)[[0, 2, 1, 3]] * [0, 1, 1, 0]
    )
    assert word_similarities([[], []]).tolist() == [[0, 0], [0, 0]]


def test_late_interaction_adds_the_maxsim_of_the_query_and_of_the_best_document_to_the_score_below(world, tmp_path):
    (first,) = runs_below(world, "late-interaction", TESTED)
    run = ranked_by(fitted(world, "late-interaction", tmp_path), world, "late-interaction")
    model, texts = world.encoder("encoder").model, {d.doc_id: d.text for d in world.texts.documents()}
    pieces_of = {doc_id: set(model.tokenizer(text)["input_ids"]) for doc_id, text in texts.items()}
    rotation = rotation_of(32).astype(np.float64)

    def tokens_of(encode, passage):
        (found,) = encode([passage], output_value=None)
        return found["input_ids"].tolist(), unit(found["token_embeddings"].double().numpy())

    def idf(piece):
        return np.log((len(texts) + 1) / (sum(piece in of_document for of_document in pieces_of.values()) + 1))

    for query_id in TESTED:
        doc_ids, signs, special = ranked(first[query_id])[:4], {}, {}
        for doc_id in doc_ids:
            passages = [
                tokens_of(model.encode_document, text) for text in world.encoder("encoder").split(texts[doc_id])
            ]
            signs[doc_id] = np.concatenate([vectors @ rotation for _, vectors in passages]) > 0
            special[doc_id] = np.concatenate([pieces for pieces, _ in passages])

        def scores(vectors, weights, doc_ids=doc_ids, signs=signs):
            found = []
            for doc_id in doc_ids:
                largest = [max(token @ rotation @ np.where(of, 1, -1) for of in signs[doc_id]) for token in vectors]
                found.append(np.sqrt(np.pi / 2 / rotation.shape[1]) * float(np.dot(weights, largest)))
            return standardised(found)

        pieces, vectors = tokens_of(model.encode_query, world.collection.queries[query_id])
        own = scores(vectors[1:-1], [idf(piece) for piece in pieces[1:-1]])
        below = standardised([first[query_id][doc_id] for doc_id in doc_ids])
        values = standardised([z + of_tokens for z, of_tokens in zip(below, own, strict=True)])
        best = doc_ids[int(np.argmax(values))]
        words = ~np.isin(special[best], model.tokenizer.all_special_ids)
        weights = np.array([idf(piece) for piece in special[best][words]])
        of_best = scores(*groups_of_tokens(np.packbits(signs[best][words], axis=1), weights, rotation_of(32)))
        expected = {d: z + 0.5 * other for d, z, other in zip(doc_ids, values, of_best, strict=True)}
        expect_scores({d: run[query_id][d] for d in doc_ids}, expected, 1e-4)
        assert ranked(run[query_id])[4:] == ranked(first[query_id])[4:]


def test_a_cross_encoder_ranks_the_best_documents_and_leaves_the_others_below(world, tmp_path):
    (first,) = runs_below(world, "cross-encoder", TESTED)
    ranker = fitted(world, "cross-encoder", tmp_path)
    run, model = ranked_by(ranker, world, "cross-encoder"), Reranker.load(ranker.reranker.name)
    texts = {document.doc_id: document.text for document in world.texts.documents()}
    for query_id in TESTED:
        doc_ids = ranked(first[query_id])
        scores = model.score(world.collection.queries[query_id], [texts[doc_id] for doc_id in doc_ids[:4]])
        expect_scores({d: run[query_id][d] for d in doc_ids[:4]}, dict(zip(doc_ids, scores.tolist(), strict=False)))
        assert ranked(run[query_id])[4:] == doc_ids[4:]
        in_order = [run[query_id][doc_id] for doc_id in ranked(run[query_id])]
        assert all(above > below for above, below in itertools.pairwise(in_order))


def test_a_cross_encoder_learns_what_rerank_train_learns(here, tmp_path):
    stage = STAGES["cross-encoder"]
    own = {"encoder": stage.encoder, "lists": stage.lists, "loss": stage.loss, "training": stage.training}
    trained = train_folds(Config("towns", first_stage=FirstStageSettings(depth=4), **own), "1").fold("1")
    world = open_world()
    fold = next(fold for fold in read_folds(world.folder.folds) if fold.name == "1")
    ranker = stage.fit(world, fold, runs_below(world, "cross-encoder", (*fold.train, *fold.valid)), tmp_path)
    for name in ("model.safetensors", "config.json"):
        assert (Path(ranker.reranker.name) / name).read_bytes() == (trained.checkpoint / name).read_bytes()
    run, tested = ranked_by(ranker, world, "cross-encoder", fold.test), read_run(trained.test_run)
    assert set(tested) == set(fold.test)
    for query_id, scores in tested.items():
        expect_scores({doc_id: run[query_id][doc_id] for doc_id in scores}, scores)


def test_a_cross_encoder_has_the_precision_that_a_command_names_for_all_stages():
    stage = CrossEncoderStage("bm25", training=TrainingSettings(precision="bf16"))
    for shared, used in (("auto", "bf16"), ("float32", "float32")):
        assert stage.config(Config(training=TrainingSettings(precision=shared))).training.precision == used


def test_vectors_of_queries_are_made_again_when_too_many_are_kept(here, monkeypatch):
    monkeypatch.setattr(worlds, "MOST_KEPT", 1)
    world = open_world().changed(queries={})
    first = world.query_vectors("encoder", {"a": "good", "b": "bad"})
    second = world.query_vectors("encoder", {"a": "good", "c": "stone"})
    assert second.keys() == {"a", "c"}
    np.testing.assert_allclose(second["a"], first["a"], atol=1e-6)


def test_features_add_a_learned_sum_of_standardised_scores_to_those_of_the_last_stage(world, tmp_path):
    ranker = fitted(world, "features", tmp_path)
    (weight,) = ranker.weights
    assert weight != 0
    bm25, dense = runs_below(world, "features", TESTED)
    run = ranked_by(ranker, world, "features")
    for query_id in TESTED:
        doc_ids, lowest = ranked(dense[query_id])[:100], min(bm25[query_id].values())
        added = standardised([bm25[query_id].get(doc_id, lowest) for doc_id in doc_ids])
        last = standardised([dense[query_id][doc_id] for doc_id in doc_ids])
        expected = {d: of_last + weight * of_other for d, of_last, of_other in zip(doc_ids, last, added, strict=True)}
        expect_scores({d: run[query_id][d] for d in doc_ids}, expected)


def test_the_weights_of_few_queries_are_drawn_back(world, tmp_path, monkeypatch):
    (weight,) = fitted(world, "features", tmp_path / "drawn").weights
    monkeypatch.setattr(features, "SHRUNK_BY", 0)
    (trained,) = fitted(world, "features", tmp_path / "trained").weights
    _, dense = runs_below(world, "features", (*FOLD.train, *FOLD.valid))
    judged = sum(any(world.collection.qrels.get(q, {}).get(d, 0) > 0 for d in of) for q, of in dense.items())
    assert weight == pytest.approx(trained * judged / (judged + 30))


def test_features_without_a_relevant_document_rank_as_the_last_stage(world, tmp_path):
    below = runs_below(world, "features", TESTED)
    unjudged = world.changed(collection=Judged(world.collection, {}))
    ranker = STAGES["features"].fit(unjudged, FOLD, runs_below(world, "features", (*FOLD.train, *FOLD.valid)), tmp_path)
    ranker.save(tmp_path)
    for one in (ranker, STAGES["features"].open(world, tmp_path)):
        run = one.rank({q: world.collection.queries[q] for q in TESTED}, below)
        assert {q: ranked(of) for q, of in run.items()} == {q: ranked(below[-1][q]) for q in TESTED}
