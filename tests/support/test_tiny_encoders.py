from pathlib import Path

import pytest
import torch

from tests.support.tiny_encoders import KINDS, make_encoder

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
def test_an_encoder_is_what_its_real_model_is(kind: str, tmp_path: Path) -> None:
    """In the tokens of a pair, words and their spelling, and the longest input."""
    from transformers import AutoModel, AutoTokenizer

    folder = make_encoder(kind, tmp_path / kind, WORDS, max_positions=24)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    pair = tokenizer("cat", "mat", return_tensors="pt")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"][0]) == PAIRS[kind].split()
    types = pair["token_type_ids"].tolist() if "token_type_ids" in pair else None
    assert types == ([[0, 0, 0, 1, 1]] if kind in WITH_TOKEN_TYPES else None)
    assert model(**pair).last_hidden_state.shape == (1, len(PAIRS[kind].split()), 32)
    assert len(tokenizer.tokenize("the cat sat on a mat")) == 6
    assert len(tokenizer.tokenize("the zebra")) > 5
    assert tokenizer.unk_token_id not in tokenizer("the Zebra's (2nd) hat.")["input_ids"]
    assert model(input_ids=torch.full((1, 24), 7)).last_hidden_state.isfinite().all()
    if kind not in ("deberta-v2", "modernbert"):  # relative and rotary positions have no table to run out of
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, 25), 7))


def test_seed_alone_makes_the_weights(tmp_path: Path) -> None:
    torch.manual_seed(1)
    files = [make_encoder("bert", tmp_path / str(n), WORDS, seed=n // 2) / "model.safetensors" for n in range(3)]
    one, again, other = (file.read_bytes() for file in files)
    assert one == again
    assert one != other
