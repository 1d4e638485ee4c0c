"""The study of SmoothI's alpha: its variants, its scripts on small collections, and its table."""

import json
import runpy
import sys
from argparse import Namespace

import pytest
import torch

from rerank.losses import LABELS, LOSSES, exact_metric, smoothi
from scripts.paper import alpha_text, alpha_variants
from scripts.paper.alpha_tables import Row, chosen, result, table
from tests.support.paths import ROOT
from tests.support.small_features import write_folds_of_features
from tests.support.small_sweep import write_cell, write_collection

SCRIPTS = ROOT / "scripts" / "paper"
METRICS = pytest.mark.parametrize("metric", ["ndcg", "ndcg@3", "ap", "p@3"])


@pytest.fixture
def registered():
    """The variants, until the end of the test."""
    alpha_variants.register()
    yield
    for variant in alpha_variants.VARIANTS:
        del LOSSES[variant.__name__], LABELS[variant.__name__]


def random_lists() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Twelve lists of two to eight documents, NaN on the padding."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (12, 8), generator=generator)
    labels[:, 0] = 1
    mask = torch.arange(8) < torch.randint(2, 9, (12, 1), generator=generator)
    return scores.masked_fill(~mask, torch.nan).requires_grad_(), labels, mask


def value_and_gradient(loss, *lists, **settings):
    values = loss(*lists, **settings)
    return values.detach(), torch.autograd.grad(values.sum(), lists[0])[0]


@METRICS
def test_the_relative_alpha_is_alpha_over_the_standard_deviation(metric):
    scores, labels, mask = random_lists()
    given = value_and_gradient(alpha_variants.smoothi_relative, scores, labels, mask, metric=metric, alpha=3.0)
    for i in range(len(scores)):
        alpha = 3.0 / scores[i][mask[i]].std(unbiased=False).item()
        one = [lists[i : i + 1] for lists in (scores.detach(), labels, mask)]
        one[0].requires_grad_()
        expected = value_and_gradient(smoothi, *one, metric=metric, alpha=alpha)
        torch.testing.assert_close([given[0][i : i + 1], given[1][i : i + 1]], list(expected))


@METRICS
def test_the_scale_free_loss_does_not_change_with_the_scale_and_does_not_move_it(metric):
    scores, labels, mask = random_lists()
    loss = alpha_variants.smoothi_scale_free
    values, gradient = value_and_gradient(loss, scores, labels, mask, metric=metric, alpha=3.0)
    torch.testing.assert_close(loss(7 * scores, labels, mask, metric=metric, alpha=3.0), values)
    relative = value_and_gradient(alpha_variants.smoothi_relative, scores, labels, mask, metric=metric, alpha=3.0)
    torch.testing.assert_close(values, relative[0])
    centred = scores.detach().nan_to_num() - scores.detach().nan_to_num().sum(1, keepdim=True) / mask.sum(1)[:, None]
    radial = (gradient * centred.masked_fill(~mask, 0)).sum(dim=1)
    torch.testing.assert_close(radial, torch.zeros_like(radial), rtol=0, atol=1e-9)
    assert (relative[1] * centred.masked_fill(~mask, 0)).sum(dim=1).abs().max() > 0.01


@METRICS
@pytest.mark.parametrize("alpha", [1.0, 10.0, 1000.0])
def test_the_bounded_metric_is_at_most_the_best_one(metric, alpha):
    labels = torch.tensor([[2, 2, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]])
    scores = labels.double()
    best = exact_metric(scores, labels, metric=metric)
    bounded = 1 - alpha_variants.smoothi_bounded(scores, labels, metric=metric, alpha=alpha)
    assert (bounded <= best + 1e-12).all()
    if alpha >= 10:
        assert ((1 - smoothi(scores, labels, metric=metric, alpha=alpha))[:2] > best[:2]).any()
    apart = torch.tensor([[6.0, 5, 4, 3, 2, 1]], dtype=torch.float64)
    plain, sharp = (f(apart, labels[:1], metric=metric, alpha=1e8) for f in (smoothi, alpha_variants.smoothi_bounded))
    torch.testing.assert_close(plain, sharp)


def test_annealing_ends_at_alpha():
    scores, labels, mask = random_lists()
    alpha_variants.restart()
    values = [alpha_variants.smoothi_annealed(scores, labels, mask, alpha=100.0, start=1.0, lists=24) for _ in range(4)]
    for value, alpha in zip(values, (1.0, 10.0, 100.0, 100.0), strict=True):
        torch.testing.assert_close(value, smoothi(scores, labels, mask, alpha=alpha))
    alpha_variants.restart()
    alpha_variants.smoothi_annealed(scores.detach(), labels, mask)
    assert alpha_variants.seen_lists == 0


