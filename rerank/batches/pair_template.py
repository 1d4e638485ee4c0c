"""The tokens around a (query, passage) pair: special ones that a tokenizer adds, or those of a prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from rerank.utils.errors import UserError

PROBES = ("a", "b")  # any two texts: the special tokens do not depend on them

Tokens = Sequence[int] | np.ndarray
Seam = Callable[[Tokens], tuple[Tokens, Tokens] | None]
"""Maps a text's tokens to those that stay and those of its end together with what follows; None: they do not merge."""


@dataclass(frozen=True)
class PairTemplate:
    """The tokens before the query, between query and passage, and after the passage.

    `token_types` holds the token type of each of the five parts prefix, query, middle, passage and suffix, or None
    if the model has no token types. `query_lead` and `document_lead` are white space that belongs to the first word:
    queries and documents are tokenised with it. `after_query` and `after_passage` replace the middle and the suffix
    where the end of a text merges with them.
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
        return tuple(np.array(part, np.int64) for part in (self.prefix, self.middle, self.suffix))

    def parts(self, query: Tokens, passage: Tokens) -> tuple[Tokens, ...]:
        """Prefix, query, middle, passage and suffix, as token ids."""
        prefix, middle, suffix = self._around
        return (prefix, *_joined(query, middle, self.after_query), *_joined(passage, suffix, self.after_passage))


def _joined(tokens: Tokens, following: np.ndarray, seam: Seam | None) -> tuple[Tokens, Tokens]:
    merged = seam(tokens) if seam is not None else None
    if merged is None or sum(map(len, merged)) > len(tokens) + len(following):  # never longer than was counted
        return tokens, following
    return merged[0], np.array(merged[1], np.int64)


def pair_template(tokenizer: Any) -> PairTemplate:
    """The template of a Hugging Face tokenizer, read off an encoded pair.

    prefix + query + middle + passage + suffix is what `tokenizer(query, passage)` gives, where query and passage are
    tokenised without special tokens. Raises UserError if the tokenizer joins a pair in another way.
    """
    query, passage = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in PROBES)
    pair = tokenizer(*PROBES)
    ids, types = pair["input_ids"], pair.get("token_type_ids", [0] * len(pair["input_ids"]))
    start = find_tokens(query, ids, 0)
    restart = find_tokens(passage, ids, start + len(query))
    parts = list(pairwise((0, start, start + len(query), restart, restart + len(passage), len(ids))))
    if min(start, restart) < 0 or any(len(set(types[begin:end])) > 1 for begin, end in parts):
        raise UserError(
            f"tokenizer {tokenizer.name_or_path}: joins two texts as {' '.join(tokenizer.convert_ids_to_tokens(ids))}, "
            f"token types {types}; expected special tokens around and between the texts, and one token type in each "
            "part; use another encoder"
        )
    prefix, _, middle, _, suffix = (tuple(ids[begin:end]) for begin, end in parts)
    token_types = (
        tuple(types[begin] if begin < end else 0 for begin, end in parts) if "token_type_ids" in pair else None
    )
    return PairTemplate(prefix, middle, suffix, token_types)


def find_tokens(part: list[int], ids: list[int], begin: int) -> int:
    """The first position of `part` in `ids` from `begin` on; -1 if there is none or `part` is empty."""
    positions = range(begin, len(ids) - len(part) + 1) if part else ()
    return next((position for position in positions if ids[position : position + len(part)] == part), -1)
