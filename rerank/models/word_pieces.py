"""The word pieces of BERT's usual tokenizer, as transformers makes them, which takes a second to import."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from rerank.utils.json_files import parse_json

SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
STATED = SPECIAL | {
    "tokenizer_class": "BertTokenizer",
    "backend": "tokenizers",
    "tokenize_chinese_chars": True,
    "strip_accents": None,
    "do_basic_tokenize": True,
    "never_split": None,
    "padding_side": "right",
    "truncation_side": "right",
    "truncation_strategy": "longest_first",
    "stride": 0,
    "pad_to_multiple_of": None,
    "pad_token_type_id": 0,
}
"""The values that tokenizer_config.json may state for these names. Besides them, it may state FREE ones alone."""
FREE = ("do_lower_case", "model_max_length", "max_length", "name_or_path", "is_local", "local_files_only")
MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
AROUND = [
    {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
]
FLAGS = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
"""Parts of tokenizer.json: what cuts words, prepares texts, stands around one, and says of each special token."""


class WordPieces:
    """What `BertEncoder` and late interaction use of transformers' tokenizer. Threads may call it at the same time."""

    is_fast = True

    def __init__(self, backend: Tokenizer, special: Mapping[str, int], most: int) -> None:
        self.backend_tokenizer, self.model_max_length = backend, most
        self.all_special_ids = list(special.values())
        self._first, self._last, self._padding = (special[name] for name in ("[CLS]", "[SEP]", "[PAD]"))

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def __call__(
        self,
        texts: str | Sequence[str],
        add_special_tokens: bool = True,
        padding: bool = False,
        truncation: bool = False,
        max_length: int | None = None,
        return_offsets_mapping: bool = False,
        return_tensors: str | None = None,
    ) -> dict[str, Any]:
        """The input_ids, token_type_ids and attention_mask of each text, lists or, padded, tensors."""
        given = [texts] if isinstance(texts, str) else list(texts)
        around = 2 * add_special_tokens
        kept = (max_length or self.model_max_length) - around if truncation else None
        found = self.backend_tokenizer.encode_batch(given, add_special_tokens=False)
        pieces = [text.ids[:kept] for text in found]
        ids = [[self._first, *text, self._last] for text in pieces] if add_special_tokens else pieces
        longest = max(map(len, ids), default=0) if padding else 0
        missing = [max(longest - len(text), 0) for text in ids]
        inputs: dict[str, list[Any]] = {
            "input_ids": [text + [self._padding] * more for text, more in zip(ids, missing, strict=True)],
            "token_type_ids": [[0] * (len(text) + more) for text, more in zip(ids, missing, strict=True)],
            "attention_mask": [[1] * len(text) + [0] * more for text, more in zip(ids, missing, strict=True)],
        }
        if return_offsets_mapping:
            ends = [(0, 0)] * add_special_tokens
            inputs["offset_mapping"] = [[*ends, *text.offsets[:kept], *ends] for text in found]
        if return_tensors:
            return {name: torch.tensor(values) for name, values in inputs.items()}
        return {name: values[0] for name, values in inputs.items()} if isinstance(texts, str) else inputs


def open_word_pieces(folder: Path) -> WordPieces | None:
    """The tokenizer of a folder; None if its files state something that `WordPieces` does not do."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    stated, parts = read_settings(folder / "tokenizer_config.json"), read_settings(file)
    vocabulary = parts["model"].pop("vocab")
    special = {token: vocabulary.get(token) for token in SPECIAL.values()}
    added = {token["content"]: token["id"] for token in parts["added_tokens"]}
    usual = (
        parts["model"] == MODEL
        and parts["normalizer"] == NORMALIZER | {"lowercase": stated.get("do_lower_case")}
        and parts["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and parts["post_processor"].get("single") == AROUND
        and all({name: token[name] for name in FLAGS} == FLAGS for token in parts["added_tokens"])
        and added == special
        and all(name in FREE or value == STATED.get(name, ...) for name, value in stated.items())
        and read_settings(folder / "special_tokens_map.json").items() <= SPECIAL.items()
    )
    if not usual:
        return None
    backend = Tokenizer.from_file(str(file))
    backend.no_truncation()
    backend.no_padding()
    return WordPieces(backend, special, int(stated.get("model_max_length") or 10**30))


def read_settings(file: Path) -> dict[str, Any]:
    """The settings in a JSON file, {} without one."""
    settings: dict[str, Any] = parse_json(file.read_bytes(), dict[str, Any]) if file.is_file() else {}
    return settings
