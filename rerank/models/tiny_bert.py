"""Makes small untrained BERTs with tokenizers; the demo's has word vectors from latent semantic analysis."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import BertConfig, BertModel, BertPreTrainedModel, BertTokenizer

from rerank.data.demo import split_words
from rerank.models.hub import quiet_transformers
from rerank.utils.files import atomic_write

Bert = TypeVar("Bert", bound=BertPreTrainedModel)

WIDTH = 64
"""Hidden size of the demo's encoder."""

CO_OCCURRENCE_DIMENSIONS = 16
"""Dimensions of latent semantic analysis."""

MAX_LENGTH = 512
"""Tokens of the longest input."""


def make_encoder(folder: Path, texts: Sequence[str], seed: int = 0) -> None:
    """Writes a BERT with 2 layers of width 64 to `folder`; its tokenizer has one token for each word of `texts`.

    `texts` are the documents and the queries; the tokenizer splits all other words into letters. The model is not
    trained: position embeddings are zero, word vectors come from the co-occurrence of words in `texts` (latent semantic
    analysis, Deerwester et al. 1990; no judgments are used), and all other weights are random. The same seed writes the
    same weights.
    """
    words = [split_words(text) for text in texts]
    letters = {letter for text in words for word in text for letter in word} | set(ascii_lowercase + digits)
    pieces = sorted({word for text in words for word in text} | letters | {f"##{letter}" for letter in letters})
    vocabulary = make_vocabulary(pieces)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 2 * WIDTH}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    # With BERT's range of 0.02 a network this narrow is almost linear and learns no interactions.
    model = random_bert(BertModel, vocabulary, seed, **sizes, **dropout, initializer_range=0.2)
    with torch.no_grad():
        vectors = _word_vectors([[vocabulary[word] for word in text] for text in words], len(vocabulary), seed)
        model.embeddings.word_embeddings.weight.copy_(torch.from_numpy(vectors))
        model.embeddings.position_embeddings.weight.zero_()
    with atomic_write(folder) as tmp:
        save_bert(model, vocabulary, tmp)


def make_vocabulary(pieces: Iterable[str]) -> dict[str, int]:
    """The ids of BERT's special tokens and of these word pieces."""
    return {piece: number for number, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])}


def random_bert(architecture: type[Bert], vocabulary: dict[str, int], seed: int, **settings: Any) -> Bert:
    """A BERT with random weights for inputs of MAX_LENGTH tokens; `settings` go to BertConfig."""
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=MAX_LENGTH, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture(config)


def save_bert(model: BertPreTrainedModel, vocabulary: dict[str, int], folder: Path) -> None:
    """Writes the model and a tokenizer with this vocabulary as an ordinary Hugging Face folder."""
    with quiet_transformers():
        model.save_pretrained(folder)
    BertTokenizer(vocab=vocabulary, model_max_length=MAX_LENGTH).save_pretrained(folder)


def _word_vectors(texts: list[list[int]], words: int, seed: int) -> np.ndarray:
    """(words, WIDTH) float32 vectors of equal length; words that occur in the same texts get similar vectors."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(texts), words))
    for row, text in enumerate(texts):
        np.add.at(counts[row], text, 1)
    weights = np.log1p(counts) * np.log((1 + len(texts)) / (1 + (counts > 0).sum(0)))
    weights /= np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-9)
    weights -= weights.mean(0)
    # The eigenvectors of the words' products are the singular vectors; for many texts this is ten times as fast as SVD.
    squares, directions = (
        found[..., ::-1][..., :CO_OCCURRENCE_DIMENSIONS] for found in np.linalg.eigh(weights.T @ weights)
    )
    largest = np.take_along_axis(directions, np.abs(directions).argmax(0)[None], axis=0)
    directions = directions * np.sign(largest)  # signs are arbitrary and differ between processors
    rotation = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    vectors = (directions * np.sqrt(squares.clip(0))) @ rotation[: len(squares)]
    unseen = counts.sum(0) == 0
    vectors[unseen] = rng.normal(size=(unseen.sum(), WIDTH))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return np.asarray(vectors * 0.5 * np.sqrt(WIDTH), dtype=np.float32)
