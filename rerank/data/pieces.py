"""Long texts in pieces whose tokens, put together, are exactly those of the whole text: tokenised in bounded memory."""

from collections.abc import Iterator

from rerank.data.seams import find_seam

PIECE = 2**16
"""Characters of a piece, at least."""


def pieces(text: str, tokenizer: str, size: int = PIECE) -> Iterator[str]:
    """The text in pieces of about `size` characters; `tokenizer` is its JSON.

    The text is one piece if it is short, or has no place where `rerank.data.seams` knows that it may be cut. Raises
    ValueError for a size below 1.

    >>> list(pieces("one, two three", '{"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "BPE"}}', 4))
    ['one, two', ' three']
    """
    if size < 1:
        raise ValueError(f"size: expected at least 1 character, got {size}")
    begin = 0
    while len(text) - begin > size and (find := find_seam(tokenizer)):
        seam = find(text, begin + size)
        if seam is None:
            break
        yield text[begin:seam]
        begin = seam
    yield text[begin:] if begin else text
