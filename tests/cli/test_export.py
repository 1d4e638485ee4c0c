"""`rerank export`: a graph that scores as its checkpoint does, and what is refused."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from rerank import Reranker, evaluate, open_collection, retrieve
from rerank.cli.main import main
from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.runs import read_run
from rerank.pipelines.open import open_to_serve, served_by
from rerank.utils.errors import UserError
from rerank.utils.integrity import record_of
from tests.cli.test_hostile_files import MARK, remote_code
from tests.support.small_collection import failed, write_collection
from tests.support.small_world import WORDS
from tests.support.tiny_decoders import make_decoder
from tests.support.tiny_encoders import make_cross_encoder

KINDS = ["bert", "roberta", "electra", "distilbert", "modernbert", "xlm-r"]
QUERY = "amber birch"
TEXTS = ["cedar", "", "delta ember fjord", "cedar", " ".join(WORDS * 20)]


def make_model(kind, folder, positions=40):
    """A cross-encoder whose weights are so large that scores differ, and that attention matters."""
    make_cross_encoder(kind, folder, WORDS, max_positions=positions)
    weights = load_file(folder / "model.safetensors")
    larger = {name: weight * (5 if weight.dim() > 1 else 1) for name, weight in weights.items()}
    save_file(larger, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A collection, a run of all its documents, and a checkpoint of 40 tokens, so that documents have two passages."""
    folder = tmp_path_factory.mktemp("export")
    write_collection(folder / "towns", queries=6)
    lines = [
        f"q{query} Q0 d{query}-{place} {place + 1} {9 - place} first\n" for query in range(6) for place in range(6)
    ]
    (folder / "first.run").write_text("".join(lines))
    make_model("bert", folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for form in ("onnx", "openvino"):
            pytest.importorskip("onnx" if form == "onnx" else "nncf")
            words = ["--int8", "--format", form]
            assert main(["export", "model", f"{form}-int8", *words]) is None
    return folder


@pytest.fixture
def there(world, monkeypatch):
    monkeypatch.chdir(world)


@pytest.fixture
def copy(world, tmp_path, there):
    """A copy of an exported folder that a test may damage."""
    return Path(shutil.copytree(world / "onnx-int8", tmp_path / "copy"))


@pytest.mark.parametrize(
    ("kind", "form"),
    [*((kind, "onnx") for kind in KINDS), *((kind, "openvino") for kind in ("bert", "distilbert", "modernbert"))],
)
def test_a_float32_graph_has_the_scores_of_its_checkpoint(kind, form, tmp_path):
    pytest.importorskip(form)
    positions = 40 if kind != "modernbert" else 300  # longer than its window of 128 tokens
    checkpoint = make_model(kind, tmp_path / kind, positions)
    main(["export", str(checkpoint), str(tmp_path / "graph"), "--format", form])
    expected = Reranker.load(checkpoint, device="cpu").score(QUERY, TEXTS)
    found = Reranker.load(tmp_path / "graph").score(QUERY, TEXTS)
    assert found == pytest.approx(expected, abs=1e-5, rel=1e-5)
    assert expected.std() > 1e-3


@pytest.mark.parametrize("form", ["onnx", "openvino"])
def test_an_int8_graph_is_close(form, there):
    expected, found = (Reranker.load(name, device="cpu").score(QUERY, TEXTS) for name in ("model", f"{form}-int8"))
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert np.corrcoef(found, expected)[0, 1] > 0.7
    assert len(list(Path(f"{form}-int8").glob("model.*"))) == (1 if form == "onnx" else 2)


def test_openvino_sends_no_telemetry_when_a_graph_is_opened(there):
    pytest.importorskip("openvino_telemetry")
    code = "import rerank; rerank.Reranker.load('openvino-int8'); from openvino.tools.ovc import telemetry"
    elsewhere = {name: value for name, value in os.environ.items() if name != "CI"}
    words = [sys.executable, "-c", f"{code}; print(telemetry.consent)"]
    assert subprocess.run(words, env=elsewhere, capture_output=True, text=True).stdout == "False\n"


def test_openvino_rounds_the_first_layers_alone(there):
    constants = re.findall(
        r'name="([^"]*)" type="Const"[^>]*>\s*<data element_type="u8"', Path("openvino-int8/model.xml").read_text()
    )
    assert any(".layer.0.attention.self.query" in name for name in constants)
    assert all(".layer.0." in name for name in constants)


@pytest.mark.parametrize("form", ["onnx", "openvino"])
def test_int8_scores_do_not_depend_on_the_other_documents(form, there):
    reranker = Reranker.load(f"{form}-int8")
    together = reranker.score(QUERY, TEXTS)
    assert together == pytest.approx([reranker.score(QUERY, [text])[0] for text in TEXTS], abs=1e-5)


@pytest.mark.parametrize("form", ["onnx", "openvino"])
def test_eight_threads_get_the_scores_of_one(form, there):
    reranker, queries = Reranker.load(f"{form}-int8"), WORDS[:8]
    expected = [reranker.score(query, TEXTS) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda query: reranker.score(query, TEXTS), queries * 8))
    np.testing.assert_allclose(found, expected * 8, rtol=0, atol=1e-6)


