"""The tokens around a (query, passage) pair: the tokenizer's special tokens, or the tokens of a text template.

A text template is "Query: {query} Document: {document}", for models that were trained with a prompt. Queries and
documents are tokenised separately and truncated at tokens. The concatenated pieces equal the tokens of the whole text.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from rerank.data.tokens import tokenise
from rerank.utils.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBES = ("a", "b")  # any two texts: the special tokens do not depend on them

Tokens = Sequence[int] | np.ndarray
Seam = Callable[[Tokens], tuple[Tokens, Tokens] | None]
"""Maps a text's tokens to its unchanged tokens and the merged tokens of its end and the following text.

It returns None if they do not merge.
"""


@dataclass(frozen=True)
class PairTemplate:
    """The tokens before the query, between query and passage, and after the passage.

    `token_types` has the token type of the five pieces prefix, query, middle, passage and suffix, or is None if the
    model has no token types. `query_lead` and `document_lead` are white space that belongs to the first word; queries
    and documents are tokenised with it. `after_query` and `after_passage` replace the middle and the suffix if the end
    of a text merges with them.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    token_types: tuple[int, ...] | None
    query_lead: str = ""
    document_lead: str = ""
    after_query: Seam | None = field(default=None, compare=False)
    after_passage: Seam | None = field(default=None, compare=False)

    @cached_property
    def _around(self) -> tuple[np.ndarray, ...]:
        return tuple(np.array(piece, np.int64) for piece in (self.prefix, self.middle, self.suffix))

    def pieces(self, query: Tokens, passage: Tokens) -> tuple[Tokens, ...]:
        """Prefix, query, middle, passage and suffix, as token ids."""
        prefix, middle, suffix = self._around
        return (prefix, *_joined(query, middle, self.after_query), *_joined(passage, suffix, self.after_passage))


def _joined(tokens: Tokens, following: np.ndarray, seam: Seam | None) -> tuple[Tokens, Tokens]:
    merged = seam(tokens) if seam is not None else None
    if merged is None or sum(map(len, merged)) > len(tokens) + len(following):  # the length was counted without a merge
        return tokens, following
    return merged[0], np.array(merged[1], np.int64)


def pair_template(tokenizer: "PreTrainedTokenizerBase") -> PairTemplate:
    """The template of a Hugging Face tokenizer, found by encoding a pair.

    prefix + query + middle + passage + suffix equals `tokenizer(query, passage)`, where query and passage are tokenised
    without special tokens. Raises UserError if the tokenizer joins a pair in another way.
    """
    query, passage = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in PROBES)
    pair = tokenizer(*PROBES)
    ids, types = pair["input_ids"], pair.get("token_type_ids", [0] * len(pair["input_ids"]))
    start = find_tokens(query, ids, 0)
    restart = find_tokens(passage, ids, start + len(query))
    bounds = list(pairwise((0, start, start + len(query), restart, restart + len(passage), len(ids))))
    if min(start, restart) < 0 or any(len(set(types[begin:end])) > 1 for begin, end in bounds):
        raise UserError(
            f"tokenizer {tokenizer.name_or_path}: joins two texts as {' '.join(tokenizer.convert_ids_to_tokens(ids))}, "
            f"token types {types}; expected special tokens around and between the texts, and one token type in each "
            "part; use another encoder"
        )
    prefix, _, middle, _, suffix = (tuple(ids[begin:end]) for begin, end in bounds)
    token_types = (
        tuple(types[begin] if begin < end else 0 for begin, end in bounds) if "token_type_ids" in pair else None
    )
    return PairTemplate(prefix, middle, suffix, token_types)


def find_tokens(wanted: list[int], ids: list[int], begin: int) -> int:
    """The first position of `wanted` in `ids` from `begin` on; -1 if there is none or `wanted` is empty."""
    positions = range(begin, len(ids) - len(wanted) + 1) if wanted else ()
    return next((position for position in positions if ids[position : position + len(wanted)] == wanted), -1)


PLACEHOLDERS = ("{query}", "{document}")
"""The placeholders of a text template."""
WORDS = ("quartz", "duartz")
"""A query and a document that occur in no template's own text."""
QUERIES = ("amber", "What is amber?", "3 (of 4)")
"""Queries that begin and end with a letter, a digit and punctuation, to test a template."""
DOCUMENTS = ("birch", "The birch. A tree.", '1990 "x"')
"""Documents of the same kind; a template is tested with each pair of a query and a document."""

TAIL = range(4, 9)
"""Numbers of tokens at the end of a text that are tokenised again with the following text; the first that works."""


def check_text_template(text: str, flag: str = "--encoder.template") -> None:
    """Raises UserError with the flag unless the text has {query} and {document} once each, in this order."""
    counts = [text.count(name) for name in PLACEHOLDERS]
    if counts != [1, 1] or text.index(PLACEHOLDERS[0]) > text.index(PLACEHOLDERS[1]):
        raise UserError(f"{flag} {text!r}: expected {{query}} and {{document}} once each, in this order")


