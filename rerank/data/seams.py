"""Where a text may be cut for a tokenizer, so that the tokens of the two parts are those of the whole.

A tokenizer first normalises a text and splits it into words; only then come subwords, within a word. A cut is safe
where every word ends, if no normalisation and no token that was added to the vocabulary reaches across it, and if the
part behind it is split as inside the text. What is known, by kind of tokenizer:

- Those that begin a word at every space (BERT, GPT-2, XLM-R, DeBERTa, Qwen, Llama 3): before a single space between two
  letters or digits.
- Those that also end a word before punctuation (BERT, GPT-2, Qwen, Llama 3): between a digit, an ASCII letter or an
  ideograph and one of the characters of PUNCTUATION.
- BERT: between two ideographs, each of which is a word.
- BPE over whole texts (Llama 2, Mistral, Gemma): between two characters of the vocabulary that no token has side by
  side, as no merge can join them; only before a space where the tokenizer puts one before a text (Llama 2, Mistral).

A word of Unigram (XLM-R, DeBERTa) is not cut: which segmentation is best depends on sums of floats over the whole word,
so there is no proof. A text without any of these places is one piece, such as Thai, or Chinese for XLM-R.
"""

import functools
import json
import re
from collections.abc import Callable
from typing import Any

# Without U+0D4E and the like above U+FFFF, letters that Unicode joins to a space that follows.
SPACE = re.compile(r"(?<=[^\W_\u0d4e\U00010000-\U0010ffff])(?= [^\W_])")
# The ideographs of Unicode 1.1, which every tokenizer's tables have.
PUNCTUATION = re.compile(r"(?<=[0-9A-Za-z\u4e00-\u9fa5])(?=[+/=,.;、。，])")
IDEOGRAPHS = re.compile(r"(?<=[\u4e00-\u9fa5])(?=[\u4e00-\u9fa5])")

NORMALIZERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "StripAccents"}
REPLACED = {" {2,}", r"\s{2,}|[\n\r\t]"}
"""The patterns of the normalizer Replace that match nothing at a place to cut."""
PRE_TOKENIZERS = {"BertPreTokenizer", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"}
MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {_WORDS % digits for digits in (r"\p{N}", r"\p{N}{1,3}")}
"""The patterns of the words of Qwen and of Llama 3: none goes on from a letter or digit to a space or punctuation."""
BLANK = "▁"

Find = Callable[[str, int], int | None]
"""The first place at or after a position of a text where it may be cut, None if there is none."""


@functools.lru_cache(maxsize=8)
def find_seam(tokenizer: str) -> Find | None:
    """How to find places to cut for the tokenizer of this JSON; None if it has none that is known.

    "" is a tokenizer in Python, which is unknown.
    """
    if not tokenizer:
        return None
    parts: dict[str, Any] = json.loads(tokenizer)
    model, added = parts["model"], parts.get("added_tokens") or []
    if model.get("type") not in MODELS or model.get("dropout"):
        return None
    normalizers = _steps(parts.get("normalizer"), "normalizers")
    words = _steps(parts.get("pre_tokenizer"), "pretokenizers")
    if model["type"] == "BPE" and _joins_words(normalizers, words):
        return _between_merges(model, added, any(step["type"] == "Metaspace" for step in words))
    if not all(map(_normalizes_locally, normalizers)):
        return None
    patterns = []
    if (_has_known_words(words) or _splits_at_spaces(words)) and all(map(_stays_in_a_word, added)):
        patterns.append(SPACE)
    if (_has_known_words(words) or _splits_at_punctuation(words)) and all(map(_has_no_seam, added)):
        patterns.append(PUNCTUATION)
        if _splits_ideographs(normalizers, words):
            patterns.append(IDEOGRAPHS)
    if not patterns:
        return None
    pattern = re.compile("|".join(pattern.pattern for pattern in patterns))

    def find(text: str, begin: int) -> int | None:
        seam = pattern.search(text, begin)
        return seam.start() if seam else None

    return find


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


def _has_known_words(steps: list[dict[str, Any]]) -> bool:
    """Whether the words are those of WORDS, in bytes."""
    if [step["type"] for step in steps] != ["Split", "ByteLevel"]:
        return False
    split, to_bytes = steps
    known = split["pattern"].get("Regex") in WORDS and split["behavior"] == "Isolated" and not split["invert"]
    return known and not to_bytes["use_regex"] and not to_bytes["add_prefix_space"]


def _splits_at_spaces(steps: list[dict[str, Any]]) -> bool:
    """Whether each step is known, and one of them begins a word at every space."""

    def splits(step: dict[str, Any]) -> bool:
        if step["type"] == "ByteLevel":
            return bool(step["use_regex"])
        if step["type"] == "Metaspace":
            return bool(step.get("split", True))
        return step["type"] in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")

    return all(step["type"] in PRE_TOKENIZERS or splits(step) for step in steps) and any(map(splits, steps))


def _splits_at_punctuation(steps: list[dict[str, Any]]) -> bool:
    """Whether the one step ends a word before punctuation, and puts nothing before a text."""
    if len(steps) != 1:
        return False
    if steps[0]["type"] == "ByteLevel":
        return bool(steps[0]["use_regex"]) and not steps[0]["add_prefix_space"]
    return steps[0]["type"] in ("BertPreTokenizer", "Whitespace")


def _splits_ideographs(normalizers: list[dict[str, Any]], words: list[dict[str, Any]]) -> bool:
    """Whether spaces are put around each ideograph, and words end at them."""
    return (
        [step["type"] for step in normalizers] == ["BertNormalizer"]
        and bool(normalizers[0]["handle_chinese_chars"])
        and words[0]["type"] == "BertPreTokenizer"
    )


def _stays_in_a_word(token: dict[str, Any]) -> bool:
    """Whether a token that was added to the vocabulary neither has a space nor takes in the one that follows it."""
    content: str = token["content"]
    return not any(map(str.isspace, content)) and not (token["rstrip"] and content[-1:].isalnum())


def _has_no_seam(token: dict[str, Any]) -> bool:
    """Whether a token that was added to the vocabulary neither reaches across PUNCTUATION nor looks across it."""
    content: str = token["content"]
    return content.isascii() and not PUNCTUATION.search(content) and not token.get("single_word")


def _joins_words(normalizers: list[dict[str, Any]], words: list[dict[str, Any]]) -> bool:
    """Whether the whole text is one word, in which BLANK stands for a space."""
    if [step["type"] for step in words] == ["Metaspace"]:
        return not normalizers and not words[0].get("split", True) and words[0]["replacement"] == BLANK
    replaced = [(step.get("pattern"), step.get("content")) for step in normalizers] == [({"String": " "}, BLANK)]
    return replaced and all(step["type"] == "Split" and step["pattern"] == {"String": " "} for step in words)


def _between_merges(model: dict[str, Any], added: list[dict[str, Any]], only_before_spaces: bool) -> Find | None:
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    if affixes or model.get("ignore_merges") or any(_looks_around(token) for token in added):
        return None
    vocabulary: dict[str, int] = model["vocab"]
    tokens = [*vocabulary, *(token["content"].replace(" ", BLANK) for token in added)]
    joined = {token[i : i + 2] for token in tokens for i in range(len(token) - 1)}

    def find(text: str, begin: int) -> int | None:
        for place in range(max(begin, 1), len(text)):
            if only_before_spaces and text[place] != " ":
                continue
            pair = text[place - 1 : place + 1].replace(" ", BLANK)
            if pair[0] in vocabulary and pair[1] in vocabulary and pair not in joined:
                return place
        return None

    return find


def _looks_around(token: dict[str, Any]) -> bool:
    """Whether an added token also matches, or depends on, the characters next to it."""
    return bool(token.get("single_word") or token.get("lstrip") or token.get("rstrip"))
