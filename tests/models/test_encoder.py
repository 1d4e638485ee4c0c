import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from rerank.models.encoder import load_encoder
from rerank.utils.errors import UserError
from tests.support.tiny_encoders import KINDS, make_cross_encoder, make_encoder

WORDS = ["the", "cat", "sat", "on", "a", "mat"]


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_weights(folder: Path, change) -> None:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_and_runs(kind: str, tmp_path: Path) -> None:
    short = load_encoder(str(make_encoder(kind, tmp_path / "short", WORDS, max_positions=40)))
    assert short.max_length == 40
    short.model(input_ids=torch.full((1, 40), 7))
    loaded = load_encoder(str(make_encoder(kind, tmp_path / kind, WORDS)))
    out = loaded.model(**loaded.tokenizer("cat", "mat", return_tensors="pt"))
    assert out.last_hidden_state.shape[-1] == 32
    assert not loaded.own_head
    assert loaded.max_length == (8192 if kind == "modernbert" else 512)
    assert not any("pooler" in name for name, _ in loaded.model.named_parameters())


@pytest.mark.parametrize("stated", [256, 256.0])
def test_max_length_follows_a_tokenizer_that_states_less(tmp_path: Path, stated: float) -> None:
    folder = make_encoder("bert", tmp_path / "bert", WORDS)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": stated}))
    assert repr(load_encoder(str(folder)).max_length) == "256"


@pytest.mark.parametrize("kind", ["bert", "mpnet", "modernbert"])
def test_pretraining_checkpoint_gives_its_body(kind: str, tmp_path: Path) -> None:
    """As bert-base-uncased and most others are published: a masked language model, without a pooler."""
    from transformers import AutoModel, AutoModelForMaskedLM

    folder = make_encoder(kind, tmp_path / kind, WORDS)
    AutoModelForMaskedLM.from_config(AutoModel.from_pretrained(folder).config).save_pretrained(folder)
    masked = AutoModelForMaskedLM.from_pretrained(folder)
    loaded = load_encoder(str(folder))
    assert not loaded.own_head
    body = masked.base_model.state_dict()
    assert all(torch.equal(body[name], weight) for name, weight in loaded.model.state_dict().items())


def test_weights_are_float32_whatever_the_file_holds(tmp_path: Path) -> None:
    folder = make_cross_encoder("bert", tmp_path / "bert", WORDS)
    change_config(folder, dtype="bfloat16")
    change_weights(folder, lambda weights: {name: weight.bfloat16() for name, weight in weights.items()})
    assert {p.dtype for p in load_encoder(str(folder)).model.parameters()} == {torch.float32}


def test_weights_in_a_pickle_open_too(tmp_path: Path) -> None:
    folder = make_encoder("bert", tmp_path / "bert", WORDS)
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    table = load_encoder(str(folder)).model.get_input_embeddings().weight
    assert torch.equal(table, weights["embeddings.word_embeddings.weight"])


def test_token_types_are_dropped_where_the_model_takes_none(tmp_path: Path) -> None:
    """Many DistilBERT checkpoints carry BERT's tokenizer."""
    folder = make_encoder("distilbert", tmp_path / "distilbert", WORDS)
    make_encoder("bert", tmp_path / "bert", WORDS)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tmp_path / "bert" / name).read_bytes())
    loaded = load_encoder(str(folder))
    pair = loaded.tokenizer("cat", "mat", return_tensors="pt")
    assert type(loaded.tokenizer).__name__ == "BertTokenizer"
    assert "token_type_ids" not in pair
    loaded.model(**pair)


def without_weights(folder: Path) -> None:
    lost = "encoder.layer.1.attention.self.query.weight"
    change_weights(folder, lambda weights: {name: weight for name, weight in weights.items() if name != lost})


def config_of(name: str, **settings: object):
    """Replaces the config by one of another architecture."""

    def change(folder: Path) -> None:
        import transformers

        getattr(transformers, f"{name}Config")(**settings).save_pretrained(folder)

    return change


