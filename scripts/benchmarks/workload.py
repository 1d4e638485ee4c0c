"""The workload of the text benchmarks: an encoder, and synthetic candidates for it with lengths like Robust04's."""

import itertools
import math
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from accelerate import Accelerator

from rerank.batches.passages import PassageBuilder
from rerank.batches.templates import pair_template
from rerank.data.tokens import Tokenisation, make_store, tokenise
from rerank.data.types import Candidates
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.compiled import compile_layers
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.hub import encoder_folder
from rerank.models.tiny_bert import make_vocabulary, random_bert, save_bert
from rerank.utils.errors import UserError
from rerank.utils.progress import log

SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "small": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "initializer_range": 0.15,  # with BERT's 0.02 all documents would have nearly the same score
    },
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
}
"""Shapes of BERTs with random weights: speed does not depend on the weights."""

CUT = 800
MEDIAN = 500.0
SPREAD = math.log(CUT / MEDIAN) / 0.8416  # 0.8416 is the standard normal's 80 % quantile
QUERY_LENGTHS = (2, 3, 4)
WORDS = 2000

VOCABULARY = 30_522
SPECIAL_TOKENS = 5
FIRST_WORD = 4
"""Extra tokens that the first word of a text may need: byte-level tokenizers know words with a leading space only."""


@dataclass(frozen=True)
class Workload:
    """An encoder, and candidates with texts that it can read.

    `folder` is the encoder's Hugging Face folder; `model` is on the CPU. `builder` has the tokenised texts; `texts` and
    `queries` are the texts themselves.
    """

    folder: Path
    model: CrossEncoder
    tokenizer: Any
    builder: PassageBuilder
    queries: dict[str, str]
    texts: dict[str, str]
    candidates: list[Candidates]

    def passage_lengths(self) -> np.ndarray:
        """Tokens of every passage of every candidate, with query and special tokens, without padding."""
        pairs = [(c.query_id, doc_id) for c in self.candidates for doc_id in c.doc_ids]
        return np.array(self.builder(pairs).lengths())


@contextmanager
def open_encoder(name: str, own_head: bool = False) -> Iterator[Path]:
    """The folder of an encoder: a name of SHAPES, a folder, or a name on the hub.

    With `own_head`, an encoder of SHAPES is a cross-encoder with one output. Raises UserError for an encoder that
    cannot be loaded.
    """
    if name not in SHAPES:
        yield encoder_folder(name)
        return
    with TemporaryDirectory() as folder:
        yield make_encoder(Path(folder), own_head, **SHAPES[name])


def make_encoder(folder: Path, own_head: bool, vocabulary: int = VOCABULARY, seed: int = 0, **shape: Any) -> Path:
    """Writes a BERT with random weights and the `shape` of a BertConfig, and its tokenizer, into `folder`.

    It knows `vocabulary` special tokens and words of four letters.
    """
    from transformers import BertForSequenceClassification, BertModel

    architecture = BertForSequenceClassification if own_head else partial(BertModel, add_pooling_layer=False)
    words = itertools.product(string.ascii_lowercase, repeat=4)
    pieces = make_vocabulary(map("".join, itertools.islice(words, vocabulary - SPECIAL_TOKENS)))
    save_bert(random_bert(architecture, pieces, seed, num_labels=1, **shape), pieces, folder)
    return folder


def make_workload(folder: Path, lists: int, documents: int, one_passage: bool = False, seed: int = 0) -> Workload:
    """A workload of `lists` queries with `documents` distinct candidates each, half of them relevant.

    `folder` is the encoder's. With `one_passage` every document fits into one passage.
    """
    model = open_cross_encoder(str(folder), "mean", seed)
    tokenizer, max_length = model.tokenizer, model.max_length
    rng = np.random.default_rng(seed)
    words, template = one_piece_words(tokenizer), pair_template(tokenizer)
    queries = {f"q{number}": text for number, text in enumerate(make_queries(lists, words, rng))}
    tokens = dict(zip(queries, tokenise(list(queries.values()), tokenizer), strict=True))
    special = len(template.prefix) + len(template.middle) + len(template.suffix)
    longest = min(CUT, max_length - special - max(map(len, tokens.values())) - FIRST_WORD)
    lengths = document_lengths(lists * documents, rng, longest if one_passage else None)
    texts = {f"d{number}": text for number, text in enumerate(make_texts(lengths, words, rng))}
    doc_ids = list(texts)
    store = make_store(doc_ids, texts.values(), Tokenisation(tokenizer, CUT))
    labels = tuple(int(rank < documents // 2) for rank in range(documents))
    candidates = [
        Candidates(query_id, tuple(doc_ids[number * documents : (number + 1) * documents]), labels)
        for number, query_id in enumerate(queries)
    ]
    return Workload(
        folder, model, tokenizer, PassageBuilder(tokens, store, template, max_length), queries, texts, candidates
    )


def on_device(model: CrossEncoder, accelerator: Accelerator) -> CrossEncoder:
    """The model, moved to the device and compiled there as by `rerank train`, or `rerank score` of a long run."""
    for line in model.place(accelerator.device, accelerator.autocast):
        log.info(line)
    if reason := compile_layers(model, accelerator.autocast):
        log.info(reason)
    return model


def document_lengths(count: int, rng: np.random.Generator, longest: int | None = None) -> np.ndarray:
    """(count,) lengths in word pieces: lognormal, half over 500 and a fifth over 800, cut at 800.

    With `longest`, longer documents are drawn again instead.
    """
    lengths = np.zeros(0, dtype=np.int64)
    while len(lengths) < count:
        drawn = np.rint(rng.lognormal(math.log(MEDIAN), SPREAD, count)).astype(np.int64).clip(1)
        drawn = drawn.clip(max=CUT) if longest is None else drawn[drawn <= longest]
        lengths = np.concatenate([lengths, drawn])
    return lengths[:count]


def one_piece_words(tokenizer: Any) -> list[str]:
    """About 2,000 lower-case words of a tokenizer's vocabulary, or all, each of which is one token inside a text.

    Raises UserError if there are fewer than ten.
    """
    pieces = (token.lstrip("Ġ▁") for token in sorted(tokenizer.get_vocab()))
    words = [word for word in dict.fromkeys(pieces) if len(word) > 2 and word.isascii() and word.isalpha()]
    words = [word for word in words if word == word.lower()]
    words = words[:: max(1, len(words) // WORDS)]
    once, twice = (tokenise([" ".join([word] * count) for word in ["the", *words]], tokenizer) for count in (2, 3))
    one_token = [
        word for word, two, three in zip(words, once[1:], twice[1:], strict=True) if len(three) == len(two) + 1
    ]
    if len(one_token) < 10:
        raise UserError(
            f"tokenizer {tokenizer.name_or_path}: {len(one_token)} English words are one token, expected 10 or more "
            "to make documents of; use another encoder"
        )
    return one_token


def make_texts(lengths: Sequence[int] | np.ndarray, words: list[str], rng: np.random.Generator) -> list[str]:
    """Texts of random words, `lengths` of them each; speed does not depend on the words."""
    return [" ".join(rng.choice(words, size=length)) for length in lengths]


def make_queries(count: int, words: list[str], rng: np.random.Generator) -> list[str]:
    """Queries of two to four words, three on average."""
    return make_texts(rng.choice(QUERY_LENGTHS, size=count), words, rng)
