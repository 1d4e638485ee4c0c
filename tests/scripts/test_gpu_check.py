"""`scripts/gpu-check` at small sizes on the CPU: all checks pass, and what is wrong is found."""

import json
import re
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rerank.models import encoder_inputs
from rerank.training import loop
from scripts.benchmarks import scoring, timing
from scripts.gpu_check import gradients, groups, memory, scores, training
from scripts.gpu_check.groups import run_apart
from scripts.gpu_check.report import main
from scripts.gpu_check.setting import Setting
from tests.support.small_collection import exit_code, failed

CPU = Setting("cpu", False)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs the named groups, and gives the exit code, the rows as (check, measured, bound, result), and the file."""

    def in_this_process(setting, encoder, folder):
        """A stand-in for torchrun, whose processes would take ten seconds."""
        training.main("cpu", "small", str(encoder), str(folder))
        result = json.loads(Path(folder, training.RESULT).read_text())
        return torch.tensor(result["scores"]), result["processes"] + 1

    def run_named(*names):
        monkeypatch.setattr(groups, "GROUPS", {name: groups.GROUPS[name] for name in names})
        monkeypatch.setattr(training, "_together", in_this_process)
        monkeypatch.setattr(timing, "REPEATS", 1)
        monkeypatch.setitem(scoring.BATCHES, "cpu", (32,))
        code = exit_code("--device", "cpu", "--out", str(tmp_path / "check.md"), main=main)
        rows = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
        rows = [row for row in rows if row[-1] in ("pass", "FAIL", "-")]
        return code, rows, (tmp_path / "check.md").read_text()

    return run_named


def test_everything_passes_on_a_cpu(run):
    code, rows, written = run(*groups.GROUPS)
    assert (code, [row for row in rows if row[-1] == "FAIL"]) == (0, [])
    for what in (
        "scores, tiny, float32",
        "packed against padded, tiny, bf16",
        "gradient, tiny, float32, 2 × 4 documents",
        "gradient, tiny, float32, a list of 150 documents in parts",
        "gradient, tiny, float32, 16 documents in parts with dropout",
        "out of memory in a step (planted)",
        "out of memory in scoring: difference",
        "resumed against uninterrupted",
        "two processes against one",
        "training, rerank: documents/s",
        "training, CEDR-style loop: rerank is × faster",
        "scoring, predict, batch 32: rerank is × faster",
        "scoring, rerank, documents up to 800 tokens: MFU",
        "the paper's table on Robust04",
        "time of all checks",
    ):
        assert any(row[0].startswith(what) for row in rows), what
        assert what in written
    assert len([row for row in rows if row[-1] == "pass"]) == 16
    assert f"- torch: {version('torch')}" in written


def plant_wrong_score(monkeypatch):
    score = scores.score_candidates

    def one_wrong(model, builder, candidates, *others):
        found = score(model, builder, candidates, *others)
        documents = found[candidates[0].query_id]
        spread = max(s for of_query in found.values() for s in of_query.values()) - min(documents.values())
        documents[candidates[0].doc_ids[0]] += 0.2 * spread
        return found

    monkeypatch.setattr(scores, "score_candidates", one_wrong)


def plant_attention_across_passages(monkeypatch):
    passages = encoder_inputs.Passages

    def mixed(lengths, *others):  # those that a model is tried with are four at most
        return passages(lengths[::-1] if len(lengths) > 4 else lengths, *others)

    monkeypatch.setattr(encoder_inputs, "Passages", mixed)


def plant_gradient_without_a_list(monkeypatch):
    whole = gradients.accumulate_gradient

    def without_first(model, batch, loss, *others):
        def of_others(scores, labels, mask):
            kept = torch.arange(len(scores)) > 0 if len(scores) > 1 else torch.zeros(1)
            return loss(scores, labels, mask) * kept

        return whole(model, batch, of_others, *others)

    monkeypatch.setattr(gradients, "accumulate_gradient", without_first)


def plant_state_without_adams_moments(monkeypatch):
    restore = loop.restore_state

    def without_moments(folder, trained, *others):
        found = restore(folder, trained, *others)
        trained.optimizer.state.clear()
        return found

    monkeypatch.setattr(loop, "restore_state", without_moments)


def plant_error(monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(scores, "start_passages", broken)


@pytest.mark.parametrize(
    ("group", "plant", "failures"),
    [
        ("scores", plant_wrong_score, 2),
        ("scores", plant_attention_across_passages, 4),
        ("scores", plant_error, 1),
        ("gradients", plant_gradient_without_a_list, 4),
        ("training", plant_state_without_adams_moments, 1),
    ],
)
def test_a_fault_is_found(run, monkeypatch, group, plant, failures):
    plant(monkeypatch)
    code, rows, written = run(group)
    found = [row for row in rows if row[-1] == "FAIL"]
    assert (code, len(found)) == (1, failures)
    assert written.splitlines()[0].endswith("FAIL")
    if group == "training":
        assert float(found[0][1]) > max(training.BOUNDS.values())  # a GPU's bound finds it too
    if plant is plant_error:
        assert found[0][:2] == ["scores", "RuntimeError: CUDA error: an illegal memory access was encountered"]
        assert "in broken" in written


def test_on_cuda_memory_is_capped_between_the_small_and_the_whole_work(monkeypatch):
    """With stand-ins for CUDA: what the allocator holds is the tokens of a call."""
    held, caps = [0], []
    stand_ins = {
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device: held.__setitem__(0, 0),
        "max_memory_reserved": lambda device: held[0],
        "current_device": lambda: 0,
        "get_device_properties": lambda device: SimpleNamespace(total_memory=1000),
        "set_per_process_memory_fraction": lambda fraction, device: caps.append(fraction),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)

    def work(budget):
        held[0] = budget.tokens
        return torch.zeros(1)

    with memory.short_of_memory(work, 800, torch.nn.Identity(), torch.device("cuda")) as how:
        assert caps == [(100 + 800) / 2 / 1000]
        assert "cap of" in how
    assert caps[1:] == [1.0]


def test_a_group_in_a_process_of_its_own():
    """As on a GPU: its rows come back, here that of an error; it has only so much time."""
    (row,) = run_apart("rows", CPU, 600)
    assert (row.result, "has no attribute 'check'" in row.measured, "Traceback" in row.details) == ("FAIL", True, True)
    (row,) = run_apart("scores", CPU, 0.1)
    assert (row.measured, row.result) == ("not ended", "FAIL")
    (row,) = run_apart("scores", CPU, -1)
    assert (row.measured, row.result) == ("not run: the time of all checks is over", "FAIL")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--device auto: PyTorch finds no GPU here"),
        (["--device", "cuda"], "PyTorch finds no CUDA GPU here"),
        (["--device", "cpu", "--out", "."], "--out .: is a folder"),
    ],
)
def test_a_mistake_is_one_line(capsys, monkeypatch, tmp_path, words, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert expected in partial(failed, main=main)(capsys, *words)
