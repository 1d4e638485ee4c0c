"""Decoders with a head on the last token: scores are those of transformers, packed or padded, whatever the batch."""

import json

import pytest
import torch

from rerank.batches.batch import Packed
from rerank.models import packed_attention as packing
from rerank.models.checkpoints import save_cross_encoder
from rerank.models.encoder import load_encoder
from rerank.utils.errors import UserError
from tests.models.tiny import assert_same_gradients, open_tiny, scores_and_gradients
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_decoders import DECODERS, PACKED_DECODERS, make_decoder
from tests.support.tiny_encoders import make_encoder

TEXTS = make_texts({"empty": 0, "short": 3, "one": 20, "other": 20, "two": 60, "many": 400})
PAIRS = [("q", doc_id) for doc_id in TEXTS]


def opened(kind, folder, **settings):
    """300 positions: more than the windows of 24 tokens."""
    model, tokenizer, inputs_of = open_tiny(folder, TEXTS, kind, make_decoder, **settings)
    return model.eval(), tokenizer, inputs_of


def transformers_scores(folder, inputs: Packed):
    """The scores that transformers gives each passage alone."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    parts = inputs.input_ids.split(inputs.lengths())
    with torch.no_grad():
        return torch.stack([model(input_ids=ids[None]).logits[0, 0] for ids in parts])


@pytest.mark.parametrize("kind", DECODERS)
def test_scores_are_those_of_transformers_packed_and_padded_with_the_same_gradients(kind, tmp_path):
    model, _, inputs_of = opened(kind, tmp_path)
    inputs = inputs_of(PAIRS)
    expected = transformers_scores(tmp_path / kind, inputs)  # of each passage alone
    assert model.is_padded == (kind not in PACKED_DECODERS)
    assert expected.std() > 0.01
    gradients = []
    for reason in (model.padding_reason, "a test compares"):
        model.padding_reason = reason
        scores, found = scores_and_gradients(model, inputs)
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
        gradients.append(found)
    assert_same_gradients(gradients[1], gradients[0])


def test_activation_checkpointing_gives_the_same_gradients(tmp_path):
    model, _, inputs_of = opened("qwen3", tmp_path)
    inputs = inputs_of(PAIRS)
    model.train()
    _, plain = scores_and_gradients(model, inputs)
    model.checkpoint_activations()
    _, recomputed = scores_and_gradients(model, inputs)
    assert_same_gradients(recomputed, plain)


def test_soft_capped_attention_is_padded_and_says_why(tmp_path):
    model, _, _ = opened("gemma2", tmp_path)
    assert "its attention takes softcap" in model.padding_reason
    assert model.encoder.config._attn_implementation != packing.IMPLEMENTATION
    model, _, _ = opened("gemma2", tmp_path / "without", attn_logit_softcapping=None)
    assert not model.is_padded


def test_a_decoder_without_padding_token_is_saved_with_one_that_it_knows(tmp_path):
    """So that other programs take batches; no token is added."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, tokenizer, inputs_of = opened("llama", tmp_path)
    assert json.loads((tmp_path / "llama" / "config.json").read_text()).get("pad_token_id") is None
    save_cross_encoder(model, tmp_path / "saved")
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    saved_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert saved.config.pad_token_id == saved_tokenizer.pad_token_id == tokenizer.eos_token_id
    assert len(saved_tokenizer) == saved.config.vocab_size
    texts = [text for doc_id, text in TEXTS.items() if doc_id != "many"]
    batch = saved_tokenizer(["amber birch"] * len(texts), texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = model(inputs_of([pair for pair in PAIRS if pair[1] != "many"]))
        torch.testing.assert_close(saved(**batch).logits[:, 0], scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["qwen3", "gpt2", "bloom"])
def test_the_head_is_the_layer_that_scores_the_last_token(kind, tmp_path):
    folder = make_decoder(kind, tmp_path / kind, WORDS) if kind == "qwen3" else write_classifier(kind, tmp_path)
    loaded = load_encoder(str(folder))
    assert loaded.own_head
    assert loaded.last_token is loaded.model.score


def write_classifier(kind, tmp_path):
    """The config of an older class, with the tokenizer of a tiny Qwen."""
    import transformers

    folder = make_decoder("qwen3", tmp_path / "qwen3", WORDS)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    name = {"gpt2": "GPT2", "bloom": "Bloom"}[kind]
    settings = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{name}Config")(**settings, num_labels=1, pad_token_id=0)
    getattr(transformers, f"{name}ForSequenceClassification")(config).save_pretrained(folder)
    return folder


def test_a_decoder_without_a_head_of_one_output_is_an_error(tmp_path):
    folder = make_decoder("qwen3", tmp_path / "qwen3", WORDS, head=False)
    with pytest.raises(UserError, match="a qwen3 model saved as Qwen3ForCausalLM, not a text encoder"):
        load_encoder(str(folder))
    file = folder / "config.json"
    changes = {"architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(UserError, match=r"lack 1 tensors of a Qwen3ForSequenceClassification, score.weight among them"):
        load_encoder(str(folder))
    folder = make_decoder("llama", tmp_path / "llama", WORDS, outputs=2)
    with pytest.raises(UserError, match="a classifier with 2 outputs; expected"):
        load_encoder(str(folder))
    assert load_encoder(str(make_encoder("bert", tmp_path / "bert", WORDS))).last_token is None
