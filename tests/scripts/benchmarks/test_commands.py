"""`python -m scripts.benchmarks ...` at tiny sizes: the right rows in table and JSON. No time is asserted."""

import importlib.util
import json

import pytest
import torch

from rerank.losses import LOSSES
from scripts.benchmarks import losses as bench_losses
from scripts.benchmarks import scoring, timing, training
from scripts.benchmarks.commands import main
from scripts.benchmarks.losses import BASELINE, peak_bytes
from scripts.benchmarks.memory import Peak
from tests.support.small_collection import failed


@pytest.fixture(autouse=True)
def one_product(monkeypatch):
    """The reference is one matrix product, which is of no use as a measurement and takes a tenth of a second."""
    monkeypatch.setattr(timing, "REPEATS", 1)


PRODUCTS = ["matrix product, 2048 × 2048", "its layers' products, 4096 tokens"]


@pytest.fixture
def in_this_process(monkeypatch):
    """Memory is not measured in new processes, each of which takes seconds to start; the loss `ot` runs out of it."""

    def call(function, *arguments):
        return None if arguments[0] == "ot" else function(*arguments)

    for module in (bench_losses, training):
        monkeypatch.setattr(module, "in_fresh_process", call)


def test_losses(in_this_process, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench_losses, "LEAST_SECONDS", 0.0)
    out = tmp_path / "losses.json"
    main(["losses", "--lists", "2", "--documents", "3", "5", "--rounds", "2", "--out", str(out)])
    table = capsys.readouterr().out
    kept = json.loads(out.read_text())
    assert [(row["loss"], row["lists × documents"]) for row in kept["rows"]] == [
        (name, f"2 × {count}") for count in (3, 5) for name in [BASELINE, *LOSSES]
    ]
    for row in kept["rows"]:
        assert row["loss"] in table
        if row["loss"] == "ot":
            assert row["ms"] == "out of memory"
        else:
            assert row["ms"] > 0
            assert len(row["seconds"]) == 2
            assert row["peak MB"] >= 0
    assert [row["loss"] for row in kept["rows"] if f"{BASELINE} / it" in row] == ["smoothi"] * 2
    assert kept["settings"]["documents"] == [3, 5]


def test_a_loss_has_memory_beyond_scores_labels_and_gradient(monkeypatch):
    monkeypatch.setattr(bench_losses, "peak_memory", lambda work, device: (work(), Peak(1000, 9000))[1])
    assert peak_bytes("hinge", 2, 5, "cpu") == 8000 - 2 * 5 * 4


def test_scoring(cross_encoder_folder, tmp_path, capsys):
    out = tmp_path / "scoring.json"
    words = ["--encoder", str(cross_encoder_folder), "--documents", "8", "--rounds", "1", "--out", str(out)]
    main(["scoring", *words])
    printed = capsys.readouterr().out
    rows = {row["what"]: row for row in json.loads(out.read_text())["rows"]}
    peers = [what for what in rows if what.startswith("predict, batch")]
    graphs = [what for what in rows if what.startswith("exported")]
    assert [what for what in rows if what not in peers] == [*PRODUCTS, scoring.OURS, *graphs, scoring.OURS_LONG]
    assert graphs or 'pip install "ir-rerank[cpu]"' in printed
    assert all(rows[what][scoring.OURS_FASTER] > 0 for what in graphs)
    if importlib.util.find_spec("sentence_transformers") is None:
        assert not peers
        assert "pip install 'ir-rerank[peers]'" in printed
    else:
        assert "predict, batch 32" in peers
        assert 1 <= len(peers) <= 2
        assert all(rows[what][scoring.OURS_FASTER] > 0 for what in peers)
    assert rows[PRODUCTS[0]]["of the product"] == 1
    for what in [scoring.OURS, scoring.OURS_LONG, *peers]:
        assert rows[what]["documents/s"] == pytest.approx(8 / rows[what]["seconds"][0])
        assert rows[what]["tokens/s"] > rows[what]["documents/s"]
        assert rows[what]["useful GFLOP/s"] > 0


def test_exports(cross_encoder_folder, tmp_path):
    pytest.importorskip("nncf")
    out = tmp_path / "exports.json"
    main(["exports", "--encoder", str(cross_encoder_folder), "--documents", "8", "--rounds", "1", "--out", str(out)])
    rows = {row["what"]: row for row in json.loads(out.read_text())["rows"]}
    graphs = [f"exported, {form}, {precision}" for form in ("onnx", "openvino") for precision in ("float32", "int8")]
    assert list(rows) == ["rerank", *graphs]
    assert all(row["documents/CPU s"] == pytest.approx(8 / row["seconds"][0]) for row in rows.values())


def test_training(folder, in_this_process, tmp_path, capsys):
    out = tmp_path / "training.json"
    main(["training", "--encoder", str(folder), "--lists", "2", "--rounds", "1", "--out", str(out)])
    printed = capsys.readouterr().out
    kept = json.loads(out.read_text())
    rows = {row["what"]: row for row in kept["rows"]}
    assert list(rows) == [*PRODUCTS, training.OURS, training.BASELINE, training.SCORING]
    assert all(rows[what]["documents/s"] == pytest.approx(8 / rows[what]["seconds"][0]) for what in list(rows)[2:])
    assert all(rows[what]["peak MB"] > 0 for what in (training.OURS, training.BASELINE))
    assert rows[training.BASELINE][training.OURS_FASTER] == pytest.approx(
        rows[training.OURS]["documents/s"] / rows[training.BASELINE]["documents/s"]
    )
    hours = training.paper_hours(rows[training.OURS]["documents/s"], rows[training.SCORING]["documents/s"])
    assert kept["settings"]["paper_hours"] == pytest.approx(hours)
    assert f"The paper's whole table at these rates: {hours:,.1f} h" in printed


def test_both_train_on_the_same_documents_and_change_their_weights(folder, monkeypatch):
    from accelerate import Accelerator

    workload = training.make_workload(folder, 9, 4)
    begun = {name: value.clone() for name, value in workload.model.state_dict().items()}
    training.our_steps(workload, Accelerator(cpu=True))(workload.candidates)
    assert not torch.equal(workload.model.head.weight, begun["head.weight"])
    seen = []
    monkeypatch.setattr(training, "cedr_step", lambda model, optimizer, lists, loss, dtype: seen.append(lists))
    training.cedr_steps(workload, torch.device("cpu"))(workload.candidates)
    assert [len(lists) for lists in seen] == [8, 1]
    documents = [document for lists in seen for _, of_list, _ in lists for document in of_list]
    assert documents == [workload.builder.documents[d].tolist() for c in workload.candidates for d in c.doc_ids]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["losses", "--lists", "0"], "expected 1 or more"),
        (["losses", "--documents", "0"], "expected 1 or more"),
        (["scoring", "--rounds", "0"], "--rounds: got 0"),
        (["scoring", "--documents", "1"], "--documents: got 1, expected 4 or more"),
        (["scoring", "--encoder", "nowhere"], "nowhere"),
        (["training", "--lists", "-1"], "--lists: got -1"),
        (["training", "--out", "nowhere/out.json"], "--out nowhere/out.json"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, expected):
    assert expected in failed(capsys, *words, main=main)
