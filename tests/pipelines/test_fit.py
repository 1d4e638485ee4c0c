"""`rerank.fit`: what is learned from which queries, the evidence, the folder, resuming, and few or no judgments."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rerank
from rerank.cli.main import main
from rerank.config import CollectionSettings, Config, FirstStageSettings, TrainingSettings
from rerank.data.collections import Collection
from rerank.data.runs import read_run
from rerank.data.trec import ranked, write_run
from rerank.data.trec import write_qrels as write_judgments
from rerank.data.types import Document, Fold
from rerank.experiments.runs.manifest import write_manifest
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.record import read_evidence
from rerank.pipelines.stages import (
    BM25Stage,
    CrossEncoderStage,
    DenseStage,
    FusionStage,
    LateInteractionStage,
    QueryAdapterStage,
    RunFileStage,
)
from rerank.retrieval.lucene_index import build_index
from rerank.utils.errors import UserError
from rerank.utils.integrity import record_of
from tests.pipelines.towns import FOLDER, QUERY, STAGES, contents, judgments_turned, pipeline
from tests.support.small_collection import exit_code, failed, in_a_copy, judge_only, next_commands, write_qrels

needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is not installed")


def fused_with_a_run_file(file):
    """BM25, and the run of a file, and their fusion."""
    stages = {"bm25": BM25Stage(), "kept": RunFileStage(file), "fused": FusionStage(("bm25", "kept"))}
    return rerank.Pipeline(stages)


@pytest.fixture(scope="module")
def asked():
    """The part and the parts left out of each ranking by late interaction that the fit of `home` has asked for."""
    return []


@pytest.fixture(scope="module")
def home(home, tmp_path_factory, the_last_stage_answers, asked):
    """A copy of the collection with a fitted pipeline."""
    run = CrossFitting.run

    def noted(self, name, part, without=frozenset()):
        if name == "late":
            asked.append((part, without))
        return run(self, name, part, without)

    with in_a_copy(home, tmp_path_factory) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrossFitting, "run", noted)
        rerank.fit("towns", pipeline())
    return folder


def test_the_evidence_has_the_means_of_the_runs_that_are_written(here):
    evidence, qrels = read_evidence(FOLDER), rerank.open_collection("towns").qrels
    assert [row["name"] for row in evidence["stages"]] == list(STAGES)
    table = rerank.Pipeline.load(FOLDER).evidence
    assert table.record == evidence
    assert "nested" in str(table)
    assert "| nested |" in table.to_markdown()
    for row in evidence["stages"]:
        (values,) = rerank.evaluate(qrels, read_run(FOLDER / f"runs/{row['name']}.run"), ["nDCG@20"]).values()
        assert evidence["values"][row["name"]] == pytest.approx(values)
        assert row["mean"] == pytest.approx(np.mean(list(values.values())))
        assert row["ms"] > 0
    assert set(evidence["values"]["nested"]) == set(qrels)
    assert evidence["nested"]["mean"] == pytest.approx(np.mean(list(evidence["values"]["nested"].values())))
    assert {row["name"] for row in evidence["stages"] if row["kept"]} == set(rerank.Pipeline.load(FOLDER).stages)
    assert evidence["answer"] == rerank.Pipeline.load(FOLDER).answer


def test_eval_finds_the_judgments_of_the_runs(here, capsys):
    main(["eval", str(FOLDER / "runs" / "late.run"), "--measures", "nDCG@20", "--format", "json"])
    (row,) = json.loads(capsys.readouterr().out)["comparisons"]
    late = next(row for row in read_evidence(FOLDER)["stages"] if row["name"] == "late")
    assert row["mean"] == pytest.approx(late["mean"])


def test_eval_ranks_new_queries_and_compares_with_the_first_stage(here, capsys):
    Path("new.tsv").write_text("n1\talpha0 good\nn2\tbeta0 good\nn3\tgamma0\n")
    judged = {"n1": {"d0": 1}, "n2": {"d1": 1}}
    write_judgments(judged, Path("new.qrels"))
    words = ["--queries", "new.tsv", "--qrels", "new.qrels", "--measures", "nDCG@20", "--format", "json"]
    main(["eval", str(FOLDER), *words])
    found = json.loads(capsys.readouterr().out)
    pipeline = rerank.Pipeline.load(FOLDER)
    runs = pipeline.rank_all({"n1": "alpha0 good", "n2": "beta0 good"})
    for row, name in zip(found["comparisons"], ("bm25", pipeline.answer), strict=True):
        (values,) = rerank.evaluate(judged, runs[name], ["nDCG@20"]).values()
        assert (row["run"], row["mean"]) == (name, pytest.approx(np.mean(list(values.values()))))
    assert not any("trained the pipeline" in note for note in found["notes"])
    main(["eval", str(FOLDER), "--measures", "AP"])
    assert "queries trained the pipeline: for them these values are no evidence" in capsys.readouterr().out
    line = failed(capsys, "eval", str(FOLDER / "runs" / "late.run"), "--queries", "new.tsv")
    assert "--queries new.tsv: run files need no texts; expected the folder of a pipeline" in line
    line = failed(capsys, "eval", "pipelin", "--queries", "new.tsv")
    assert "pipelin: no such file or folder; --queries expects the folder of a pipeline" in line
    line = failed(capsys, "eval", str(FOLDER), "--queries", "new.tsv", "--qrels", "no.qrels")
    assert "no.qrels: cannot be read: No such file or directory" in line
    Path("other.tsv").write_text("n9\talpha0\n")
    line = failed(capsys, "eval", str(FOLDER), "--queries", "other.tsv", "--qrels", "new.qrels")
    assert "other.tsv: none of its 1 queries is judged in new.qrels" in line


def test_no_judgment_of_a_query_changes_its_own_ranking_by_any_stage(here):
    runs = {name: read_run(FOLDER / f"runs/{name}.run") for name in STAGES}
    judgments_turned({QUERY})
    rerank.fit("towns", pipeline(), out="other")
    others = {name: read_run(f"other/runs/{name}.run") for name in STAGES}
    assert others["adapter"] != runs["adapter"]
    for name in STAGES:
        assert others[name][QUERY] == runs[name][QUERY]


def test_a_stage_learns_from_rankings_of_queries_that_taught_the_stages_below_nothing(home, asked):
    assert asked
    assert all(part in without for part, without in asked)


def test_a_fitted_pipeline_ranks_and_searches_the_same_once_it_is_loaded(here):
    queries = {"a": "alpha0 good", "b": "no such words", "c": " "}
    fitted = rerank.fit("towns", pipeline())
    loaded = rerank.Pipeline.load(FOLDER)
    assert loaded.rank(queries) == fitted.rank(queries)
    text = rerank.open_collection("towns").queries[QUERY]
    hits = loaded.search(text, top=3)
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert [hit.doc_id for hit in hits] == ranked(loaded.rank({QUERY: text})[QUERY])[:3]
    for hit in hits:
        for name, (rank, score) in hit.stages.items():
            scores = loaded.rank_all({QUERY: text})[name][QUERY]
            assert ranked(scores)[rank - 1] == hit.doc_id
            assert scores[hit.doc_id] == pytest.approx(score, abs=1e-5)
    with pytest.raises(UserError, match="query: is empty"):
        loaded.search(" ")


def test_eight_threads_find_what_one_finds(here):
    queries = [*rerank.open_collection("towns").queries.values(), "no such words", "alpha0 good"]
    expected = list(map(rerank.Pipeline.load(FOLDER).search, queries))
    assert {"bm25", "dense", "late"} <= set(expected[0][0].stages)
    for _ in range(3):  # the first searches of a pipeline open what the others have in memory
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(rerank.Pipeline.load(FOLDER).search, queries)) == expected


def test_pyterrier_opens_the_folder_as_an_artifact_that_retrieves(here):
    pyterrier, pandas = pytest.importorskip("pyterrier"), pytest.importorskip("pandas")
    topics = pandas.DataFrame([["1", "good"], ["2", "no such words"]], columns=["qid", "query"])
    transformer = pyterrier.Artifact.load(str(FOLDER))
    results = transformer.transform(topics)
    run = rerank.Pipeline.load(FOLDER).rank({"1": "good", "2": "no such words"})
    for query_id, scores in run.items():
        rows = results[results.qid == query_id]
        assert list(rows.docno) == ranked(scores)
        assert list(rows["rank"]) == list(range(len(scores)))
    with pytest.raises(TypeError, match=r"^column query\[1\]: expected a text, got float$"):
        transformer.transform(pandas.DataFrame({"qid": ["1", "2"], "query": ["good", float("nan")]}, dtype=object))
    with pytest.raises(UserError, match=r"^column qid: query 1 has two texts; expected an id for each text$"):
        transformer.transform(topics.assign(qid="1"))


def test_an_interrupted_fit_goes_on_and_ends_with_the_same_bytes(here, monkeypatch):
    fit, fits = QueryAdapterStage.fit, []

    def interrupted(self, world, fold, runs, folder):
        fits.append(folder.parent.name + folder.name)
        if len(fits) == 5:
            raise KeyboardInterrupt
        return fit(self, world, fold, runs, folder)

    monkeypatch.setattr(QueryAdapterStage, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rerank.fit("towns", pipeline(), out="runs/towns/other")
    assert not Path("runs/towns/other").exists()
    rerank.fit("towns", pipeline(), out="runs/towns/other")
    assert len(set(fits)) == len(fits) - 1
    assert contents(Path("runs/towns/other")) == contents()
    assert not Path("runs/towns/other.unfinished").exists()


def test_a_fit_goes_on_from_undamaged_files_alone(here, monkeypatch, caplog):
    stages = rerank.Pipeline({name: STAGES[name] for name in ("bm25", "dense", "feedback", "fused")})
    rerank.fit("towns", stages, out="whole")
    with monkeypatch.context() as patch:
        patch.setattr("rerank.pipelines.fit.save_fitted", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rerank.fit("towns", stages, out="p")
    files = [file for file in Path("p.unfinished").rglob("*") if file.is_file() and file.name != "files.json"]
    kept = [file for file in files if file.parent.name != "runs"]
    assert {"whole.run", "weights.json"} <= {file.name for file in kept}
    for file in kept:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    rerank.fit("towns", stages, out="p")
    assert "has changed since it was written" in caplog.text
    assert contents(Path("p")) == contents(Path("whole"))
    work = Path("p.unfinished/of-other-inputs")
    work.mkdir(parents=True)
    rerank.fit("towns", stages, out="p")
    assert work.exists()
    work.rmdir()
    rerank.fit("towns", stages, out="p")  # as after a kill while the unfinished work was removed
    assert not Path("p.unfinished").exists()


def test_the_same_inputs_are_not_fitted_again_and_others_are(here, caplog):
    before = (FOLDER / "manifest.json").read_bytes()
    rerank.fit("towns", pipeline())
    assert "is already fitted on these judgments and documents" in caplog.text
    assert (FOLDER / "manifest.json").read_bytes() == before
    judgments_turned({QUERY})
    (FOLDER / "evidence.json").write_text("{}")  # hides nothing: the folder is opened only if its inputs are the same
    rerank.fit("towns", pipeline())
    assert (FOLDER / "manifest.json").read_bytes() != before
    assert f"fitting again: {FOLDER}: was fitted on other inputs (collection)" in caplog.messages


def test_whatever_a_fit_reads_is_compared_before_it_is_fitted_again(here, caplog, capsys):
    file = Path("kept.run")
    shutil.copy(FOLDER / "runs/bm25.run", file)

    def is_fitted(folder="p", **settings):
        caplog.clear()
        config = Config(collection=CollectionSettings("towns", **settings))
        rerank.fit(config, fused_with_a_run_file("kept.run"), out=folder)
        return "already" in caplog.text

    def verified():
        holds = exit_code("verify", "p") == 0
        return holds, capsys.readouterr().out.splitlines()[-1]

    assert (is_fitted(), is_fitted()) == (False, True)
    assert verified() == (True, "Everything that is recorded holds.")
    assert not is_fitted("other", language="de")
    assert not is_fitted("other")  # in another language than the folder's
    queries = Path("towns/queries.jsonl")
    queries.write_text(queries.read_text().replace('"text": "', '"text": "good '))
    assert verified() == (False, "queries: changed since the fit")
    assert (is_fitted(), is_fitted()) == (False, True)
    file.write_text(file.read_text().replace(" bm25", " other"))
    assert verified() == (False, "kept.run: changed since the fit")
    assert (is_fitted(), is_fitted()) == (False, True)


def test_verify_names_the_inputs_that_are_not_on_the_machine(here, capsys, monkeypatch):
    monkeypatch.setattr("rerank.pipelines.selection.choose", lambda values, costly: "bm25")
    shutil.copy(FOLDER / "runs/bm25.run", "kept.run")
    rerank.fit("towns", fused_with_a_run_file("kept.run"), out="p")
    with monkeypatch.context() as elsewhere:  # the path of the run is relative to the folder of the fit
        elsewhere.chdir("towns")
        assert exit_code("verify", "../p") == 0
        assert capsys.readouterr().out.splitlines()[-1] == "Everything that is recorded holds."
    Path("kept.run").unlink()
    assert exit_code("verify", "p") == 0
    *_, named, last = capsys.readouterr().out.splitlines()
    assert named == "kept.run: is not on this machine: not compared"
    assert last == "All else that is recorded holds; 1 of its inputs could not be compared."


def test_a_portable_folder_with_a_run_and_queries_from_files_needs_neither(here, monkeypatch):
    monkeypatch.setattr("rerank.pipelines.selection.choose", lambda values, costly: "fused")
    shutil.copy(FOLDER / "runs/bm25.run", "kept.run")
    shutil.copy("towns/queries.jsonl", "asked.jsonl")
    config = Config(collection=CollectionSettings("towns", queries="asked.jsonl"))
    rerank.fit(config, fused_with_a_run_file("kept.run"), out="p", portable=True)
    main(["score", "p", "--out", "before.run"])
    for name in ("kept.run", "asked.jsonl"):
        Path(name).unlink()
    Path("towns").rename("elsewhere")
    main(["score", "p", "--out", "after.run"])
    assert read_run("after.run") == read_run("before.run")


def test_an_index_and_queries_are_found_from_another_folder_and_compared(here, monkeypatch, capsys):
    shutil.copy("towns/queries.jsonl", "asked.jsonl")
    (index,) = Path("runs/towns/index").glob("*/")
    shutil.copytree(index, "index")
    first, collection = FirstStageSettings(index="./index"), CollectionSettings("towns", queries="asked.jsonl")

    def is_fitted():
        rerank.fit(Config(collection, first_stage=first), rerank.Pipeline(bm25=BM25Stage()), out="p")
        return "is already fitted on these judgments and documents" in capsys.readouterr().err

    assert (is_fitted(), is_fitted()) == (False, True)
    expected = rerank.Pipeline.load("p").search("good", 3)
    Path("other").mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir("other")
        assert rerank.Pipeline.load("../p").search("good", 3) == expected
    shutil.rmtree("index")
    build_index([Document("d0-0", "", "good")], Path("index"))
    assert exit_code("verify", "p") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "index ./index: changed since the fit"
    assert not is_fitted()


def test_a_query_that_the_file_of_a_run_lacks_has_no_document_by_it(here):
    run = read_run(FOLDER / "runs/bm25.run")
    some = list(run)[:2]  # fewer than a part has
    write_run({query_id: run[query_id] for query_id in some}, "some.run")
    rerank.fit("towns", fused_with_a_run_file("some.run"), out="p")
    assert set(read_run("p/runs/kept.run")) == set(some)


@pytest.mark.parametrize("judged", [0, 5])
def test_without_judgments_the_fusion_has_equal_weights_and_no_stage_learns(judged, here):
    judge_only(Path("towns"), judged)
    fitted = rerank.fit("towns", pipeline(bm25=BM25Stage(k1=1.2, b=0.75, tune=True)), out="p")
    assert fitted.answer == "late"
    assert fitted.stages["bm25"] == BM25Stage(k1=1.2, b=0.75)
    assert fitted.fitted.rankers["fused"].weights == (1 / 3,) * 3
    assert set(read_evidence(Path("p"))["nested"].values()) == {None}
    assert rerank.Pipeline.load("p").search("good", 2)


@pytest.mark.parametrize("judged, relevant", [(6, (0, 3)), (9, ()), (9, (5,))])
def test_few_judged_queries_or_no_relevant_document_end_in_a_pipeline(judged, relevant, here):
    write_qrels(range(judged), Path("towns/qrels/test.tsv"), relevant=relevant)
    rerank.fit("towns", pipeline(), out="p")
    assert len(read_evidence(Path("p"))["values"]["nested"]) == judged
    assert rerank.Pipeline.load("p").search("good", 2)


def test_a_fold_without_a_judged_query_is_left_out(here, monkeypatch, caplog):
    tests = [[f"q{n}" for n in range(k, 15, 3)] for k in range(3)] + [["q99"]]
    folds = tuple(Fold(str(k), (), (), tuple(ids)) for k, ids in enumerate(tests, 1))
    monkeypatch.setattr(Collection, "folds", folds)
    stages = {name: STAGES[name] for name in ("bm25", "dense", "feedback", "fused")}
    rerank.fit("towns", rerank.Pipeline(stages), out="p")
    assert "towns: fold 4: has no judged test query: left out" in caplog.messages
    assert "4 stages, 3 parts: " in caplog.text
    assert len(read_evidence(Path("p"))["values"]["nested"]) == 15


def test_a_published_split_tests_its_test_queries_alone(here):
    write_qrels(range(5, 15), Path("towns/qrels/train.tsv"))
    write_qrels(range(5), Path("towns/qrels/test.tsv"))
    rerank.fit("towns", pipeline(), out="p")
    evidence = read_evidence(Path("p"))
    assert set(evidence["values"]["nested"]) == {f"q{n}" for n in range(5)}
    assert set(read_run("p/runs/adapter.run")) == {f"q{n}" for n in range(5)}
    write_qrels(range(5, 7), Path("towns/qrels/train.tsv"))
    with pytest.raises(UserError, match=r"towns: its published split has 2 judged training .* expected 3 or more"):
        rerank.fit("towns", pipeline(), out="p")


def test_a_cross_encoder_is_fitted_once_a_fold_and_for_all_queries(here, caplog, capsys):
    training = TrainingSettings(epochs=1, lists_per_epoch=4, lr=1e-3)
    stages = {"bm25": BM25Stage(), "answer": CrossEncoderStage("bm25", "encoder", depth=6, training=training)}
    rerank.fit("towns", rerank.Pipeline(stages), out="p")
    assert {f"fitting answer without part {part}" for part in range(1, 6)} < set(caplog.messages)
    assert sum(line.startswith("15 judged queries train the cross-encoder: ") for line in caplog.messages) == 1
    evidence = read_evidence(Path("p"))
    assert set(evidence["values"]["answer"]) == set(evidence["values"]["bm25"])
    assert ranked(read_run("p/runs/answer.run")[QUERY]) != ranked(read_run("p/runs/bm25.run")[QUERY])
    for last in ("Everything that is recorded holds.", "encoder encoder: changed since the fit"):
        exit_code("verify", "p")
        assert capsys.readouterr().out.splitlines()[-1] == last
        Path("encoder/vocab.txt").write_text("new")


@pytest.mark.parametrize("index", ["exact", pytest.param("faiss", marks=needs_faiss)])
def test_a_portable_folder_needs_neither_the_collection_nor_the_encoder(here, index):
    """With an index of the vectors, if a stage names one."""
    rerank.fit("towns", pipeline(dense=DenseStage("encoder", index=index)), portable=True)
    assert len(list(FOLDER.glob("embeddings/*/*-lists/lists.faiss"))) == (index == "faiss")
    expected = rerank.Pipeline.load(FOLDER).search("good", 5)
    assert not list(FOLDER.rglob("*.lock"))
    shutil.move(FOLDER, "elsewhere")
    for gone in ("towns", "runs", "encoder"):
        shutil.rmtree(gone)
    assert rerank.Pipeline.load("elsewhere").search("good", 5) == expected
    assert exit_code("verify", "elsewhere") == 0


@pytest.mark.parametrize(
    "file, content, line",
    [
        (FOLDER / "evidence.json", "{}", r"pipeline: changed since it was written: evidence.json"),
        (FOLDER / "manifest.json", "{", r"manifest.json: not JSON"),
        (
            "towns/corpus.jsonl",
            '{"_id": "new", "text": "new"}',
            r"the documents of .*towns have changed since the fit; ",
        ),
        (
            "encoder/vocab.txt",
            "new",
            r"the files of the encoder encoder have changed since the fit; run `rerank fit`",
        ),
    ],
)
def test_a_folder_that_was_changed_is_refused_in_one_line(file, content, line, here, capsys):
    Path(file).write_text(content)
    assert re.search(line, failed(capsys, "search", str(FOLDER), "good"))


def test_the_command_prints_the_table_and_the_folder_scores_and_searches(here, capsys, monkeypatch):
    monkeypatch.setattr("rerank.pipelines.fitted.LEAST_SIMILARITY", -10.0)
    Path("p.toml").write_text(pipeline().to_toml())
    main(["fit", "towns", "--pipeline", "p.toml"])
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == str(FOLDER)
    assert re.search(r"^adapter \(query-adapter\)  late +0\.\d{4} ± 0\.\d{4}  [+-]0\.\d{4}  \[", shown, re.MULTILINE)
    assert re.search(r"^nested +0\.\d{4}", shown, re.MULTILINE)
    Path("topics.tsv").write_text("new\tgood\n")
    main(["score", str(FOLDER), "--queries", "topics.tsv", "--out", "new.run"])
    assert read_run("new.run").keys() == {"new"}
    assert "trained the pipeline" not in capsys.readouterr().err
    main(["score", str(FOLDER), "--out", "judged.run"])
    assert "15 of 15 queries trained the pipeline" in capsys.readouterr().err
    main(["search", str(FOLDER), "good", "--top", "2", "--explain"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["rank", "score", "document"]
    assert any(line.startswith("      stages: bm25 ") for line in lines)
    assert read_run("new.run")["new"][lines[0].split()[-1]] == pytest.approx(float(lines[0].split()[1]), abs=1e-3)
    main(["search", str(FOLDER), rerank.open_collection("towns").queries[QUERY], "--top", "5", "--explain"])
    assert re.search(r"^ +matched: \w+ → \w+", capsys.readouterr().out, re.MULTILINE)


def test_a_note_says_that_vectors_are_far_and_no_document_has_a_word(here):
    near = json.loads((FOLDER / "manifest.json").read_text())["pipeline"]["near"]
    best = [max(scores.values()) for scores in read_run(FOLDER / "runs/dense.run").values()]
    assert near == {"dense": pytest.approx(np.quantile(best, 0.05), abs=1e-6)}
    fitted = rerank.Pipeline.load(FOLDER).fitted
    assert fitted.near == near
    for border, queries in {2.0: {"zzzz": True, "what zzzz": True, "good zzzz": False}, -2.0: {"zzzz": False}}.items():
        found = rerank.Pipeline.of(replace(fitted, near={"dense": border}))
        for query, is_far in queries.items():
            assert bool(found.find(query, 1).note) == is_far
            (hit,) = found.find(query, 1, explain=True).hits
            assert not (is_far and hit.matches)


def test_only_similar_other_words_match(here, monkeypatch):
    found = rerank.Pipeline.load(FOLDER)
    query = rerank.open_collection("towns").queries[QUERY]
    for least, has_matches in ((-10.0, True), (10.0, False)):
        monkeypatch.setattr("rerank.pipelines.fitted.LEAST_SIMILARITY", least)
        pairs = [pair for hit in found.search(query, 5, explain=True) for pair in hit.matches]
        assert bool(pairs) == has_matches
        assert all(word != match for word, match in pairs)


def test_documents_that_late_interaction_has_not_compared_are_shown_without_matches(here, monkeypatch):
    monkeypatch.setattr("rerank.pipelines.fitted.LEAST_SIMILARITY", -10.0)
    monkeypatch.setattr("rerank.pipelines.stages.late_interaction.ALL_BELOW", 0)
    rerank.fit(
        "towns", rerank.Pipeline(bm25=BM25Stage(), late=LateInteractionStage("bm25", "encoder", depth=2)), out="short"
    )
    for tokens in Path("runs/towns/embeddings").glob("*/tokens"):
        shutil.rmtree(tokens)
    hits = rerank.Pipeline.load("short").search("alpha0 good", top=5, explain=True)
    assert [bool(hit.matches) for hit in hits] == [True, True, False, False, False]


def test_the_report_shows_the_stages_and_verify_computes_the_means_again(here, capsys):
    main(["report", str(FOLDER)])
    page = Path("runs/towns/pipeline-report.html")
    assert capsys.readouterr().out.strip() == str(page)
    text = page.read_text()
    assert all(word in text for word in ("<svg", "adapter (query-adapter)", "Queries that lost", "[stages.bm25]"))
    for setting, value in (("measure", "nDCG@20"), ("seed", "0"), ("date", date.today().isoformat())):
        assert f'<th scope="row">{setting}</th><td>{value}</td>' in text
    assert re.search(r"versions</th><td>rerank [\d.]+.*, torch [\d.]+", text)
    assert exit_code("verify", str(FOLDER)) == 0
    assert "Everything that is recorded holds." in capsys.readouterr().out
    assert exit_code("verify", "runs/towns") == 0
    assert f"{FOLDER}\n" in capsys.readouterr().out
    judgments_turned({QUERY})
    for folder in (FOLDER, FOLDER.parent):
        assert exit_code("verify", str(folder)) == 1
        said = capsys.readouterr().out
        assert "the evidence has 0." in said
        assert "judgments: changed since the fit" in said
    (FOLDER / "runs/bm25.run").unlink()
    assert exit_code("verify", "runs/towns") == 1
    assert f"{FOLDER}: changed since it was written: runs/bm25.run" in capsys.readouterr().out


def test_a_mean_without_values_is_one_line(here, capsys):
    evidence = json.loads((FOLDER / "evidence.json").read_text())
    del evidence["values"]["late"]
    (FOLDER / "evidence.json").write_text(json.dumps(evidence))
    manifest = json.loads((FOLDER / "manifest.json").read_text())
    manifest["files"] |= record_of(FOLDER, [FOLDER / "evidence.json"])
    write_manifest(FOLDER / "manifest.json", manifest)
    for command in ("verify", "report"):
        assert "evidence.json: expected the same queries of all stages" in failed(capsys, command, str(FOLDER))


def test_mistakes_are_one_line(here, capsys):
    assert "--encoder none takes only BM25 and neighbours" in failed(capsys, "fit", "towns", "--encoder", "no/such")
    assert "towns: exists and is no pipeline" in failed(capsys, "fit", "towns", "--out", "towns", "--encoder", "none")
    assert "./nowhere: no such file or folder" in failed(capsys, "fit", "./nowhere")
    for command in (["score", "--out", "x.run"], ["search", "good"]):
        for flag, value in (("--collection", "towns"), ("--first-stage.k1", "1.5"), ("--first-stage.depth", "20")):
            said = failed(capsys, command[0], str(FOLDER), *command[1:], flag, value)
            assert re.search(f"{flag} [0-9a-z.]+: has no effect: {FOLDER} has its own settings; leave it out", said)
    run = "runs/towns/bm25.run"
    assert "has no effect with a pipeline" in failed(capsys, "score", str(FOLDER), run, "--out", "x.run")


def test_bm25_alone_needs_no_encoder(here, capsys):
    shutil.rmtree("encoder")
    main(["fit", "towns", "--encoder", "none", "--out", "p"])
    printed = capsys.readouterr()
    assert "bm25" in printed.out
    search, report, serve = next_commands(printed.err)
    assert serve == ["serve", "p"]
    assert search[:2] == ["search", "p"]
    main(report)
    assert capsys.readouterr().out == "p-report.html\n"


def test_no_search_is_advised_for_a_pipeline_that_ranks_the_queries_of_a_file(here, capsys):
    shutil.copy("runs/towns/bm25.run", "kept.run")
    Path("kept.toml").write_text('[stages.kept]\nkind = "run"\nfile = "kept.run"\n')
    main(["fit", "towns", "--pipeline", "kept.toml", "--out", "p"])
    assert next_commands(capsys.readouterr().err) == [["report", "p"]]
    assert "ranks only the queries of its file" in failed(capsys, "search", "p", "good")
