"""`rerank score`: a checkpoint re-ranks any run."""

import json
import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.utils.files import file_hash
from tests.support.small_collection import command, failed

CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"
RUN = "runs/towns/bm25.run"


def test_a_checkpoint_re_ranks_a_run(here):
    main(command("--fold", "1", "--encoder.pooling", "max", "--encoder.max-doc-tokens", "20"))
    main(["score", CHECKPOINT, RUN, "--out", "again.run", "--collection", "towns"])
    again, before = read_run("again.run"), read_run("runs/towns/smoothi/fold1/test.run")
    assert len(again) == 15
    for query_id, documents in before.items():
        assert again[query_id] == pytest.approx(documents, abs=1e-5)
    facts = json.loads(Path("again.run.json").read_text())
    assert facts["first_stage"] == {"run": RUN, "sha256": file_hash(Path(RUN))}
    assert facts["run"]["sha256"] == file_hash(Path("again.run"))
    assert facts["documents"].keys() == {"fingerprint", "tokens"}


def test_it_takes_what_the_checkpoint_records_and_says_whom_it_learned_from(there, capsys):
    main(command("--fold", "1", "--name", "few", "--depth", "2"))
    checkpoint = "runs/towns/few/fold1/checkpoint"
    capsys.readouterr()
    main(["score", checkpoint, RUN, "--out", "few.run"])
    assert {len(documents) for documents in read_run("few.run").values()} == {2}
    said = capsys.readouterr().err
    assert f"{checkpoint}: re-ranks 2 documents of a query, as in its training; --depth changes that" in said
    assert "12 of 15 queries trained the model or chose its epoch: this run does not say how good it is" in said
    facts = json.loads(Path("few.run.json").read_text())
    assert facts["taught"] == 12
    assert facts["config"]["first_stage"]["depth"] == 2
    assert facts["config"].keys() == {"collection", "first_stage", "encoder", "training"}
    assert "name" not in facts["config"]["encoder"]
    assert "epochs" not in facts["config"]["training"]
    shutil.copytree(checkpoint, "moved")
    main(["score", "moved", RUN, "--out", "moved.run", "--depth", "1"])
    assert "12 of 15 queries trained the model or chose its epoch" in capsys.readouterr().err
    text = Path("towns/corpus.jsonl").read_text()
    Path("towns/corpus.jsonl").write_text(text + '{"_id": "new", "text": "one more document"}\n')
    main(["score", "moved", RUN, "--out", "moved.run", "--depth", "1"])
    assert "moved: was trained on queries of towns, perhaps on some of these" in capsys.readouterr().err
    assert json.loads(Path("moved.run.json").read_text())["taught"] is None
    Path("towns/queries.jsonl").rename("asked.jsonl")  # a folder of documents alone
    main(["score", "moved", RUN, "--out", "moved.run", "--depth", "1", "--collection.queries", "asked.jsonl"])
    assert "perhaps on some of these" not in capsys.readouterr().err
    Path("asked.jsonl").rename("towns/queries.jsonl")
    Path("moved/trained_on.json").unlink()
    main(["score", "moved", RUN, "--out", "moved.run", "--depth", "1"])
    assert "moved: was trained on queries of towns, perhaps on some of these" in capsys.readouterr().err
    Path("moved/trained_on.json").write_text('{"queries": 1}')
    assert "moved/trained_on.json: expected" in failed(capsys, "score", "moved", RUN, "--out", "moved.run")
    assert {len(documents) for documents in read_run("moved.run").values()} == {1}


def test_it_ignores_the_settings_of_a_file_that_do_not_act_on_it(there):
    main(["score", CHECKPOINT, RUN, "--out", "again.run", "--config", "towns.toml", "--depth", "3", "--device", "cpu"])
    assert {len(documents) for documents in read_run("again.run").values()} == {3}


