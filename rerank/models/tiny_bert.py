"""A small BERT that was never trained, for the demo: 2 layers, and word vectors from latent semantic analysis."""

from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase, digits

import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizer
from transformers.utils.logging import disable_progress_bar

from rerank.data.demo import split_words
from rerank.utils.files import atomic_write

WIDTH = 64


CO_OCCURRENCE_DIMENSIONS = 16


def make_encoder(folder: Path, texts: Sequence[str], seed: int = 0) -> None:
    """Writes a BERT of 2 layers and width 64 at `folder`, with a tokenizer that has each word of `texts` as one token.

    An ordinary Hugging Face folder: AutoModel and AutoTokenizer load it. `texts` are the documents and the queries;
    words that they lack fall into letters. Nothing is trained: positions start at zero and all other weights are random
    but the word vectors, which come from the words' company in `texts` (latent semantic analysis, Deerwester et al.
    1990) and so know no judgment. The same seed writes the same weights. Raises UserError where the folder cannot be
    written.
    """
    words = [split_words(text) for text in texts]
    letters = {letter for text in words for word in text for letter in word} | set(ascii_lowercase + digits)
    pieces = sorted({word for text in words for word in text} | letters | {f"##{letter}" for letter in letters})
    vocabulary = {piece: number for number, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])}
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,  # at BERT's 0.02 a network this narrow starts almost linear and learns no interaction
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config)
    with torch.no_grad():
        vectors = _word_vectors([[vocabulary[word] for word in text] for text in words], len(vocabulary), seed)
        model.embeddings.word_embeddings.weight.copy_(torch.from_numpy(vectors))
        model.embeddings.position_embeddings.weight.zero_()
    disable_progress_bar()
    with atomic_write(folder) as tmp:
        model.save_pretrained(tmp)
        BertTokenizer(vocab=vocabulary, model_max_length=512).save_pretrained(tmp)


def _word_vectors(texts: list[list[int]], words: int, seed: int) -> np.ndarray:
    """(words, WIDTH) float32 vectors of one length; words that stand in the same texts get similar ones."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(texts), words))
    for row, text in enumerate(texts):
        np.add.at(counts[row], text, 1)
    weights = np.log1p(counts) * np.log((1 + len(texts)) / (1 + (counts > 0).sum(0)))
    weights /= np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-9)
    _, strengths, directions = np.linalg.svd(weights - weights.mean(0), full_matrices=False)
    kept = min(CO_OCCURRENCE_DIMENSIONS, len(strengths))
    rotation = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    vectors = (directions[:kept].T * strengths[:kept]) @ rotation[:kept]
    unseen = counts.sum(0) == 0
    vectors[unseen] = rng.normal(size=(unseen.sum(), WIDTH))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return np.asarray(vectors * 0.5 * np.sqrt(WIDTH), dtype=np.float32)
