from pathlib import Path

import pytest
import torch

from tests.support.tiny_encoders import CROSS_ENCODER_KINDS, KINDS, make_cross_encoder, make_encoder

WORDS = ["the", "cat", "sat", "on", "a", "mat"]
BERT_PAIR = "[CLS] cat [SEP] mat [SEP]"
ROBERTA_PAIR = "<s> cat </s> </s> mat </s>"
PAIRS = {
    "bert": BERT_PAIR,
    "electra": BERT_PAIR,
    "distilbert": BERT_PAIR,
    "modernbert": BERT_PAIR,
    "deberta-v2": "[CLS] ▁cat [SEP] ▁mat [SEP]",
    "roberta": ROBERTA_PAIR,
    "mpnet": ROBERTA_PAIR,
    "xlm-r": "<s> ▁cat </s> </s> ▁mat </s>",
}
WITH_TOKEN_TYPES = ("bert", "electra", "deberta-v2")


@pytest.mark.parametrize("kind", KINDS)
def test_loads_and_encodes_a_pair(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = make_encoder(kind, tmp_path / kind, WORDS)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    pair = tokenizer("cat", "mat", return_tensors="pt")
    assert tokenizer.is_fast
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"][0]) == PAIRS[kind].split()
    if kind in WITH_TOKEN_TYPES:
        assert pair["token_type_ids"].tolist() == [[0, 0, 0, 1, 1]]
    else:
        assert "token_type_ids" not in pair
    assert model(**pair).last_hidden_state.shape == (1, len(PAIRS[kind].split()), 32)


@pytest.mark.parametrize("kind", KINDS)
def test_inner_words_are_one_token_and_other_words_are_spelled(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(make_encoder(kind, tmp_path / kind, WORDS))
    assert len(tokenizer.tokenize("the cat sat on a mat")) == 6
    assert len(tokenizer.tokenize("the zebra")) > 5
    assert tokenizer.unk_token_id not in tokenizer("the Zebra's (2nd) hat.")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_takes_max_positions_and_not_one_more(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(make_encoder(kind, tmp_path / kind, WORDS, max_positions=24)).eval()
    ids = torch.full((1, 24), 7)
    assert model(input_ids=ids).last_hidden_state.isfinite().all()
    if kind not in ("deberta-v2", "modernbert"):  # relative and rotary positions have no table to run out of
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, 25), 7))


def test_seed_alone_makes_the_weights(tmp_path: Path) -> None:
    torch.manual_seed(1)
    files = [make_encoder("bert", tmp_path / str(n), WORDS, seed=n // 2) / "model.safetensors" for n in range(3)]
    one, again, other = (file.read_bytes() for file in files)
    assert one == again
    assert one != other


@pytest.mark.parametrize("kind", CROSS_ENCODER_KINDS)
def test_cross_encoder_has_its_outputs(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    for outputs in (1, 2):
        folder = make_cross_encoder(kind, tmp_path / str(outputs), WORDS, outputs=outputs)
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        pair = AutoTokenizer.from_pretrained(folder)("cat", "mat", return_tensors="pt")
        assert model(**pair).logits.shape == (1, outputs)