def test_what_int8_costs_is_measured_on_judged_queries_of_the_collection(there, tmp_path, capsys):
    words = ["--format", "onnx", "--int8", "--collection", "towns", "--output.folder", str(tmp_path / "runs")]
    main(["export", "model", str(tmp_path / "graph"), *words])
    line = capsys.readouterr().err.splitlines()[-1]
    report = json.loads((tmp_path / "graph" / "int8.json").read_text())
    assert (report["collection"], report["queries"], report["documents"]) == ("towns", 6, 6)
    run = retrieve("towns", 20)
    qrels, values = open_collection("towns").qrels, {}
    for name, model in (("float32", "model"), ("int8", str(tmp_path / "graph"))):
        scored = Reranker.load(model, device="cpu").rerank(run, open_collection("towns"))
        values[name] = np.mean(list(evaluate(qrels, scored, ["nDCG@10"])["nDCG@10"].values()))
        assert report[name] == pytest.approx(values[name])
    assert report["difference"] == pytest.approx(values["int8"] - values["float32"])
    assert f"nDCG@10 {report['float32']:.4f} in float32, {report['int8']:.4f} in int8, difference " in line
    assert -1 <= report["kendall_tau"] <= 1


def test_without_judgments_the_rankings_are_compared_and_without_a_collection_nothing(there, tmp_path, capsys):
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / "plain").mkdir(exist_ok=True)
        shutil.copy(Path("towns", name), tmp_path / "plain")
    words = ["--format", "onnx", "--int8", "--output.folder", str(tmp_path / "runs")]
    main(["export", "model", str(tmp_path / "graph"), *words, "--collection", str(tmp_path / "plain")])
    assert (
        "6 queries of plain with 6 documents: no judged query has a candidate, so nDCG@10 is not measured; Kendall's"
        in (capsys.readouterr().err)
    )
    main(["export", "model", str(tmp_path / "other"), *words])
    assert "the loss of int8 is not measured: model: does not record the collection that" in capsys.readouterr().err
    assert "no such file or folder" in failed(
        capsys, "export", "model", str(tmp_path / "no"), *words, "--collection", "nowhere"
    )
    assert not (tmp_path / "no").exists()


def test_a_server_gets_the_same_scores(there):
    model = Reranker.load("onnx-int8")
    pairs = model.scorer.tokenise_pairs([(QUERY, text) for text in TEXTS])
    with model.scorer.scoring():
        scores = model.scorer.score_packed(pairs.builder(pairs.pairs)).scores[pairs.places]
    assert scores == pytest.approx(model.score(QUERY, TEXTS), abs=1e-5)


def test_a_graph_is_served_in_the_place_of_a_cross_encoder(there, tmp_path):
    settings = Config(CollectionSettings("towns"), output=OutputSettings(str(tmp_path)))
    reranker, pipeline = open_to_serve("model", settings, None, Path("onnx-int8"))
    expected = Reranker.load("onnx-int8").score(QUERY, TEXTS)
    assert reranker.score(QUERY, TEXTS) == pytest.approx(expected, abs=1e-6)
    hits = served_by(pipeline, reranker.rank_passages).search("amber0", 3)
    assert [hit.score for hit in hits] == pytest.approx(
        [reranker.score("amber0", [f"{hit.title.text} {hit.text.text}".strip()])[0] for hit in hits], abs=1e-5
    )
    with pytest.raises(UserError, match="--graph model: no graph; expected a folder that `rerank export` wrote"):
        open_to_serve("model", settings, None, Path("model"))


def test_score_reads_the_folder_and_its_settings(there, tmp_path):
    checkpoint = shutil.copytree("model", tmp_path / "towns-model")
    config = json.loads((checkpoint / "config.json").read_text())
    config["rerank"] = {"pooling": "max", "max_doc_tokens": 30, "collection": "towns"}
    (checkpoint / "config.json").write_text(json.dumps(config))
    main(["export", str(checkpoint), str(tmp_path / "graph"), "--format", "onnx"])
    for name in ("towns-model", "graph"):
        main(["score", str(tmp_path / name), "first.run", "--out", str(tmp_path / f"{name}.run")])
    expected, found = (read_run(tmp_path / f"{name}.run") for name in ("towns-model", "graph"))
    assert expected.keys() == found.keys()
    for query_id, scores in expected.items():
        assert found[query_id] == pytest.approx(scores, abs=1e-5)