def test_every_query_of_a_run_is_re_ranked_judged_or_not(there):
    main(["score", CHECKPOINT, RUN, "--out", "judged.run"])
    judged = [line for line in Path("towns/qrels/test.tsv").read_text().splitlines() if line.startswith("q1\t")]
    Path("towns/qrels/test.tsv").write_text("\n".join(judged) + "\n")
    main(["score", CHECKPOINT, RUN, "--out", "few.run"])
    shutil.rmtree("towns/qrels")
    main(["score", CHECKPOINT, RUN, "--out", "none.run"])
    assert len(read_run("judged.run")) == 15
    assert read_run("few.run") == read_run("none.run") == read_run("judged.run")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.tsv", "n1\tamber0 good\nn2\tbirch1 cedar2\n"),
        ("topics.jsonl", '{"_id": "n1", "text": "amber0 good"}\n{"_id": "n2", "text": "birch1 cedar2"}\n'),
    ],
)
def test_new_queries_without_judgments_are_one_command(there, capsys, name, text):
    """BM25 retrieves for every query of the file; the collection's own run, judgments and folds stay as they are."""
    files = [Path(RUN), *(Path("runs/towns", file) for file in ("bm25.json", "qrels.txt", "folds.json"))]
    before = [file_hash(file) for file in files]
    Path(name).write_text(text)
    main(["score", CHECKPOINT, "--collection", "towns", "--collection.queries", name, "--out", "mine.run"])
    (found,) = Path("runs/towns").glob("bm25-queries=topics-*.run")
    mine, retrieved = read_run("mine.run"), read_run(found)
    assert {query_id: set(documents) for query_id, documents in mine.items()} == {
        query_id: set(documents) for query_id, documents in retrieved.items()
    }
    assert list(mine) == ["n1", "n2"]
    assert {"d0-0", "d1-0", "d2-0"} <= set(mine["n1"]) | set(mine["n2"])
    assert [file_hash(file) for file in files] == before
    facts = json.loads(Path("mine.run.json").read_text())
    assert facts["first_stage"] == {"run": str(found), "sha256": file_hash(found)}
    assert facts["config"]["collection"]["queries"] == name
    main(["retrieve", "--collection", "towns", "--collection.queries", name])
    assert capsys.readouterr().out.splitlines()[-1] == str(found)
    Path(name).write_text(text.replace("cedar2", "delta3"))  # other queries have another run
    main(["retrieve", "--collection", "towns", "--collection.queries", name])
    assert capsys.readouterr().out.splitlines()[-1] != str(found)
    assert [file_hash(file) for file in files] == before


def test_without_a_run_it_re_ranks_the_one_that_retrieve_makes(there):
    main(["score", CHECKPOINT, RUN, "--out", "named.run"])
    main(["score", CHECKPOINT, "--out", "own.run"])
    assert read_run("own.run") == read_run("named.run")
    Path(RUN).unlink()
    main(["score", CHECKPOINT, "--out", "again.run", "--collection", "towns"])
    assert read_run("again.run") == read_run("named.run")


def test_the_queries_of_a_file_are_those_of_the_run(there, capsys):
    Path("some.tsv").write_text("q1\tgood\nq99\tnot in the run\n")
    main(["score", CHECKPOINT, RUN, "--collection.queries", "some.tsv", "--out", "mine.run"])
    err = capsys.readouterr().err
    assert (
        "some.tsv: has no text of 14 of the 15 queries of runs/towns/bm25.run, such as q0, q2, q3: they are not" in err
    )
    assert list(read_run("mine.run")) == ["q1"]


def test_a_folder_with_documents_and_queries_alone_is_a_collection(there):
    shutil.copytree("towns", "asked", ignore=shutil.ignore_patterns("qrels"))
    main(["retrieve", "--collection", "asked"])
    assert read_run("runs/asked/bm25.run") == read_run(RUN)
    main(["score", CHECKPOINT, "--collection", "asked", "--out", "asked.run"])
    assert len(read_run("asked.run")) == len(read_run(RUN))


def test_a_checkpoint_whose_collection_is_gone_or_not_recorded_is_one_line(there, capsys):
    words = ["score", CHECKPOINT, RUN, "--out", "out.run"]
    Path("towns").rename("moved")
    line = failed(capsys, *words)
    assert "the collection that it was trained on cannot be opened: " in line
    assert "--collection" in line
    config = Path(CHECKPOINT, "config.json")
    settings = json.loads(config.read_text())
    assert settings["rerank"].pop("collection") == "towns"
    config.write_text(json.dumps(settings))
    line = failed(capsys, *words)
    assert "does not record the collection " in line
    assert "name one with --collection" in line


def test_a_checkpoint_remembers_the_language_of_its_collection(there, capsys):
    main(command("--fold", "1", "--collection.language", "de", "--name", "german"))
    Path("topics.tsv").write_text("n1\tamber0 good\n")
    main(["score", "runs/towns/german/fold1/checkpoint", "--collection.queries", "topics.tsv", "--out", "mine.run"])
    assert list(Path("runs/towns").glob("bm25-language=de-queries=topics-*.run"))
    assert Path("runs/towns/bm25-language=de.run").is_file()
