"""Long texts in pieces whose tokens, put together, are exactly those of the whole text: tokenised in bounded memory.

A tokenizer first normalises a text and splits it into words; only then come subwords, within a word. A single space
between two letters or digits ends a word for every tokenizer that `can_split` knows, no normalisation reaches across
it, and a text that begins with it is split as it is inside a longer one. So a text may be cut before such a space.
"""

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

PIECE = 2**16
"""Characters of a piece, at least."""

# Without U+0D4E and the like above U+FFFF, letters that Unicode joins to a space that follows.
SEAM = re.compile(r"(?<=[^\W_\u0d4e\U00010000-\U0010ffff])(?= [^\W_])")
NORMALIZERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "StripAccents"}
REPLACED = {" {2,}", r"\s{2,}|[\n\r\t]"}
"""The patterns of the normalizer Replace that no single space between letters or digits matches."""
PRE_TOKENIZERS = {"BertPreTokenizer", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"}
MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}


def pieces(text: str, tokenizer: str, size: int = PIECE) -> Iterator[str]:
    """The text in pieces of about `size` characters; `tokenizer` is its JSON.

    The text is one piece if it is short, has no place to be cut, or belongs to a tokenizer that `can_split` does not
    know. Raises ValueError for a size below 1.

    >>> list(pieces("one, two three", '{"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "BPE"}}', 4))
    ['one, two', ' three']
    """
    if size < 1:
        raise ValueError(f"size: expected at least 1 character, got {size}")
    begin = 0
    while len(text) - begin > size and can_split(tokenizer):
        seam = SEAM.search(text, begin + size)
        if seam is None:
            break
        yield text[begin : seam.start()]
        begin = seam.start()
    yield text[begin:] if begin else text


@functools.lru_cache(maxsize=8)
def can_split(tokenizer: str) -> bool:
    """Whether a text may be cut at a SEAM for the tokenizer of this JSON ("" for one in Python, which is unknown)."""
    if not tokenizer:
        return False
    parts: dict[str, Any] = json.loads(tokenizer)
    return (
        parts["model"].get("type") in MODELS
        and not parts["model"].get("dropout")
        and all(map(_normalizes_locally, _steps(parts.get("normalizer"), "normalizers")))
        and _splits_at_spaces(_steps(parts.get("pre_tokenizer"), "pretokenizers"))
        and all(map(_stays_in_a_word, parts.get("added_tokens") or ()))
    )


def _steps(part: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [inner for step in part[key] for inner in _steps(step, key)]


def _normalizes_locally(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return not step["strip_left"]
    if step["type"] == "Replace":
        return step["pattern"].get("Regex") in REPLACED and step["content"] == " "
    return step["type"] in NORMALIZERS


def _splits_at_spaces(steps: list[dict[str, Any]]) -> bool:
    """Whether each step is known, and one of them begins a word at every space."""

    def known(step: dict[str, Any]) -> bool:
        return step["type"] in PRE_TOKENIZERS or splits(step)

    def splits(step: dict[str, Any]) -> bool:
        if step["type"] == "ByteLevel":
            return bool(step["use_regex"])
        if step["type"] == "Metaspace":
            return bool(step.get("split", True))
        return step["type"] in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")

    return all(map(known, steps)) and any(map(splits, steps))


def _stays_in_a_word(token: dict[str, Any]) -> bool:
    """Whether a token that was added to the vocabulary neither has a space nor takes in the one that follows it."""
    content: str = token["content"]
    return not any(map(str.isspace, content)) and not (token["rstrip"] and content[-1:].isalnum())
