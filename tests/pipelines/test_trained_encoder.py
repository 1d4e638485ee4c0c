"""The stage `trained-encoder`: what teaches it, out-of-fold rankings, resuming, the folder, and mistakes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

import rerank
from rerank.cli.main import main
from rerank.config import Config
from rerank.data.candidates import standardised
from rerank.data.runs import read_run
from rerank.data.trec import ranked
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.graph import without
from rerank.pipelines.lessons import draw_lessons, trainable_lists
from rerank.pipelines.record import read_evidence
from rerank.pipelines.selection import choose, costly_stages
from rerank.pipelines.stages import BM25Stage, TrainedEncoderStage
from rerank.pipelines.stages.world import World
from rerank.training import contrastive
from rerank.training.contrastive import Plan, fine_tune
from rerank.utils.errors import UserError
from tests.pipelines.towns import QUERY, contents, judgments_turned
from tests.support.processes import ended, fork
from tests.support.small_collection import exit_code, failed, in_a_copy, write_qrels

TRAINED = TrainedEncoderStage(
    "bm25", "encoder", depth=10, below_weight=1.0, lists_per_epoch=24, lists_per_step=4, lr=3e-3
)
OUT = Path("runs/towns/trained")


def pipeline(**changes):
    return rerank.Pipeline(bm25=BM25Stage(k1=1.2, b=0.75), trained=replace(TRAINED, **changes))


@pytest.fixture(scope="module")
def home(home, tmp_path_factory, the_last_stage_answers):
    """A copy of the collection with a fitted pipeline, in which the trained encoder answers."""
    with in_a_copy(home, tmp_path_factory) as folder:
        rerank.fit("towns", pipeline(), out=OUT)
    return folder


def texts_that_teach(world, query_ids, depth=10):
    """(query, relevant document, negatives) of the training lists, with ids for texts."""
    judged = {query_id: world.collection.qrels[query_id] for query_id in query_ids}
    run = read_run("runs/towns/bm25.run")
    trainable = trainable_lists(world.texts, judged, world.vectors("encoder"), run, depth)
    return draw_lessons(trainable, 2, 8, 4, 2, seed=0), run


def test_a_list_has_a_relevant_document_and_negatives_that_rank_high_and_are_not_relevant(here):
    world = World.open(Config("towns"))
    qrels = world.collection.qrels
    lessons, run = texts_that_teach(world, list(qrels)[:6])
    assert len(lessons.lists) == 16
    for found in lessons.lists:
        positive, *negatives = found.doc_ids
        assert qrels[found.query_id][positive] > 0
        assert len(negatives) == 2
        assert set(negatives) <= set(ranked(run[found.query_id])[:10])
        assert not any(qrels[found.query_id].get(doc_id) for doc_id in negatives)


def test_no_document_of_a_step_is_relevant_to_another_of_its_queries(here):
    lines = Path("towns/qrels/test.tsv").read_text().splitlines()
    lines += [f"q{n}\td{n + 1}-{place}\t1" for n in range(0, 6, 2) for place in range(6)]
    Path("towns/qrels/test.tsv").write_text("\n".join(lines) + "\n")
    world = World.open(Config("towns"))
    qrels = world.collection.qrels
    lessons, _ = texts_that_teach(world, list(qrels)[:6])
    assert sorted(place for batch in lessons.batches for place in batch) == list(range(16))
    assert max(map(len, lessons.batches)) > 1
    for batch in lessons.batches:
        lists = [lessons.lists[place] for place in batch]
        assert len({found.query_id for found in lists}) == len(lists) <= 4
        for found in lists:
            others = {doc_id for other in lists if other is not found for doc_id in other.doc_ids}
            assert not any(qrels[found.query_id].get(doc_id) for doc_id in others)


def test_fine_tuning_moves_a_query_towards_its_relevant_documents_and_the_rest_learns_it_too(here):
    """Relevant documents say "good", others "bad": so it is for queries that taught nothing."""
    base = World.open(Config("towns"))
    fitted = rerank.Pipeline.load(OUT).fitted
    name = fitted.rankers["trained"].name

    def gap(world, encoder):
        asked = world.query_vectors(encoder, {QUERY: world.collection.queries[QUERY]})[QUERY]
        texts = {d.doc_id: d.text for d in world.texts.get([f"d0-{place}" for place in range(6)])}
        vectors, passages = world.encoder(encoder).encode_documents(list(texts.values()))
        similar = np.array([max(rows @ asked) for rows in np.split(vectors, passages.cumsum()[:-1])])
        good = np.array(["good" in text.split() for text in texts.values()])
        return similar[good].mean() - similar[~good].mean()

    assert gap(fitted.world, name) > gap(base, "encoder")


def test_the_score_is_the_similarity_and_the_score_below_both_standardised(here):
    fitted = rerank.Pipeline.load(OUT).fitted
    world, name = fitted.world, fitted.rankers["trained"].name
    queries = {QUERY: world.collection.queries[QUERY]}
    run = fitted.rank_all(queries)
    first = ranked(run["bm25"][QUERY])[:10]
    asked = world.query_vectors(name, queries)[QUERY]
    vectors, passages = world.encoder(name).encode_documents([d.text for d in world.texts.get(first)])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = [float((rows @ asked).max()) for rows in np.split(unit, passages.cumsum()[:-1])]
    below = standardised([run["bm25"][QUERY][doc_id] for doc_id in first])
    expected = {d: s + b for d, s, b in zip(first, standardised(similar), below, strict=True)}
    found = {doc_id: run["trained"][QUERY][doc_id] for doc_id in first}
    assert found == pytest.approx(expected, abs=1e-4)


def test_no_judgment_of_a_query_changes_its_own_ranking(here):
    before = read_run(OUT / "runs/trained.run")
    judgments_turned({QUERY})
    rerank.fit("towns", pipeline(), out="other")
    after = read_run("other/runs/trained.run")
    assert after[QUERY] == before[QUERY]
    assert after != before


def test_packed_texts_are_fine_tuned_as_padded_ones(here, tmp_path):
    """Without dropout, in float32: the loop of the padded model, AdamW, a falling learning rate, gradients cut at 1."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import cos_sim

    config = json.loads(Path("encoder/config.json").read_text())
    shutil.copytree("encoder", tmp_path / "encoder")
    (tmp_path / "encoder/config.json").write_text(
        json.dumps(config | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    )
    lists = [("alpha0", "good", "bad " * 9), ("alpha1 beta", "good " * 7, "bad"), ("beta", "more", "good bad more")]
    batches, lr = [[0, 1], [2, 0], [1, 2]], 1e-3
    fine_tune(
        str(tmp_path / "encoder"), Plan(lists, batches, lr, 0, "cpu", "float32"), tmp_path / "work", tmp_path / "packed"
    )

    model = SentenceTransformer(str(tmp_path / "encoder"), device="cpu").train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    for step, batch in enumerate(batches):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / len(batches))
        columns = zip(*(lists[number] for number in batch), strict=True)
        queries, *documents = (model(model.tokenize(list(texts)))["sentence_embedding"] for texts in columns)
        scores = 20 * cos_sim(queries, torch.cat(documents))
        torch.nn.functional.cross_entropy(scores, torch.arange(len(batch))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    found = SentenceTransformer(str(tmp_path / "packed"), device="cpu")
    for (name, expected), weights in zip(model.state_dict().items(), found.state_dict().values(), strict=True):
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-4, msg=name)
    assert "rerank_packed" not in (tmp_path / "packed/config.json").read_text()


