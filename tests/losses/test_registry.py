"""One decorated function is a loss: in LOSSES, in the command line's flags and help, and trainable."""

import inspect
import json
import tomllib
from pathlib import Path

import pytest
import torch
from torch import Tensor

import rerank.losses
from rerank.cli.main import main
from rerank.config.losses import HELP, help_of, losses
from rerank.losses import LABELS, LOSSES, create, loss, prepare_inputs
from rerank.utils.registry import hyperparameters
from tests.support.small_collection import failed


@pytest.fixture
def toy():
    """A loss that is registered while the program runs, as in a notebook."""

    @loss("toy")
    def toy_loss(scores: Tensor, labels: Tensor, mask: Tensor | None = None, toy_scale: float = 1.0, ranks: int = 3):
        """Logistic loss of each document.

        Args:
            scores: (lists, documents).
            labels: (lists, documents).
            mask: (lists, documents).
            toy_scale: inverse temperature, above 0.
            ranks: ignored.
        """
        if toy_scale <= 0:
            raise ValueError(f"toy_scale must be above 0, got {toy_scale}")
        scores, labels, mask, degenerate = prepare_inputs(scores, labels, mask)
        targets = labels.clamp_max(1)
        cost = torch.nn.functional.binary_cross_entropy_with_logits(toy_scale * scores, targets, reduction="none")
        return cost.masked_fill(~mask, 0).sum(dim=1).masked_fill(degenerate, 0)

    yield toy_loss
    del LOSSES["toy"], LABELS["toy"]


@pytest.fixture
def here(letor):
    """The feature set, with settings of the loss."""
    with (letor / "letor.toml").open("a") as settings:
        settings.write('[loss]\nname = "toy"\ntoy_scale = 3\n')


def test_a_registered_function_is_trained_from_the_command_line(toy, here):
    """Its flags override the file's settings one by one."""
    main(["train", "--config", "letor.toml", "--fold", "1", "--loss.ranks", "2"])
    experiment, settings = Path("runs/letor/toy"), {"name": "toy", "toy_scale": 3.0, "ranks": 2}
    assert tomllib.loads((experiment / "config.toml").read_text())["loss"] == settings
    assert json.loads((experiment / "fold1" / "manifest.json").read_text())["config"]["loss"] == settings
    assert (experiment / "fold1" / "test.run").is_file()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--loss.toy-scale", "x"], "--loss toy: toy_scale: expected float, got 'x'"),
        (["--loss.ranks", "2.5"], "--loss toy: ranks: expected int, got '2.5'"),
        (["--loss.ranks.all", "2"], "expected --loss.KEY, and one value"),
        (["--loss.toy-scale", "0"], "--loss toy: toy_scale must be above 0, got 0.0"),
        (["--loss.toy-scale", "inf"], "--loss.toy-scale: got inf, expected a finite number"),
        (["--loss.toy-scal", "1"], "--loss toy: has no hyperparameter toy_scal; it takes toy_scale, ranks"),
        (["--loss.alpha", "1"], "--loss toy: has no hyperparameter alpha; it takes toy_scale, ranks"),
        (["--loss", "toi"], "--loss toi: no such loss; did you mean toy?"),
    ],
)
def test_a_wrong_flag_is_one_line(toy, here, capsys, words, expected):
    assert expected in failed(capsys, "train", "--config", "letor.toml", "--fold", "1", *words)


