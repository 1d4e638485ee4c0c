"""`scripts/gpu-check` at small sizes on the CPU: all checks pass, and what is wrong is found."""

import re
from functools import partial
from importlib.metadata import version

import pytest
import torch

from scripts.gpu_check import gradients, groups, lists_training, packing, scores
from scripts.gpu_check.command import main
from tests.support.small_collection import failed


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs the named groups, and gives the exit code, the rows as (check, measured, bound, result), and the file."""

    def run_named(*names):
        monkeypatch.setattr(groups, "GROUPS", {name: groups.GROUPS[name] for name in names})
        with pytest.raises(SystemExit) as ended:
            main(["--device", "cpu", "--out", str(tmp_path / "check.md")])
        printed = capsys.readouterr().out
        rows = [re.split(r"\s{2,}", line) for line in printed.splitlines()]
        rows = [row for row in rows if row[-1] in ("pass", "FAIL", "-")]
        return ended.value.code, rows, (tmp_path / "check.md").read_text()

    return run_named


def failures(rows):
    return [check for check, *_, result in rows if result == "FAIL"]


def test_everything_passes_on_a_cpu(run):
    code, rows, written = run(*groups.GROUPS)
    assert (code, failures(rows)) == (0, [])
    checks = "\n".join(row[0] for row in rows)
    for what in (
        "scores, tiny, float32",
        "scores, tiny, bf16",
        "gradient, tiny, float32, 2 × 4 documents",
        "gradient, tiny, float32, a list of 150 documents in parts",
        "packed against padded, tiny, bf16",
        "out of memory in a step (planted)",
        "out of memory in scoring: difference",
        "resumed against uninterrupted",
        "two processes against one",
        "training, tiny: documents/s",
        "training: × CEDR-style loop",
        "scoring: tokens/s",
        "CrossEncoder.predict",
        "the paper's table on Robust04",
        "time of all checks",
    ):
        assert what in checks
        assert what in written
    assert len([row for row in rows if row[-1] == "pass"]) == 15
    assert f"- torch: {version('torch')}" in written


def test_a_wrong_score_is_found(run, monkeypatch):
    score = scores.score_candidates

    def one_wrong(model, builder, candidates, *others):
        found = score(model, builder, candidates, *others)
        documents = found[candidates[0].query_id]
        spread = max(s for of_query in found.values() for s in of_query.values()) - min(documents.values())
        documents[candidates[0].doc_ids[0]] += 0.05 * spread
        return found

    monkeypatch.setattr(scores, "score_candidates", one_wrong)
    code, rows, written = run("scores")
    assert code == 1
    assert len(failures(rows)) == 2
    assert "cpu" in written.splitlines()[0]
    assert written.splitlines()[0].endswith("FAIL")


def test_a_gradient_without_one_list_is_found(run, monkeypatch):
    whole = gradients.accumulate_gradient

    def without_first(model, batch, loss, *others):
        def of_others(scores, labels, mask):
            kept = torch.arange(len(scores)) > 0 if len(scores) > 1 else torch.zeros(1)
            return loss(scores, labels, mask) * kept

        return whole(model, batch, of_others, *others)

    monkeypatch.setattr(gradients, "accumulate_gradient", without_first)
    code, rows, _ = run("gradients")
    assert (code, len(failures(rows))) == (1, 3)


def test_attention_across_passages_is_found(run, monkeypatch):
    from rerank.models import cross_encoder

    def one_passage(lengths, offsets, *others, **named):
        return cross_encoder_passages([sum(lengths)], offsets, *others, **named)

    cross_encoder_passages = cross_encoder.Passages
    monkeypatch.setattr(cross_encoder, "Passages", one_passage)
    code, rows, _ = run("packing")
    assert (code, len(failures(rows))) == (1, 2)


def test_a_state_without_the_moments_of_adam_is_found(run, monkeypatch):
    from rerank.training import loop

    restore = loop.restore_state

    def without_moments(folder, model, optimizer, *others):
        found = restore(folder, model, optimizer, *others)
        optimizer.state.clear()
        return found

    monkeypatch.setattr(loop, "restore_state", without_moments)
    code, rows, _ = run("resume")
    assert code == 1
    (row,) = [row for row in rows if row[0].startswith("resumed against")]
    assert float(row[1]) > max(lists_training.TRAINED_BOUNDS.values())  # a GPU's bound finds it too


def test_an_error_is_a_row_and_the_other_groups_are_run(run, monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(packing, "passage_scores", broken)
    code, rows, written = run("packing", "scores")
    assert code == 1
    assert rows[0][:2] == ["packing", "RuntimeError: CUDA error: an illegal memory access was encountered"]
    assert [row[-1] for row in rows] == ["FAIL", "pass", "pass", "-"]
    assert "Traceback" in written
    assert "in broken" in written


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