MISSING = "expected a file, found none; export the checkpoint again"
FLIPPED = b"a flipped bit"
SCORE = ["--collection", "towns", "--out", "no.run"]


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        *((file, None, f"{file}: {MISSING}") for file in ("model.onnx", "tokenizer.json", "config.json")),
        ("model.onnx", b"cut", "of 3 bytes;"),
        ("model.onnx", FLIPPED, "expected XXH3"),
        *(("export.json", text, "export the checkpoint again") for text in (b"", b"{", b"[]", b'{"format": "onnx"}')),
    ],
)
def test_a_missing_or_damaged_file_is_named(file, content, expected, copy, capsys):
    whole = (copy / file).read_bytes()
    if content is None:
        (copy / file).unlink()
    else:
        (copy / file).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if content == FLIPPED else content)
    line = failed(capsys, "score", str(copy), "first.run", *SCORE)
    assert file in line
    assert expected in line


def record_again(folder):
    """The hashes of changed files, as a stranger would write them."""
    facts = json.loads((folder / "export.json").read_text())
    record = record_of(folder, [folder / name for name in facts["files"]])
    (folder / "export.json").write_text(json.dumps(facts | {"files": record}))


@pytest.mark.parametrize(("number", "expected"), [(10**9, "expected ids of tokens from 0 to"), (None, "cannot open")])
def test_a_tokenizer_that_cannot_be_opened_is_one_line(copy, number, expected):
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["id"] = number
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    record_again(copy)
    with pytest.raises(UserError, match=expected):
        Reranker.load(copy)


def test_code_beside_a_graph_is_not_run(copy, monkeypatch):
    remote_code(copy)
    record_again(copy)
    monkeypatch.chdir(copy.parent)
    with contextlib.suppress(UserError):
        Reranker.load(copy)
    assert not list(copy.parent.rglob(f"*{MARK}*"))


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--collection", "towns", "--encoder", "onnx-int8"],
        ["export", "onnx-int8", "again", "--format", "onnx"],
    ],
    ids=lambda words: words[0],
)
def test_a_graph_is_no_checkpoint(words, there, capsys):
    assert "is an exported graph, which can only score" in failed(capsys, *words)


@pytest.mark.parametrize(
    ("kind", "make", "expected"),
    [
        ("mpnet", make_cross_encoder, "MPNet"),
        ("deberta-v2", make_cross_encoder, "DebertaV2"),
        ("qwen3", make_decoder, "a Qwen3ForSequenceClassification is a decoder, which"),
    ],
)
def test_an_encoder_with_its_own_attention_and_a_decoder_are_refused(kind, make, expected, tmp_path, capsys):
    pytest.importorskip("onnx")
    checkpoint = make(kind, tmp_path / kind, WORDS)
    line = failed(capsys, "export", str(checkpoint), str(tmp_path / "graph"), "--format", "onnx")
    assert "cannot be exported" in line
    assert expected in line
    assert not (tmp_path / "graph").exists()


INT8 = ["--int8"]


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("onnx", ["export", "model", "graph", "--format", "onnx", *INT8]),
        ("openvino", ["export", "model", "graph", "--format", "openvino", *INT8]),
        ("nncf", ["export", "model", "graph", "--format", "openvino", *INT8]),
        ("onnxruntime", ["score", "onnx-int8", "first.run", *SCORE]),
        ("openvino", ["score", "openvino-int8", "first.run", *SCORE]),
    ],
)
def test_a_missing_package_is_named(package, words, there, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    line = failed(capsys, *words)
    assert f"needs the package {package}" in line
    assert line.endswith('pip install "ir-rerank[cpu]"')


def test_a_folder_that_is_there_is_refused(there, capsys):
    assert "already exists; expected a new folder" in failed(capsys, "export", "model", "towns", "--format", "onnx")


def test_a_failed_export_leaves_nothing(there, tmp_path, capsys, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such operation")

    monkeypatch.setattr("torch.onnx.export", broken)
    line = failed(capsys, "export", "model", str(tmp_path / "graph"), "--format", "onnx")
    assert "a BertForSequenceClassification cannot be exported to onnx: no such operation" in line
    assert list(tmp_path.iterdir()) == []