def test_the_help_lists_the_losses_and_the_defaults_of_each_hyperparameter(toy, capsys):
    main(["train", "--help", "all"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--loss.toy-scale FLOAT Inverse temperature, above 0. [default of toy: 1.0]" in text
    assert "[default of adr_mse, approx, smoothi: 1.0]" in text
    assert "--loss.stop-gradient Whether p is constant in the backward pass; --loss.no-stop-gradient" in text
    main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "smoothi (metric alpha delta stop_gradient), softmax, softsort (metric temperature), toy (toy_scale" in text


def test_names_of_the_package_follow(toy):
    assert rerank.losses.toy is toy
    assert set(LOSSES) - {"toy"} <= set(rerank.losses.__all__)
    for name in rerank.losses.__all__:
        assert not inspect.ismodule(getattr(rerank.losses, name)), name
    with pytest.raises(AttributeError, match="nothing"):
        _ = rerank.losses.nothing


def test_the_table_of_help_and_files_says_what_the_functions_are():
    assert losses() == {name: hyperparameters(LOSSES[name]) for name in sorted(LOSSES)}
    assert {key for defaults in losses().values() for key in defaults} == set(HELP)
    for function in LOSSES.values():
        docstring = inspect.getdoc(function)
        assert len(docstring.partition("\n")[0]) < 110, "the first line is the row of the loss in a table"
        assert "\nReference:\n" in docstring
        for key in hyperparameters(function):
            assert f"    {key}: " in docstring


def test_the_help_of_beta_names_each_metric_that_it_changes():
    scores, labels = torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([[0, 1, 1]])
    for metric in ("p@2", "rr@2", "ndcg@2", "rr", "ndcg", "ap"):
        soft, sharp = (create("approx", metric=metric, beta=beta)(scores, labels) for beta in (1.0, 100.0))
        named = "cut-off at K" in HELP["beta"] if "@" in metric else f" {metric}" in HELP["beta"]
        assert named == (not torch.equal(soft, sharp))


def test_a_loss_that_is_registered_later_is_in_the_table_of_help(toy):
    assert losses()["toy"] == {"toy_scale": 1.0, "ranks": 3}
    assert help_of("toy_scale") == "Inverse temperature, above 0."


def test_create_checks_names_types_and_values():
    scores, labels = torch.tensor([[0.1, 0.7, 0.3]]), torch.tensor([[1, 0, 2]])
    created = create("approx", metric="ap", alpha=10)
    torch.testing.assert_close(created(scores, labels), LOSSES["approx"](scores, labels, metric="ap", alpha=10.0))
    assert created(scores, labels, None).shape == (1,)
    for name, given, expected in [
        ("smothi", {}, "smothi: no such loss; did you mean smoothi?"),
        ("xyz", {}, "xyz: no such loss; expected one of adr_mse, approx, bce, distill_kl"),
        ("hinge", {"margn": 1}, "hinge: has no hyperparameter margn; it takes margin, pairs"),
        ("listnet", {"alpha": 1}, "listnet: has no hyperparameter alpha; it takes none"),
        ("smoothi", {"alpha": True}, "alpha: expected float, got True"),
        ("smoothi", {"stop_gradient": 0}, "stop_gradient: expected bool, got 0"),
        ("listap", {"bins": 2.5}, "bins: expected int, got 2.5"),
        ("smoothi", {"delta": 0.7}, "delta must"),
        ("ot", {"epsilon": 5e-324}, "ot: got {'epsilon': 5e-324}: too large or too small to compute"),
        ("lambda_loss", {"metric": f"p@{10**20}"}, "lambda_loss: metric 'p@100000000000000000000': expected p@K"),
    ]:
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            create(name, **given)
        assert expected in str(raised.value)


def test_a_function_without_the_parameters_of_a_loss_is_refused():
    with pytest.raises(TypeError, match="expected the parameters scores, labels, mask=None"):

        @loss("other")
        def wrong_order(labels: Tensor, scores: Tensor) -> Tensor:
            return scores

    with pytest.raises(TypeError, match="a default and one of the types float, int, bool, str, got"):

        @loss("other")
        def no_flag(
            scores: Tensor, labels: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
        ) -> Tensor:
            return scores

    with pytest.raises(TypeError, match="hyperparameters with a default"):

        @loss("other")
        def no_default(scores: Tensor, labels: Tensor, mask: Tensor | None, alpha: float) -> Tensor:
            return scores

    assert "other" not in LOSSES


def test_a_loss_says_what_its_labels_are(toy):
    assert set(LABELS) == set(LOSSES)
    assert (LABELS["toy"], LABELS["margin_mse"]) == ("judgments", "scores")


def test_a_name_is_given_once(toy):
    with pytest.raises(ValueError, match=r"loss 'hinge' is registered already, by rerank.losses.pairwise.hinge"):
        loss("hinge")(toy)
    assert loss("toy")(toy) is toy  # a notebook's cell may run again
