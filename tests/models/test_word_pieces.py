"""Our word pieces of BERT against those of transformers; what they do not know is left to sentence-transformers."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from rerank.models.word_pieces import open_word_pieces
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder

TEXTS = ["", "amber birch", "  Ämber\tBIRCH\n\u200b", "[MASK] cedar[SEP]delta", "北京-amber", "\x00", "amber " * 40]


@pytest.fixture
def folder(tmp_path):
    return make_encoder("bert", tmp_path / "encoder", WORDS, max_positions=24)


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"truncation": True},
        {"truncation": True, "max_length": 5, "return_offsets_mapping": True},
        {"add_special_tokens": False, "return_offsets_mapping": True},
        {"padding": True, "truncation": True, "return_tensors": "pt"},
    ],
)
def test_pieces_are_those_of_transformers(settings, lower_case, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, do_lower_case=lower_case)
    tokenizer.save_pretrained(folder)
    ours, theirs = open_word_pieces(folder), AutoTokenizer.from_pretrained(folder)
    assert len(ours) == len(theirs)
    assert set(ours.all_special_ids) == set(theirs.all_special_ids)
    assert ours.model_max_length == theirs.model_max_length
    ours.model_max_length = theirs.model_max_length = 24
    for texts in (TEXTS, *([] if "padding" in settings else TEXTS)):
        found, expected = ours(texts, **settings), dict(theirs(texts, **settings))
        assert list(found) == list(expected)
        for name, values in expected.items():
            assert torch.equal(found[name], values) if "padding" in settings else found[name] == values


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("tokenizer.json", {"post_processor": {"type": "TemplateProcessing", "single": []}}),
        ("tokenizer.json", {"added_tokens": []}),
        ("tokenizer_config.json", {"do_lower_case": None}),
        ("tokenizer_config.json", {"strip_accents": True}),
        ("tokenizer_config.json", {"tokenizer_class": "ElectraTokenizer"}),
        ("tokenizer_config.json", {"additional_special_tokens": ["amber"]}),
        ("special_tokens_map.json", {"pad_token": "amber"}),
    ],
)
def test_what_is_unusual_is_left_to_sentence_transformers(file, change, folder):
    assert open_word_pieces(folder) is not None
    content = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps(content | change))
    assert open_word_pieces(folder) is None


def test_a_folder_without_a_tokenizer_of_this_kind_has_none(tmp_path):
    assert open_word_pieces(tmp_path) is None