def text_template(tokenizer: "PreTrainedTokenizerBase", text: str) -> PairTemplate:
    """The template that gives the tokens of `text` with a query and a passage in it.

    A space before a placeholder may belong to the first word of the query or document (byte-level BPE), and the end of
    a query or passage may merge with the following text ("?" and a line break are one token in many vocabularies). Both
    are tested with the pairs of QUERIES and DOCUMENTS. Raises UserError for other placeholders, and if query and
    document cannot be separated from the text around them.
    """
    check_text_template(text)
    for template in _candidates(tokenizer, text):
        if all(
            _splice(template, tokenizer, query, document) == tokenizer(fill(text, query, document))["input_ids"]
            for query, document in product(QUERIES, DOCUMENTS)
        ):
            return template
    raise UserError(
        f"--encoder.template {text!r}: the tokenizer of {tokenizer.name_or_path} merges the query or the document with "
        "the text around it; put a space before {query} and {document}, and a space or a line break after them"
    )


def open_template(tokenizer: "PreTrainedTokenizerBase", text: str) -> PairTemplate:
    """The `text_template`, or the `pair_template` if the text is empty; raises their errors."""
    return text_template(tokenizer, text) if text else pair_template(tokenizer)


def fill(text: str, query: str, document: str) -> str:
    """The text of a template with a query and a document in it."""
    before, middle, after = _split(text)
    return f"{before}{query}{middle}{document}{after}"


def chat_template(tokenizer: "PreTrainedTokenizerBase", text: str) -> str:
    """The template as a Jinja chat template of two messages with the roles query and document.

    sentence-transformers and other libraries that render a pair in this way then give a model the same tokens as here.
    They tokenise the rendered text without adding special tokens, so the text contains the tokenizer's special tokens.
    """
    filled = fill(text, *PLACEHOLDERS)
    ids, plain = tokenizer(filled)["input_ids"], tokenise([filled], tokenizer)[0]
    start = find_tokens(plain, ids, 0)
    special = (ids[:start], ids[start + len(plain) :])
    opening, closing = (tokenizer.convert_ids_to_tokens(tokens) for tokens in special)
    before, middle, after = _split(text)
    message = 'messages | selectattr("role", "eq", "{}") | map(attribute="content") | first'
    expressions = (
        json.dumps("".join([*opening, before]), ensure_ascii=False),
        message.format("query"),
        json.dumps(middle, ensure_ascii=False),
        message.format("document"),
        json.dumps("".join([after, *closing]), ensure_ascii=False),
    )
    return "".join(f"{{{{ {expression} }}}}" for expression in expressions)


def _split(text: str) -> tuple[str, str, str]:
    """The texts before, between and after the placeholders."""
    before, _, rest = text.partition(PLACEHOLDERS[0])
    middle, _, after = rest.partition(PLACEHOLDERS[1])
    return before, middle, after


def _candidates(tokenizer: "PreTrainedTokenizerBase", text: str) -> Iterator[PairTemplate]:
    """Yields the possible templates: a space may or may not belong to the query or the document."""
    before, middle, after = _split(text)
    query, document = WORDS
    whole = tokenizer(fill(text, query, document))
    ids, plain = whole["input_ids"], tokenise([fill(text, query, document)], tokenizer)[0]
    closing = tuple(ids[find_tokens(plain, ids, 0) + len(plain) :])
    types = (0, 0, 0, 0, 0) if "token_type_ids" in whole else None
    leads = [["", " "] if own_text.endswith(" ") else [""] for own_text in (before, middle)]
    for query_lead, document_lead in product(*leads):
        own_query, own_document = tokenise([query_lead + query, document_lead + document], tokenizer)
        start = find_tokens(own_query, ids, 0)
        restart = find_tokens(own_document, ids, start + len(own_query))
        if min(start, restart) < 0:
            continue
        prefix, between = tuple(ids[:start]), tuple(ids[start + len(own_query) : restart])
        suffix = tuple(ids[restart + len(own_document) :])
        seams = _seam(tokenizer, middle.removesuffix(document_lead), ()), _seam(tokenizer, after, closing)
        yield PairTemplate(prefix, between, suffix, types, query_lead, document_lead, *seams)


def _seam(tokenizer: "PreTrainedTokenizerBase", following: str, closing: tuple[int, ...]) -> Seam | None:
    """The seam between any text and `following`, after which the ids `closing` come.

    None if no text can merge with `following`, because it is empty or begins with a special token. A text is not merged
    if no end of it can be tokenised separately.
    """
    first = tokenise([following], tokenizer)[0][:1]
    if not first or first[0] in tokenizer.added_tokens_decoder:
        return None

    @lru_cache(maxsize=2**16)
    def joined(tail: tuple[int, ...]) -> tuple[int, ...] | None:
        end = str(tokenizer.decode(list(tail), skip_special_tokens=False, clean_up_tokenization_spaces=False))
        separate, together = tokenise([end, end + following], tokenizer)
        return (*together, *closing) if tuple(separate) == tail else None

    def join(tokens: Tokens) -> tuple[Tokens, Tokens] | None:
        for size in TAIL:
            kept = max(0, len(tokens) - size)
            ids = joined(tuple(int(token) for token in tokens[kept:])) if len(tokens) else None
            if ids is not None:
                return tokens[:kept], ids
        return None

    return join


def _splice(template: PairTemplate, tokenizer: "PreTrainedTokenizerBase", query: str, document: str) -> list[int]:
    texts = [template.query_lead + query, template.document_lead + document]
    return [int(token) for piece in template.pieces(*tokenise(texts, tokenizer)) for token in piece]
