"""Poolings and their registry."""

import pytest
import torch

from rerank.cli.main import main
from rerank.config import Config, EncoderSettings, losses
from rerank.experiments.checks import check_training
from rerank.models.checkpoints import open_cross_encoder, open_trained_cross_encoder, save_cross_encoder
from rerank.models.pooling import POOLINGS, pooling
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS, make_inputs, make_texts, scores_of
from tests.support.tiny_encoders import make_encoder


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mean", [2.0, 5.0, 1.0]), ("first", [1.0, 5.0, 2.0]), ("max", [3.0, 5.0, 2.0]), ("sum", [4.0, 5.0, 3.0])],
)
def test_pooling_works_within_documents(name, expected):
    scores, documents = torch.tensor([1.0, 3.0, 5.0, 2.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 2, 2, 2])
    assert POOLINGS[name](scores, documents).tolist() == expected


def test_softmax_is_the_weighted_mean_of_a_loop():
    torch.manual_seed(0)
    documents = torch.arange(9).repeat_interleave(torch.randint(1, 6, (9,)))
    for scale in (1, 300):  # whose exponentials overflow in float32
        scores = torch.randn(len(documents)) * scale
        expected = []
        for number in range(9):
            of_document = scores[documents == number].double()
            expected.append(float((torch.softmax(of_document, 0) * of_document).sum()))
        assert POOLINGS["softmax"](scores, documents).tolist() == pytest.approx(expected, rel=1e-5)
    given = torch.randn(len(documents), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scores: POOLINGS["softmax"](scores, documents), given)


@pytest.fixture
def last():
    """A pooling that a test registers: the score of the last passage."""
    before = dict(POOLINGS)

    @pooling("last")
    def last(passage_scores, documents):
        is_last = torch.ones_like(documents, dtype=torch.bool)
        is_last[:-1] = documents[1:] != documents[:-1]
        return passage_scores[is_last]

    yield
    POOLINGS.clear()
    POOLINGS.update(before)


def test_a_registered_pooling_is_used_and_saved_with_the_model(last, tmp_path):
    folder = str(make_encoder("bert", tmp_path / "bert", WORDS, max_positions=24))
    model = open_cross_encoder(folder, "last", 0)
    builder = make_inputs(
        tmp_path / "t", model.tokenizer, model.max_length, {"q": "cedar"}, make_texts({"a": 60, "b": 3})
    )
    inputs = builder([("q", "a"), ("q", "b")])
    model.eval()
    with torch.no_grad():
        passages = model(inputs)
        assert len(passages) > 3
        assert scores_of(model, inputs).tolist() == passages[[-2, -1]].tolist()
    model.max_doc_tokens = 50
    save_cross_encoder(model, tmp_path / "saved")
    trained = open_trained_cross_encoder(str(tmp_path / "saved"), "mean", 800)
    assert (trained.pooling, trained.max_doc_tokens) == ("last", 50)
    del POOLINGS["last"]
    with pytest.raises(UserError, match="was trained with the pooling last, which is not registered; expected one of"):
        open_trained_cross_encoder(str(tmp_path / "saved"), "mean", 800)


def test_the_setting_takes_every_registered_pooling(last, capsys):
    assert (
        {*losses.POOLINGS, "last"}
        == {*losses.poolings()}
        == {*POOLINGS}
        == {"mean", "first", "max", "sum", "softmax", "last"}
    )
    check_training(Config(encoder=EncoderSettings(pooling="last")))
    main(["train", "--help", "all"])
    assert "a document's score: first, last, max, mean, softmax, sum." in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )
    with pytest.raises(UserError, match=r"--encoder.pooling lst: no such pooling; did you mean last\?"):
        check_training(Config(encoder=EncoderSettings(pooling="lst")))
