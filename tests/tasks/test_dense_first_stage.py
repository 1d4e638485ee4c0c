"""A bi-encoder as the first stage: its run, what is recorded, what is kept, and what is refused."""

import errno
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from rerank.cli.main import main
from rerank.data import embeddings
from rerank.data.collections import open_collection
from rerank.data.trec import ranked, read_run
from rerank.models.bi_encoder import BiEncoder, open_bi_encoder
from rerank.utils import resumable
from rerank.utils.integrity import RecordedFile
from tests.support.small_collection import SETTINGS, command, failed, in_a_copy
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

RETRIEVE = ["retrieve", "--collection", "towns", "--first-stage.encoder", "encoder"]
RUN, RECORD = Path("runs/towns/dense=encoder.run"), Path("runs/towns/dense=encoder.json")


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with the run of a bi-encoder."""
    with in_a_copy(home, tmp_path_factory) as folder:
        Path("towns.toml").write_text(SETTINGS.replace("[encoder]", "folds = 3\n[encoder]"))
        main(RETRIEVE)
    return folder


def vectors_folder():
    (folder,) = Path("runs/towns/embeddings").glob("*/")
    return folder


def write_corpus(texts, folder="towns"):
    lines = [json.dumps({"_id": doc_id, "title": "", "text": text}) for doc_id, text in texts.items()]
    Path(folder, "corpus.jsonl").write_text("\n".join(lines) + "\n")


def test_the_run_has_the_documents_whose_best_passage_is_nearest(here):
    collection, encoder = open_collection("towns"), open_bi_encoder("encoder", "cpu")

    def vector(text):
        (found,) = encoder.encode_documents([text])[0].astype(np.float64)
        return found / np.linalg.norm(found)

    texts = {document.doc_id: document.text for document in collection.documents()}
    passages = {doc_id: [vector(passage) for passage in encoder.split(text)] for doc_id, text in texts.items()}
    assert max(map(len, passages.values())) > 1
    run = read_run(RUN)
    assert list(run) == list(collection.queries)
    for query_id, text in collection.queries.items():
        query = vector(text)
        expected = {doc_id: max(float(query @ passage) for passage in some) for doc_id, some in passages.items()}
        assert run[query_id].keys() == expected.keys()
        np.testing.assert_allclose([run[query_id][doc_id] for doc_id in expected], list(expected.values()), atol=1e-5)


def test_the_run_is_made_once_and_its_depth_is_in_its_name(here, capsys):
    before = RUN.stat().st_mtime_ns
    main(RETRIEVE)
    assert capsys.readouterr().out.strip() == str(RUN)
    assert RUN.stat().st_mtime_ns == before
    vectors = vectors_folder()
    main([*RETRIEVE, "--depth", "3"])
    assert capsys.readouterr().out.strip() == "runs/towns/dense=encoder-depth=3.run"
    short, whole = read_run("runs/towns/dense=encoder-depth=3.run"), read_run(RUN)
    assert {q: ranked(scores) for q, scores in short.items()} == {q: ranked(s)[:3] for q, s in whole.items()}
    assert vectors_folder() == vectors


def test_the_record_names_the_encoder_and_how_vectors_are_compared(here):
    record = json.loads(RECORD.read_text())
    assert record["encoder"]["name"] == "encoder"
    assert {key: record["encoder"][key] for key in ("pooling", "similarity", "passage_scores", "max_length")} == {
        "pooling": "mean",
        "similarity": "cosine",
        "passage_scores": "max",
        "max_length": 24,
    }


def test_training_takes_the_run_as_it_takes_that_of_bm25(here):
    main(command("--fold", "1", "--epochs", "1", "--name", "dense", "--first-stage.encoder", "encoder"))
    main(command("--fold", "1", "--epochs", "1", "--name", "given", "--first-stage.run", str(RUN)))
    folders = [Path("runs/towns") / name / "fold1" for name in ("dense", "given")]
    assert read_run(folders[0] / "test.run") == read_run(folders[1] / "test.run")
    facts = json.loads((folders[0] / "manifest.json").read_text())
    record = json.loads(RECORD.read_text())
    assert facts["first_stage"]["run"] == str(RUN)
    assert facts["first_stage"]["encoder"] == record["encoder"]
    assert facts["java"] is None
    assert facts["config"]["first_stage"]["encoder"] == "encoder"
    with pytest.raises(SystemExit) as ended:
        main(["verify", "runs/towns/dense"])
    assert ended.value.code == 0


def test_it_is_fused_with_bm25(here, capsys):
    main([*RETRIEVE[:3], "--first-stage.run", "runs/towns/bm25.run", str(RUN)])
    (fused,) = Path("runs/towns").glob("fused-rrf=bm25+dense=encoder-*.run")
    assert capsys.readouterr().out.strip() == str(fused)


def test_score_retrieves_with_it_where_no_run_is_given(here):
    main(command("--fold", "1", "--epochs", "1", "--name", "any"))
    words = ["score", "runs/towns/any/fold1/checkpoint", "--collection", "towns", "--depth", "4", "--out", "scored.run"]
    main([*words, "--first-stage.encoder", "encoder"])
    found = {query_id: set(ranked(scores)[:4]) for query_id, scores in read_run(RUN).items()}
    assert {query_id: set(scores) for query_id, scores in read_run("scored.run").items()} == found


def test_a_teacher_scores_its_candidates_those_of_queries_without_judgments_too(here):
    main(command("--fold", "1", "--epochs", "1", "--name", "any"))
    with Path("towns/queries.jsonl").open("a") as queries:
        queries.write(json.dumps({"_id": "q99", "text": "amber"}) + "\n")
    teacher = "runs/towns/any/fold1/checkpoint"
    words = ["--fold", "1", "--epochs", "1", "--depth", "4", "--student", "encoder", "--first-stage.encoder", "encoder"]
    main(["distill", teacher, "--config", "towns.toml", *words])
    (lists,) = Path("runs/towns").glob("teacher-*.jsonl")
    found = {one["query_id"]: one["doc_ids"] for one in map(json.loads, lists.read_text().splitlines())}
    main([*RETRIEVE, "--collection.queries", "towns/queries.jsonl", "--depth", "4"])
    (file,) = Path("runs/towns").glob("dense=encoder-depth=4-queries=*.run")
    assert found == {query_id: ranked(scores) for query_id, scores in read_run(file).items()}


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(embeddings, "DOCUMENTS_AT_ONCE", 16)
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0)


def test_an_interrupted_command_goes_on_with_the_same_bytes(here, small_chunks, monkeypatch, capsys):
    shutil.rmtree(RUN.parent / "embeddings")
    main([*RETRIEVE, "--depth", "5"])
    whole = {file.name: file.read_bytes() for file in vectors_folder().iterdir()}
    shutil.rmtree(RUN.parent / "embeddings")
    encode, calls = BiEncoder.encode_documents, []

    def interrupt(self, texts):
        calls.append(len(texts))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return encode(self, texts)

    with monkeypatch.context() as patch:
        patch.setattr(BiEncoder, "encode_documents", interrupt)
        with pytest.raises(SystemExit) as ended:
            main([*RETRIEVE, "--depth", "6"])
    assert ended.value.code == 130
    assert not Path("runs/towns/dense=encoder-depth=6.run").exists()
    main([*RETRIEVE, "--depth", "6"])
    assert "goes on after the 48 that an interrupted command has done" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in vectors_folder().iterdir()} == whole


def test_a_full_disk_is_one_line_and_nothing_is_half_written(here, small_chunks, monkeypatch, capsys):
    shutil.rmtree(RUN.parent / "embeddings")

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RecordedFile, "write", full)
        line = failed(capsys, *RETRIEVE, "--depth", "5")
    assert line.endswith("cannot be written: No space left on device")
    assert not [path for path in RUN.parent.glob("embeddings/*") if path.is_dir()]
    assert not Path("runs/towns/dense=encoder-depth=5.run").exists()


def test_damaged_vectors_are_one_line(here, capsys):
    file = vectors_folder() / "values.bin"
    file.write_bytes(file.read_bytes()[:-1])
    line = failed(capsys, *RETRIEVE, "--depth", "5")
    assert f"{vectors_folder()}: the vectors cannot be read" in line
    assert line.endswith("remove the folder and run again")


def test_another_encoder_of_the_same_name_is_refused(here, capsys):
    shutil.rmtree("encoder")
    make_encoder("bert", Path("encoder"), WORDS, seed=1, max_positions=24)
    line = failed(capsys, *RETRIEVE)
    assert line == (
        f"rerank: {RUN}: retrieved with other files of the encoder than those of now; remove it to retrieve again, or "
        "take another --output.folder"
    )
    RUN.unlink()
    before = vectors_folder()
    main(RETRIEVE)
    assert len(list(before.parent.glob("*/"))) == 2


def test_the_same_encoder_by_another_path_is_the_same(here):
    before = RUN.stat().st_mtime_ns
    main([*RETRIEVE[:-1], "./encoder/"])
    assert RUN.stat().st_mtime_ns == before


def test_other_documents_are_refused_and_a_changed_run_too(here, capsys):
    RUN.write_bytes(RUN.read_bytes()[:-1])
    assert "changed since it was retrieved: dense=encoder.run" in failed(capsys, *RETRIEVE)
    write_corpus({"d1": "amber", "d2": "birch"})
    assert "retrieved from other documents or queries than those of towns" in failed(capsys, *RETRIEVE)


def test_documents_and_queries_without_text_are_left_out_and_counted(here, capsys):
    write_corpus({"d1": "amber birch", "empty": "", "blank": "  ", "d2": "cedar"})
    Path("topics.tsv").write_text("n1\tamber\nn2\t \nn3\tcedar\n")
    capsys.readouterr()
    main([*RETRIEVE, "--collection.queries", "topics.tsv"])
    captured = capsys.readouterr()
    assert "2 documents have no text, so the encoder cannot find them: empty, blank" in captured.err
    assert "1 of 3 queries find no document: n2" in captured.err
    run = read_run(captured.out.strip())
    assert {query_id: set(scores) for query_id, scores in run.items()} == {"n1": {"d1", "d2"}, "n3": {"d1", "d2"}}
    Path("topics.tsv").write_text("n2\t \n")
    line = failed(capsys, *RETRIEVE, "--collection.queries", "topics.tsv")
    assert "none of its 1 queries has text to encode" in line


def test_a_collection_without_text_is_one_line(here, capsys):
    write_corpus({"d1": "", "d2": " "})
    assert "there is no document with text to encode; expected at least one" in failed(
        capsys, *RETRIEVE, "--depth", "5"
    )


def test_vectors_that_are_not_finite_name_the_document(here, monkeypatch, capsys):
    shutil.rmtree(RUN.parent / "embeddings")
    encode = BiEncoder.encode_documents

    def broken(self, texts):
        vectors, passages = encode(self, texts)
        vectors[passages[:3].sum()] = np.nan
        return vectors, passages

    monkeypatch.setattr(BiEncoder, "encode_documents", broken)
    fourth = list(open_collection("towns").documents())[3].doc_id
    assert f"document {fourth}: the encoder gives a vector with NaN" in failed(capsys, *RETRIEVE, "--depth", "5")


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--first-stage.encoder", "./nowhere"], "--first-stage.encoder ./nowhere: no such file or folder"),
        (["--first-stage.encoder", "a/b/c"], "encoder a/b/c: no such folder; check the path"),
        (
            ["--first-stage.encoder", "encoder", "--first-stage.run", "runs/towns/bm25.run"],
            "--first-stage.encoder encoder: of no effect with --first-stage.run; give one of them",
        ),
    ],
)
def test_what_cannot_be_retrieved_with_is_one_line(here, capsys, words, expected):
    assert expected in failed(capsys, "retrieve", "--collection", "towns", *words)


def test_doctor_opens_it(here, capsys):
    logging.getLogger("sentence_transformers").setLevel(logging.INFO)
    with pytest.raises(SystemExit):
        main(["doctor", "--config", "towns.toml", "--first-stage.encoder", "encoder"])
    assert "ready    first stage  encoder: passages of 24 tokens, similarity cosine" in capsys.readouterr().out