def other_tokenizer(folder: Path) -> None:
    other = make_encoder("bert", folder.parent / "other", [*WORDS, "wing", "layer"])
    (folder / "tokenizer.json").write_bytes((other / "tokenizer.json").read_bytes())


def pickle_with_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weights": print}, folder / "pytorch_model.bin")


def cut(name: str):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def no_positions(folder: Path) -> None:
    """ModernBERT has no table of positions whose size could contradict its config."""
    make_encoder("modernbert", folder, WORDS)
    change_config(folder, max_position_embeddings=-5)


def decoder(name: str) -> tuple:
    """A decoder without a classification head."""
    change = config_of(name, architectures=[f"{name}LMHeadModel"])
    return change, f"a {name.lower()} model saved as {name}LMHeadModel, not a text encoder; expected one such"


CLASSIFIER = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
MISTAKES = {
    "missing body weights": (without_weights, "lack 1 tensors of a BertModel, encoder.layer.1.*weight among them"),
    "a missing head": (
        lambda folder: change_config(folder, **CLASSIFIER),
        "lack 2 tensors of a BertForSequenceClassification, classifier",
    ),
    "weights of another shape": (lambda folder: change_config(folder, intermediate_size=128), "AutoModel cannot open"),
    **{f"a damaged {name}": (cut(name), "cannot open|not JSON|expected a safetensors file")
       for name in ("config.json", "tokenizer.json", "model.safetensors")},
    **{f"a {kind}": (config_of(kind), f"a {kind.lower()} model saved as .*, not a text encoder; expected one such as")
       for kind in ("T5", "ViT", "Mamba")},
    **{name: decoder(name) for name in ("GPT2", "Llama")},
    "an encoder turned into a decoder": (
        lambda folder: change_config(folder, is_decoder=True), "a bert model saved as BertModel, not a text encoder",
    ),
    "no positions": (no_positions, "states -5 positions, of which -5 are usable; expected 1 or more"),
    "a classifier with two outputs": (
        lambda folder: make_cross_encoder("bert", folder, WORDS, outputs=2), "a classifier with 2 outputs; expected",
    ),
    "an unknown type": (
        lambda folder: change_config(folder, model_type="mystery", auto_map={"AutoConfig": "mystery.Config"}),
        "AutoConfig cannot open",
    ),
    "the tokenizer of another model": (other_tokenizer, "its tokenizer has .* tokens but the model"),
    "a pickle with code": (pickle_with_code, "its weights are a pickle that holds more than tensors, and could run"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_no_encoder_is_one_line(mistake: str, tmp_path: Path) -> None:
    damage, expected = MISTAKES[mistake]
    folder = make_encoder("bert", tmp_path / "bert", WORDS)
    damage(folder)
    with pytest.raises(UserError, match=expected) as raised:
        load_encoder(str(folder))
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "weights_only" not in str(raised.value)


def test_tokenizer_without_padding_is_an_error(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    folder = make_encoder("modernbert", tmp_path / "modernbert", WORDS)
    bare = Tokenizer.from_file(str(folder / "tokenizer.json"))
    PreTrainedTokenizerFast(tokenizer_object=bare, sep_token="[SEP]").save_pretrained(folder)
    with pytest.raises(UserError, match="has no pad_token; choose"):
        load_encoder(str(folder))


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A pretraining checkpoint opened as a body is what transformers reports about at length."""
    import transformers

    folder = make_encoder("bert", tmp_path / "bert", WORDS)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForPreTraining.from_config(config).save_pretrained(folder)
    transformers.logging.set_verbosity_warning()
    transformers.logging.enable_progress_bar()
    capfd.readouterr()
    model = open_cross_encoder(str(folder), "max", 0)
    model.tokenizer("cat " * 1000)
    save_cross_encoder(model, tmp_path / "saved")
    assert capfd.readouterr() == ("", "")
    assert transformers.logging.is_progress_bar_enabled()