def test_an_interrupted_training_goes_on_and_ends_with_the_same_bytes(here, monkeypatch):
    monkeypatch.setattr(contrastive, "STEPS_BETWEEN_STATES", 2)
    steps = []

    def progress(items, *given, before=0, **more):
        for item in items:
            yield item
            steps.append(item)
            if len(steps) in (5, 25):
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(contrastive, "progress", progress)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                rerank.fit("towns", pipeline(), out="other")
    rerank.fit("towns", pipeline(), out="other")
    assert contents(Path("other")) == contents(OUT)
    assert not list(Path("other").rglob("state"))
    rerank.fit(Config("towns", training=rerank.config.TrainingSettings(seed=1)), pipeline(), out="seed")
    assert contents(Path("seed")) != contents(OUT)


def test_a_state_that_a_kill_cut_short_is_not_used(here, tmp_path):
    plan = Plan([("alpha0", "good", "bad")] * 4, [[0], [1], [2], [3]], 1e-3, 0, "cpu")
    fine_tune("encoder", plan, tmp_path / "a", tmp_path / "whole")
    (tmp_path / "b/state/checkpoint-2").mkdir(parents=True)
    (tmp_path / "b/state/checkpoint-2/optimizer.pt").write_bytes(b"half")
    fine_tune("encoder", plan, tmp_path / "b", tmp_path / "again")
    files = [file.relative_to(tmp_path / "whole") for file in (tmp_path / "whole").rglob("*") if file.is_file()]
    assert files
    assert all((tmp_path / "whole" / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)
    assert not list((tmp_path / "b").iterdir())


def test_a_process_in_mixed_precision_is_refused(here, tmp_path):
    def in_bf16():
        AcceleratorState._reset_state(reset_partial_state=True)  # the test's own process has one without
        Accelerator(cpu=True, mixed_precision="bf16")
        fine_tune("encoder", Plan([("alpha0", "good", "bad")], [[0]], 1e-3, 0, "cpu"), tmp_path, tmp_path / "out")

    assert ended(fork(tmp_path / "log", in_bf16)) == 1
    assert "accelerate already uses bf16 in this process; expected no mixed precision" in (tmp_path / "log").read_text()


def test_a_training_query_without_a_relevant_document_teaches_nothing(here, caplog):
    write_qrels(range(9), Path("towns/qrels/test.tsv"), relevant=())
    rerank.fit("towns", pipeline(), out="p")
    assert "no training query has a relevant document and a negative: it learns nothing" in caplog.text
    assert rerank.Pipeline.load("p").search("good", 2)


def test_a_portable_folder_has_the_model_and_its_vectors_and_needs_no_other(here, capsys):
    rerank.fit("towns", pipeline(), out="p", portable=True)
    queries = {"a": "alpha0 good", "b": "no such words"}
    expected = rerank.Pipeline.load(OUT).rank_all(queries)
    assert json.loads(Path("p/manifest.json").read_text())["pipeline"]["encoders"] == {}
    rerank.Pipeline.load("p").save("elsewhere")  # a portable pipeline stays portable
    for gone in ("towns", "runs", "encoder", "p"):
        shutil.rmtree(gone)
    files = sorted(Path("elsewhere").rglob("*"))
    assert rerank.Pipeline.load("elsewhere").rank_all(queries) == expected
    assert sorted(Path("elsewhere").rglob("*")) == files
    assert exit_code("verify", "elsewhere") == 0
    assert "Everything that is recorded holds" not in capsys.readouterr().out  # the encoder it started from is gone


def test_what_was_fitted_on_another_encoder_is_fitted_again(here, caplog):
    rerank.fit("towns", pipeline(), out=OUT)
    assert "is already fitted on these judgments and documents" in caplog.text
    caplog.clear()
    vocabulary = Path("encoder/config.json")
    vocabulary.write_text(vocabulary.read_text().replace('"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-11'))
    assert exit_code("verify", str(OUT)) == 1
    rerank.fit("towns", pipeline(), out=OUT)
    assert "is already fitted" not in caplog.text


def test_an_update_embeds_the_new_documents_with_the_trained_encoder(here):
    before = rerank.Pipeline.load(OUT).fitted.rankers["trained"].documents
    with Path("towns/corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "title": "", "text": "alpha0 new good"}\n')
    main(["update", str(OUT)])
    after = rerank.Pipeline.load(OUT).fitted.rankers["trained"].documents
    assert len(after) == len(before) + 1
    assert "new" in after.ids


def test_a_fit_tries_it_on_the_last_cheap_stage_and_it_must_be_ahead_by_itself():
    alone = default_stages("encoder", "", 10, train_encoder=True)
    beside = default_stages("encoder", "cross", 10, train_encoder=True)
    assert list(alone)[-2:] == ["combined", "trained"]
    assert alone["trained"] == TrainedEncoderStage("combined", "encoder")
    assert beside["reranked"].of == ("cross-encoder", "trained")
    assert without(alone, ["combined"])["trained"].of == "both"
    assert costly_stages(alone) == ["trained"]
    assert costly_stages(beside) == ["cross-encoder", "trained", "reranked"]
    values = {name: {str(q): (0.5 if q else 0.4) for q in range(9)} for name in ("combined", "trained")}
    assert choose(values, costly_stages(alone)) == "combined"
    values["trained"] = {q: value + 0.1 for q, value in values["trained"].items()}
    assert choose(values, costly_stages(alone)) == "trained"


def test_mistakes_are_one_line(here, capsys):
    words = ["fit", "towns", "--train-encoder", "--out", "p"]
    assert "no bi-encoder to fine-tune, as --encoder is none" in failed(capsys, *words, "--encoder", "none")
    Path("p.toml").write_text(pipeline().to_toml())
    for given in (["--encoder", "encoder"], ["--cross-encoder", "e"], ["--sparse-encoder", "e"], ["--train-encoder"]):
        line = failed(capsys, "fit", "towns", "--pipeline", "p.toml", *given)
        assert f"{given[0]}: has no effect with --pipeline; name a stage of the kind " in line
    shutil.rmtree("towns/qrels")
    line = failed(capsys, *words, "--encoder", "encoder")
    assert "towns has 0 judged queries, expected 6 or more to learn from" in line
    with pytest.raises(UserError, match="expected one stage, whose documents it ranks"):
        rerank.Pipeline(a=BM25Stage(), b=BM25Stage(k1=1.0), c=TrainedEncoderStage(("a", "b")))


def test_it_composes_and_a_plain_table_reads_it_back(here):
    composed = rerank.Pipeline(BM25Stage() >> TrainedEncoderStage(encoder="encoder", epochs=2))
    Path("p.toml").write_text(composed.to_toml())
    assert rerank.Pipeline.read("p.toml").stages == composed.stages
    assert list(default_stages("encoder", "", 10)) == list(default_stages("encoder", "", 10, train_encoder=False))
    bm25, trained = read_evidence(OUT)["stages"]
    assert (bm25["trained_on"], trained["trained_on"]) == (0, 9)  # of fifteen, three test and three validate


def test_a_fitted_pipeline_is_saved_elsewhere_with_its_model(here):
    fitted = rerank.fit("towns", pipeline(epochs=2), out="p")
    fitted.save("other")
    fitted.save("p")  # in its own folder
    queries = {"a": "alpha0 good"}
    for folder in ("other", "p"):
        saved = rerank.Pipeline.load(folder)
        assert saved.rank(queries) == fitted.rank(queries)
        assert saved.evidence == fitted.evidence
        assert saved.fitted.ms.keys() == {"bm25", "trained"}
    assert contents(Path("other")) == contents(Path("p"))
