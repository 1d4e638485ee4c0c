"""BERT on a CPU has exactly the vectors of sentence-transformers, which opens models of every other layout."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from rerank.models.bert import BertEncoder, open_bert
from rerank.models.bi_encoder import BiEncoder, open_model
from tests.models.test_bi_encoder import TEXTS, write_modules
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

STATED = [
    {},
    {"pooling": "cls", "similarity": "dot", "prompts": {"query": "delta ", "document": "ember fjord "}},
    {"normalise": True, "prompts": {"query": None, "passage": "amber"}},
]
ASKED = [*TEXTS, "", "  Amber\tBIRCH\n", "cèdar \u200b", "amber " * 60]


@pytest.fixture
def write(tmp_path):
    def write(**stated):
        return write_modules(make_encoder("bert", tmp_path / "encoder", WORDS, max_positions=24), **stated)

    return write


def set_in(file, **values):
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**content, **values}))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("saved", [False, True], ids=["as written by hand", "as saved by sentence-transformers"])
@pytest.mark.parametrize("stated", STATED)
def test_the_vectors_are_those_of_sentence_transformers(stated, saved, precision, write, tmp_path):
    folder = write(**stated)
    if saved:
        SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "saved"))
        folder = tmp_path / "saved"
    ours, theirs = open_bert(folder, precision), open_model(SentenceTransformer, str(folder), "cpu", precision)
    for kind in ("encode_query", "encode_document"):
        expected = getattr(theirs, kind)(ASKED, batch_size=4)
        np.testing.assert_array_equal(getattr(ours, kind)(ASKED, batch_size=4), expected)
        for found, tokens in zip(
            *(getattr(one, kind)(ASKED, output_value=None) for one in (ours, theirs)), strict=True
        ):
            assert all(torch.equal(found[name], tokens[name]) for name in found)
            assert found.keys() <= tokens.keys()
    assert (ours.max_seq_length, ours.similarity_fn_name) == (theirs.max_seq_length, theirs.similarity_fn_name)
    assert all(prompt == theirs.prompts[kind] for kind, prompt in ours.prompts.items())
    plain = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    allowed = 1e-5 if precision == "float32" else 0.03
    np.testing.assert_allclose(ours.encode_document(ASKED), plain.encode_document(ASKED), atol=allowed)


def test_do_lower_case_with_an_uncased_tokenizer_changes_nothing(write):
    folder = write()
    expected = open_bert(folder, "float32").encode_query(ASKED)
    set_in(folder / "sentence_bert_config.json", do_lower_case=True)
    np.testing.assert_array_equal(open_bert(folder, "float32").encode_query(ASKED), expected)
    theirs = open_model(SentenceTransformer, str(folder), "cpu", "float32")
    np.testing.assert_array_equal(theirs.encode_query(ASKED), expected)


def test_a_folder_without_modules_has_the_mean_of_its_tokens(tmp_path):
    folder = make_encoder("bert", tmp_path / "plain", WORDS, max_positions=24)
    set_in(folder / "config.json", pad_token_id=None)
    expected = open_model(SentenceTransformer, str(folder), "cpu", "float32").encode_document(ASKED)
    np.testing.assert_array_equal(open_bert(folder, "float32").encode_document(ASKED), expected)


OTHERS = {
    "weights of another name": lambda folder: save_file(
        {f"bert.{name}": weight for name, weight in load_file(folder / "model.safetensors").items()},
        folder / "model.safetensors",
        {"format": "pt"},
    ),
    "heads that do not divide the size": lambda folder: set_in(folder / "config.json", num_attention_heads=3),
    "another similarity": lambda folder: set_in(
        folder / "config_sentence_transformers.json", similarity_fn_name="euclidean"
    ),
    "another activation": lambda folder: set_in(folder / "config.json", hidden_act="relu"),
    "another pooling": lambda folder: set_in(folder / "1_Pooling/config.json", pooling_mode_max_tokens=True),
    "pooling without the prompt": lambda folder: set_in(folder / "1_Pooling/config.json", include_prompt=False),
    "do_lower_case with a cased tokenizer": lambda folder: (
        set_in(folder / "sentence_bert_config.json", do_lower_case=True),
        set_in(folder / "tokenizer_config.json", do_lower_case=False),
    ),
    "arguments of the tokenizer": lambda folder: set_in(
        folder / "sentence_bert_config.json", tokenizer_args={"truncation_side": "left"}
    ),
    "shorter vectors": lambda folder: set_in(folder / "config_sentence_transformers.json", truncate_dim=8),
    "another layer": lambda folder: (folder / "modules.json").write_text(
        (folder / "modules.json").read_text().replace("models.Pooling", "models.WeightedLayerPooling")
    ),
    "a damaged tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_another_layout_is_left_to_sentence_transformers(change, write):
    folder = write()
    assert isinstance(BiEncoder.load(folder, device="cpu").model, BertEncoder)
    change(folder)
    assert open_bert(folder, "float32") is None


def test_other_architectures_are_left_to_sentence_transformers(tmp_path):
    for kind in ("roberta", "mpnet", "electra"):
        assert open_bert(make_encoder(kind, tmp_path / kind, WORDS, max_positions=24), "auto") is None


def test_it_imports_neither_sentence_transformers_nor_transformers(write):
    code = f"""
import sys
from rerank import BiEncoder
assert BiEncoder.load({str(write())!r}, device="cpu").encode_queries(["amber"]).shape == (1, 32)
slow = {{"sentence_transformers", "transformers", "torch._dynamo", "sklearn"}} & sys.modules.keys()
assert not slow, slow
"""
    subprocess.run([sys.executable, "-c", code], check=True)
