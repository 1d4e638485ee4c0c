"""`rerank retrieve`: the run, the judgments and the folds."""

import json
import shutil
from pathlib import Path

from rerank.cli.main import main
from rerank.data.runs import read_qrels, read_run
from rerank.utils.files import short_hash
from tests.support.small_collection import command, failed, write_german


def test_retrieve_writes_run_judgments_and_folds_once(here, capsys):
    run = here / "runs" / "towns" / "bm25.run"
    before = run.stat().st_mtime_ns
    main(["retrieve", "--collection", "towns"])
    printed = capsys.readouterr()
    assert printed.out.strip() == "runs/towns/bm25.run"
    assert "BM25 with k1 0.9 and b 0.4" in printed.err
    assert run.stat().st_mtime_ns == before
    found, qrels = read_run(run), read_qrels(here / "runs" / "towns" / "qrels.txt")
    assert {q: set(documents) for q, documents in found.items()} == {q: set(judged) for q, judged in qrels.items()}
    capsys.readouterr()
    main(["retrieve", "--collection", "towns", "--first-stage.k1", "1.2"])
    printed = capsys.readouterr().err
    assert "BM25 with k1 1.2 and b 0.4" in printed
    assert "folds" not in printed
    assert (here / "runs" / "towns" / "bm25-k1=1.2.run").exists()


def test_the_first_run_is_bm25_run_with_any_settings(here, capsys):
    """A later run has what differs from it in its name, and the JSON file beside it all settings."""
    shutil.rmtree("runs")
    main(["retrieve", "--collection", "towns", "--depth", "3"])
    assert capsys.readouterr().out.strip() == "runs/towns/bm25.run"
    assert {len(scores) for scores in read_run("runs/towns/bm25.run").values()} == {3}
    main(["retrieve", "--collection", "towns"])
    assert capsys.readouterr().out.strip() == "runs/towns/bm25-depth=150.run"
    assert json.loads(Path("runs/towns/bm25-depth=150.json").read_text())["settings"]["depth"] == 150
    main(["retrieve", "--collection", "towns", "--depth", "3"])
    assert capsys.readouterr().out.strip() == "runs/towns/bm25.run"


def test_a_query_field_is_searched_alone_and_with_others(here, capsys):
    add_fields("towns")
    main(["retrieve", "--collection", "towns", "--collection.query-field", "description"])
    assert capsys.readouterr().out.strip() == "runs/towns/bm25-query_field=description.run"
    main(["retrieve", "--collection", "towns", "--collection.query-field", "text+description"])
    both = capsys.readouterr().out.strip()
    assert both == "runs/towns/bm25-query_field=text+description.run"
    title, found, joined = (
        read_run(run) for run in ("runs/towns/bm25.run", "runs/towns/bm25-query_field=description.run", both)
    )
    assert found["q0"] == title["q1"]  # the description of q0 is the text of q1
    assert set(joined["q0"]) == {*title["q0"], *title["q1"]}
    Path("runs/towns/bm25.run").unlink()
    Path("runs/towns/bm25.json").unlink()
    main(["retrieve", "--collection", "towns", "--collection.query-field", "description"])
    main(["retrieve", "--collection", "towns", "--collection.query-field", ""])  # the default
    assert capsys.readouterr().out.split() == ["runs/towns/bm25.run", "runs/towns/bm25-query_field=default.run"]
    line = failed(capsys, "retrieve", "--collection", "towns", "--collection.query-field", "narrative")
    assert "towns/queries.jsonl:1: expected a text under 'narrative', got none (the keys are [" in line
    Path("topics.tsv").write_text("n1\tamber0\n")
    words = ["--collection.queries", "topics.tsv", "--collection.query-field", "description"]
    line = failed(capsys, "retrieve", "--collection", "towns", *words)
    assert "topics.tsv:1: --collection.query-field description: expected a JSON object with these keys" in line


def add_fields(folder):
    """Gives each query the next query's text as its description."""
    queries = [json.loads(line) for line in Path(folder, "queries.jsonl").read_text().splitlines()]
    rows = [
        {**one, "description": other["text"]} for one, other in zip(queries, [*queries[1:], queries[0]], strict=True)
    ]
    Path(folder, "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_judged_queries_are_searched_and_all_where_none_is_judged(here, capsys):
    add_query("towns", "q99", "amber")
    asked = [json.loads(line) for line in (here / "towns" / "queries.jsonl").read_text().splitlines()]
    main(["retrieve", "--collection", "towns"])  # the run exists, and the new query is not judged
    origin = json.loads((here / "runs" / "towns" / "bm25.json").read_text())
    assert origin["queries"] == short_hash(*((query["_id"], query["text"]) for query in asked[:-1]))
    shutil.copytree(here / "towns", here / "asked")
    shutil.rmtree(here / "asked" / "qrels")
    main(["retrieve", "--collection", "asked"])
    assert "asked: has no judgments" in capsys.readouterr().err
    assert sorted(path.name for path in (here / "runs" / "asked").iterdir()) == [
        "bm25.json",
        "bm25.run",
        "index",
        "ranking.lock",
    ]
    judged, every = read_run(here / "runs/towns/bm25.run"), read_run(here / "runs/asked/bm25.run")
    assert set(every) - set(judged) == {"q99"}
    assert judged == {query_id: every[query_id] for query_id in judged}


def test_training_without_judgments_is_refused_before_anything_is_retrieved(here, capsys):
    shutil.rmtree(here / "towns" / "qrels")
    shutil.rmtree(here / "runs")
    assert "towns: no qrels/test.tsv; a collection folder holds" in failed(capsys, *command("--fold", "1"))
    assert not (here / "runs").exists()


def add_query(folder, query_id, text):
    with Path(folder, "queries.jsonl").open("a") as queries:
        queries.write(json.dumps({"_id": query_id, "text": text}) + "\n")


def test_german_finds_what_english_does_not_and_both_are_kept(here, capsys):
    write_german(Path("stadt"))
    main(["retrieve", "--collection", "stadt"])
    assert "2 of 5 queries find no document" in capsys.readouterr().err
    main(["retrieve", "--collection", "stadt", "--collection.language", "de"])
    captured = capsys.readouterr()
    assert "find no document" not in captured.err
    assert captured.out.strip() == "runs/stadt/bm25-language=de.run"  # what differs from bm25.run
    best = {query_id: next(iter(found)) for query_id, found in read_run("runs/stadt/bm25-language=de.run").items()}
    assert best == {f"q{number}": f"d{number}" for number in range(5)}
    assert len(read_run("runs/stadt/bm25.run")) == 3
    assert json.loads(Path("runs/stadt/bm25.json").read_text())["settings"]["language"] == "en"
    assert json.loads(Path("runs/stadt/bm25-language=de.json").read_text())["settings"]["language"] == "de"
    assert len(list(Path("runs/stadt/index").glob("*/"))) == 2


def test_a_collection_without_queries_is_one_line_until_a_file_gives_some(here, capsys):
    Path("towns/queries.jsonl").write_text("")
    shutil.rmtree("towns/qrels")
    shutil.rmtree("runs")
    assert "towns/queries.jsonl: has no query; expected lines" in failed(capsys, "retrieve", "--collection", "towns")
    Path("towns/queries.jsonl").unlink()
    assert "towns: no queries.jsonl; a collection" in failed(capsys, "retrieve", "--collection", "towns")
    assert not Path("runs").exists()
    Path("topics.tsv").write_text("n1\tamber0\n")
    main(["retrieve", "--collection", "towns", "--collection.queries", "topics.tsv"])
    assert list(read_run(capsys.readouterr().out.strip())) == ["n1"]