def test_validation_chooses_for_each_fold_and_seed():
    rows = [
        Row("smoothi=1", "all", 0, "1", 3, 0.5, {"q1": 0.0}),
        Row("smoothi=3", "all", 0, "1", 3, 0.6, {"q1": 1.0}),
        Row("smoothi=1", "all", 0, "2", 3, 0.9, {"q2": 0.5}),
        Row("smoothi=3", "all", 0, "2", 3, 0.1, {"q2": 1.0}),
        Row("smoothi=1", "all", 1, "1", 3, 0.9, {"q1": 0.5}),
        Row("smoothi=3", "all", 1, "1", 3, 0.1, {"q1": 1.0}),
    ]
    picked = chosen(rows)
    assert [(row.arm, row.seed, row.fold) for row in picked] == [
        ("smoothi=3", 0, "1"), ("smoothi=1", 0, "2"), ("smoothi=1", 1, "1"),
    ]  # fmt: skip
    assert result(picked) == ([0.75, 0.5], {"q1": 0.75, "q2": 0.5})


def test_the_table_leaves_out_seeds_without_all_folds_and_without_all_alphas():
    values = {
        ("smoothi=1", 0): (0.5, 0.5),
        ("smoothi=1", 1): (0.2, 0.4),
        ("smoothi=3", 0): (0.9, 0.1),
        ("hinge", 0): (0.0,),
    }
    rows = [
        Row(arm, "all", seed, fold, 3, value, {f"q{fold}": value})
        for (arm, seed), of_folds in values.items()
        for fold, value in zip("12", of_folds, strict=False)
    ]
    lines = [line.split("  ") for line in table(rows, "ndcg@10").splitlines()]
    found = {words[0]: words[-1] for words in lines if len(words) > 1}
    assert found == {
        "arm": "all",
        "smoothi=1": "0.4000 ± 0.1000 (0.4000)",
        "smoothi=3": "0.5000 (0.5000)",
        "smoothi, chosen": "0.7000 (0.7000)",  # 0.9 of smoothi=3 on fold 1 and 0.5 of smoothi=1 on fold 2
    }


def test_the_study_of_a_feature_set_is_resumed(registered, tmp_path, monkeypatch, capsys):
    write_folds_of_features(tmp_path / "letor")
    out = tmp_path / "alpha.jsonl"
    words = ["letor", out, "--seeds", 0, "--sizes", 4, "--arms", "smoothi=3"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["alpha_features.py", *map(str, words)])
    runpy.run_path(str(SCRIPTS / "alpha_features.py"), run_name="__main__")
    rows = [Row(**json.loads(line)) for line in out.read_text().splitlines()]
    assert [row.arm for row in rows] == ["smoothi=3"] * 5
    assert "smoothi, chosen" in capsys.readouterr().out
    out.write_text("".join(line + "\n" for line in out.read_text().splitlines()[:-1]))
    monkeypatch.setattr(sys, "argv", ["alpha_features.py", *map(str, words)])
    runpy.run_path(str(SCRIPTS / "alpha_features.py"), run_name="__main__")
    assert [Row(**json.loads(line)) for line in out.read_text().splitlines()] == rows


def test_the_study_of_a_text_collection_trains_each_fold_and_reads_its_runs(tmp_path, monkeypatch):
    place = tmp_path / "runs" / "towns"
    place.mkdir(parents=True)
    folds = write_collection(place)
    calls = []

    def rerank(words):
        calls.append(words)
        assert alpha_variants.seen_lists == 0
        alpha_variants.seen_lists = 7
        name, fold = words[words.index("--name") + 1], words[words.index("--fold") + 1]
        if fold == "1":
            write_cell(place, name, folds, [1] * 5, [1, 0, 1, 1, 1])
        facts = {"config": {"lists": {"relevant": 2, "non_relevant": 4}}, "best_epoch": 3, "best_valid": 0.5}
        (place / name / f"fold{fold}" / "manifest.json").write_text(json.dumps(facts))

    monkeypatch.setattr(alpha_text, "main", rerank)
    given = Namespace(collection="data/towns", encoder="tiny", output=str(tmp_path / "runs"), folds=list("12345"))
    rows = alpha_text.train(given, ["--epochs", "2"], "smoothi_relative=6", 1, "")
    alpha_text.train(given, ["--epochs", "2"], "hinge", 0, "2+all")
    alpha_variants.restart()
    assert [(row.fold, row.size, row.epoch, row.valid) for row in rows] == [(f, "2+4", 3, 0.5) for f in "12345"]
    assert [min(row.test.values()) for row in rows] == pytest.approx([1, 0.38685, 1, 1, 1], abs=1e-5)
    assert [words[words.index("--fold") + 1] for words in calls] == list("1234512345")
    assert calls[0][-2:] == ["--epochs", "2"]
    assert {"smoothi_relative", "--loss.alpha", "6.0", "smoothi_relative-6.1"} <= set(calls[0])
    assert "--lists.relevant" not in calls[0]
    size = calls[5].index("--lists.relevant")
    assert calls[5][size : size + 4] == ["--lists.relevant", "2", "--lists.non-relevant", "all"]
    assert "hinge.2-all.0" in calls[5]


def test_the_excess_is_printed_and_drawn(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    script = runpy.run_path(str(SCRIPTS / "smooth_ndcg_excess.py"))
    scores = script["two_scores"](2, 6)
    (value,) = script["smooth_ndcg"](scores, 2, torch.tensor([1e6]))
    assert value == pytest.approx(script["bound"](2, 6), rel=1e-6)
    assert script["most_of_one"](scores, 1e6) == pytest.approx(3, rel=1e-6)
    right, swapped = script["norms"](2, 6, 10.0)
    assert right < swapped / 5
