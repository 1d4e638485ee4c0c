"""Checkpoints as other libraries read them: the same scores in sentence-transformers, in transformers and here."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rerank import Reranker
from rerank.models.checkpoints import open_cross_encoder, open_trained_cross_encoder, save_cross_encoder
from rerank.models.heads import FORMS, folded
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import CROSS_ENCODER_KINDS, KINDS, make_cross_encoder, make_encoder, make_tokenizer

QUERY = "amber river"
DOCUMENTS = list(make_texts({"empty": 0, "word": 1, "short": 8, "long": 60, "longer": 90}).values())
FORM = dict.fromkeys(("bert", "roberta", "mpnet", "xlm-r"), "identity") | {
    "electra": "pair",
    "distilbert": "pair",
    "deberta-v2": "pair",
    "modernbert": "small pair",
}


def trained(folder, scale=40.0, pooling="mean"):
    """A model of the encoder in `folder`, with a head that gives scores of order 1 to 10."""
    model = open_cross_encoder(str(folder), pooling, seed=1)
    with torch.no_grad():
        model.head.weight.mul_(scale)
        model.head.bias.fill_(-0.75)
    return model.eval()


def saved(kind, tmp_path, **settings):
    model = trained(make_encoder(kind, tmp_path / kind, WORDS, **settings))
    save_cross_encoder(model, tmp_path / "saved")
    return tmp_path / "saved"


def scores_in_sentence_transformers(folder, documents=DOCUMENTS):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu").predict([(QUERY, text) for text in documents])


def scores_in_transformers(folder, documents=DOCUMENTS):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(
        [QUERY] * len(documents), documents, padding=True, truncation="longest_first", return_tensors="pt"
    )
    with torch.no_grad():
        return model.eval()(**inputs).logits[:, 0].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_a_sequence_classifier_that_gives_the_same_scores_in_three_libraries(kind, tmp_path):
    """Of documents of one passage; the config says how the head was made."""
    folder = saved(kind, tmp_path, max_positions=128)
    ours = Reranker.load(folder, device="cpu").score(QUERY, DOCUMENTS)
    assert 0.3 < np.abs(ours).max() < 50
    assert ours.std() > 1e-3
    tolerance = {"atol": 1e-5, "rtol": 1e-5}
    np.testing.assert_allclose(scores_in_sentence_transformers(folder), ours, **tolerance)
    np.testing.assert_allclose(scores_in_transformers(folder), ours, **tolerance)
    config = json.loads((folder / "config.json").read_text())
    (architecture,) = config["architectures"]
    assert architecture.endswith("ForSequenceClassification")
    assert config["id2label"] == {"0": "LABEL_0"}
    assert config["sentence_transformers"]["activation_fn"] == "torch.nn.modules.linear.Identity"
    facts = config["rerank"]["head"]
    assert (facts["form"], facts["scale"]) == (FORM[kind], FORMS[FORM[kind]])
    names = load_file(folder / "model.safetensors").keys()
    assert {f"{facts['dense']}.weight", f"{facts['output']}.weight"} <= names
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 128


def test_a_model_of_few_tokens_scores_alike_only_what_it_does_not_cut(tmp_path):
    """docs/guides/sharing.md: other libraries read a document up to the passage, unless it was cut before."""
    model = trained(make_encoder("bert", tmp_path / "bert", WORDS, max_positions=128))
    model.max_doc_tokens = 8
    save_cross_encoder(model, tmp_path / "saved")
    ours = Reranker.load(tmp_path / "saved", device="cpu").score(QUERY, DOCUMENTS)
    theirs = scores_in_sentence_transformers(tmp_path / "saved")
    np.testing.assert_allclose(theirs[:3], ours[:3], atol=1e-5)
    assert np.abs(theirs[3:] - ours[3:]).min() > 1e-3
    cut = [" ".join(text.split()[:8]) for text in DOCUMENTS]
    np.testing.assert_allclose(scores_in_sentence_transformers(tmp_path / "saved", cut), ours, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_opening_a_checkpoint_gives_the_layer_back_bit_by_bit(kind, tmp_path):
    model = trained(make_encoder(kind, tmp_path / kind, WORDS), pooling="max")
    names = [name for name, _ in model.named_parameters()]
    body = {id(parameter) for parameter in model.encoder.parameters()}
    model.train()
    with folded(model.encoder, model.head, model.pad_id) as (classifier, _):
        theirs = {id(parameter) for parameter in classifier.parameters()}
        assert body <= theirs  # shared, not copied
        assert len(theirs - body) <= 4
    assert all(module.training for module in model.modules())
    save_cross_encoder(model, tmp_path / "saved")
    assert [name for name, _ in model.named_parameters()] == names  # saving leaves nothing behind
    again = open_cross_encoder(str(tmp_path / "saved"), "max", seed=9)
    settings = {name: value for name, value in again.encoder.config.rerank.items() if name != "head"}
    assert settings == {"pooling": "max", "max_doc_tokens": 800}
    assert [name for name, _ in again.named_parameters()] == names
    for (name, before), (_, after) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(before, after), name
    save_cross_encoder(again, tmp_path / "twice")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "saved" / name).read_bytes()


@pytest.mark.parametrize("scale", [1e-3, 400.0])
@pytest.mark.parametrize("kind", ["bert", "electra", "modernbert"])
def test_small_and_large_scores_keep_their_digits(kind, scale, tmp_path):
    model = trained(make_encoder(kind, tmp_path / kind, WORDS), scale)
    save_cross_encoder(model, tmp_path / "saved")
    ours = Reranker.load(tmp_path / "saved", device="cpu").score(QUERY, DOCUMENTS)
    # A tiny ModernBERT is 32 wide: the variance of its norm is 24 times that of the real one.
    relative = 5e-4 if kind == "modernbert" and scale > 1 else 2e-5
    difference = np.abs(scores_in_transformers(tmp_path / "saved") - ours).max()
    assert difference <= relative * np.abs(ours).max()


@pytest.mark.parametrize("kind", CROSS_ENCODER_KINDS)
def test_a_trained_cross_encoder_keeps_its_own_head_and_gets_the_identity(kind, tmp_path):
    folder = make_cross_encoder(kind, tmp_path / kind, WORDS)
    model = open_cross_encoder(str(folder), "mean", 0)
    assert model.head is None
    save_cross_encoder(model, tmp_path / "saved")
    assert "head" not in json.loads((tmp_path / "saved" / "config.json").read_text())["rerank"]
    ours = Reranker.load(tmp_path / "saved", device="cpu").score(QUERY, DOCUMENTS)
    assert np.array_equal(ours, Reranker.load(folder, device="cpu").score(QUERY, DOCUMENTS))
    for theirs in (scores_in_sentence_transformers(tmp_path / "saved"), scores_in_transformers(folder)):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "electra", "modernbert"])
def test_a_head_that_another_library_trained_further_is_the_classifiers_own(kind, tmp_path):
    """The config still says how the head was made, but the weights no longer are."""
    folder = saved(kind, tmp_path)
    dense = json.loads((folder / "config.json").read_text())["rerank"]["head"]["dense"]
    weights = load_file(folder / "model.safetensors")
    weights[f"{dense}.weight"][3, 4] += 1e-6
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert open_cross_encoder(str(folder), "mean", 0).head is None
    ours = Reranker.load(folder, device="cpu").score(QUERY, DOCUMENTS)
    np.testing.assert_allclose(scores_in_transformers(folder), ours, rtol=1e-5, atol=1e-5)


def write_longformer(folder):
    """An encoder whose sequence classifier attends in another way than the encoder, so that no head gives its score."""
    import transformers

    tokenizer = make_tokenizer("bert", WORDS)
    config = transformers.LongformerConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        attention_window=[16, 16],
        max_position_embeddings=514,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_an_encoder_whose_classifier_cannot_hold_the_layer_is_not_trained(tmp_path):
    with pytest.raises(UserError, match="no sequence classifier of LongformerModel can give the scores of a linear"):
        open_cross_encoder(write_longformer(tmp_path / "longformer"), "mean", 0)


def test_a_checkpoint_that_lacks_its_head_is_refused(tmp_path):
    folder = saved("electra", tmp_path)
    facts = json.loads((folder / "config.json").read_text())["rerank"]["head"]
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith(facts["output"])}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=rf"lack 2 tensors of a \w+, {facts['output']}.bias among them"):
        open_trained_cross_encoder(str(folder), "mean", 800)


def test_an_encoder_without_a_head_is_not_scored_with(tmp_path):
    from transformers import AutoModel

    folder = saved("bert", tmp_path)
    body = AutoModel.from_pretrained(folder, add_pooling_layer=False)  # keeps what the config says of the head
    body.save_pretrained(tmp_path / "body")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, tmp_path / "body")
    with pytest.raises(UserError, match=r"its architecture is BertModel, expected a …ForSequenceClassification"):
        open_trained_cross_encoder(str(tmp_path / "body"), "mean", 800)
