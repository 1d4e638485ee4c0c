"""Reranker: ranks texts for a query and re-ranks runs, with a trained model and nothing on disk."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch

from rerank.config import EncoderSettings
from rerank.data.candidates import select_candidates, standardised
from rerank.data.collections import Collection, Documents
from rerank.data.given import given_count, given_run, given_whole
from rerank.data.splitting import Cut
from rerank.data.types import BestPassage, Run
from rerank.models.checkpoints import open_trained_cross_encoder, save_cross_encoder
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.gpu import Precision, open_device
from rerank.models.scoring import PairScores, TextScorer, finite_scores, make_run, pairs_of
from rerank.models.transformer import make_transformer
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, check_new_folder
from rerank.utils.progress import log
from rerank.utils.texts import check_name, check_path, check_text, list_of_pairs, list_of_texts

if TYPE_CHECKING:
    from pyterrier import Transformer


class Ranked(NamedTuple):
    """A document of a ranking: its index in the given documents, its score and its text."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    score: float
    text: str


class Reranker:
    """A trained cross-encoder that ranks documents for a query; `Reranker.load` opens one.

    Documents may be of any length: they are cut at the checkpoint's `max_doc_tokens` and split into passages, whose
    scores are pooled as in training. Memory is bounded by the tokens of a forward pass, which are halved when a device
    runs out of memory.

    A model that was trained with `--encoder.first-stage-weight` adds the standardised first-stage scores of a query to
    its own if `first_scores` are given.

    >>> model = Reranker.load("examples/checkpoint", device="cpu")  # a folder, or a name on huggingface.co
    >>> documents = ["Oslo is the capital of Norway.", "Cats sleep."]
    >>> best = model.rank("capital of norway", documents, top_k=1)[0]
    >>> best.text == documents[best.index]
    True
    >>> model.score("capital of norway", documents).shape
    (2,)
    """

    def __init__(self, scorer: TextScorer, name: str) -> None:
        self.name, self.scorer, self.model = name, scorer, scorer.model
        if self.model.first_stage_weight:
            log.info(
                f"this model adds first-stage scores, with weight {self.model.first_stage_weight:g}; without "
                "first_scores they are left out"
            )

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path,
        *,
        device: str | torch.device | None = None,
        precision: Precision = "auto",
        max_tokens_per_forward: int | Literal["auto"] = "auto",
        pooling: str = EncoderSettings.pooling,
        max_doc_tokens: int = EncoderSettings.max_doc_tokens,
        template: str = EncoderSettings.template,
        passage_tokens: int = EncoderSettings.passage_tokens,
        passage_overlap: int = EncoderSettings.passage_overlap,
    ) -> "Reranker":
        """Opens a checkpoint (runs/…/checkpoint), or a cross-encoder by its folder or its name on the hub.

        Args:
            name_or_folder: a name or folder, as `rerank score` takes.
            device: such as "cpu", "cuda:1" or "mps"; by default a CUDA GPU if there is one, and otherwise the CPU.
            precision: "auto" is bf16 on CUDA GPUs and CPUs where it is fast, fp16 on Volta and Turing, otherwise
                float32.
            max_tokens_per_forward: bounds the memory; "auto" starts high and halves when memory runs out.
            pooling: how passage scores become document scores; a checkpoint of ours overrides it.
            max_doc_tokens: tokens kept of a document; a checkpoint of ours overrides it.
            template: the text that a pair is put into, with {query} and {document}, for a model that was trained with
                a prompt; a checkpoint of ours has its own.
            passage_tokens: tokens of a passage; 0: as few equal passages as fit; a checkpoint of ours overrides it.
            passage_overlap: tokens that a passage shares with the next one; a checkpoint of ours overrides it.

        Raises UserError for a model that cannot be loaded or has no trained head, for a template that differs from the
        checkpoint's or lacks a placeholder, for an unknown pooling, and for a device or precision that torch cannot
        use. Raises TypeError for a value of another type, and ValueError for an unknown precision and for a number of
        tokens that is too small.
        """
        target, name = open_device(device), check_path("name_or_folder", name_or_folder)
        check_name("pooling", pooling)
        check_text("template", template)
        given_whole(max_doc_tokens, "max_doc_tokens")
        given_whole(passage_tokens, "passage_tokens", least=0)
        given_whole(passage_overlap, "passage_overlap", least=0)
        if max_tokens_per_forward != "auto":
            given_whole(max_tokens_per_forward, "max_tokens_per_forward")
        cut = Cut(passage_tokens, passage_overlap)
        model = open_trained_cross_encoder(name, pooling, max_doc_tokens, template, cut)
        return cls(TextScorer(model, target, precision, max_tokens_per_forward), name)

    def save(self, folder: str | Path) -> Path:
        """Writes the model into a new folder, which `load`, transformers and sentence-transformers open.

        Raises UserError for a folder that exists or cannot be written, and for an exported graph.
        """
        target = Path(folder)
        if not isinstance(self.model, CrossEncoder):
            raise UserError(f"{self.name}: is an exported graph, not a model; copy its folder instead")
        check_new_folder(target, "save")
        with atomic_write(target) as tmp:
            save_cross_encoder(self.model, tmp)
        return target

    def push_to_hub(self, repo_id: str, *, private: bool = False, token: str | None = None) -> str:
        """Saves the model to a repository of the Hugging Face hub, created if necessary; returns its URL.

        Args:
            repo_id: "user/name".
            private: whether a new repository is private.
            token: an access token; the default is the one of `hf auth login`.

        Raises UserError for an exported graph, before a repository is created.
        """
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        with TemporaryDirectory() as temporary:
            folder = self.save(Path(temporary) / "model")
            repository = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a cross-encoder of rerank")
        return str(repository)

    def __repr__(self) -> str:
        scorer, pooling = self.scorer, self.model.pooling
        return (
            f"Reranker({self.name!r}, {pooling=}, max_doc_tokens={self.model.max_doc_tokens}, "
            f"device={str(scorer.device)!r}, precision={scorer.precision!r})"
        )

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
    ) -> list[Ranked]:
        """The documents, best first; ties keep the given order.

        Args:
            query: a text; it is cut at half of the encoder's input length, or at what `passage_tokens` leaves of it.
            documents: texts, in a list, an array, a pandas Series or an iterator; they may be empty and may repeat.
            top_k: how many documents to return, at least 1; by default all.
            first_scores: the first stage's scores of the documents, for a model that was trained to add them.
        """
        given_count(top_k, "top_k")
        documents = list_of_texts("documents", documents)
        scores = self.score(query, documents, first_scores)
        best_first = np.argsort(-scores, kind="stable")[:top_k].tolist()
        return [Ranked(index, float(scores[index]), documents[index]) for index in best_first]

    def rank_passages(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
    ) -> list[BestPassage]:
        """As `rank`, with the passage of each document that the model scored highest."""
        given_count(top_k, "top_k")
        documents = list_of_texts("documents", documents)
        tokenised = self.scorer.tokenise_pairs(_pairs(query, documents))
        return self.best_passages(documents, self.scorer.score_pairs(tokenised, show=False), top_k, first_scores)

    def best_passages(
        self,
        documents: Sequence[str],
        scored: PairScores,
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
    ) -> list[BestPassage]:
        """The result of `rank_passages`, from the model's scores of the documents in the given order."""
        scores = self._with_first_scores(scored.scores, first_scores)
        best_first = np.argsort(-scores, kind="stable")[:top_k].tolist()
        spans = (self.scorer.passage_span(documents[index], *scored.best[index].tolist()) for index in best_first)
        return [BestPassage(index, float(scores[index]), *span) for index, span in zip(best_first, spans, strict=True)]

    def score(self, query: str, documents: Iterable[str], first_scores: Sequence[float] | None = None) -> np.ndarray:
        """(documents,) float32 scores, in the order of the documents; see `rank` for the arguments.

        Raises UserError for a score that is not finite.
        """
        pairs = _pairs(query, list_of_texts("documents", documents))
        return self._with_first_scores(self.predict(pairs, show=False), first_scores)

    def _with_first_scores(self, scores: np.ndarray, first_scores: Sequence[float] | None) -> np.ndarray:
        """(documents,) scores of a query plus the model's weight × the standardised first-stage scores."""
        weight = self.model.first_stage_weight
        if not weight or first_scores is None:
            return scores
        given = finite_scores("first_scores", first_scores)
        if len(given) != len(scores):
            raise ValueError(f"first_scores: got {len(given)} for {len(scores)} documents")
        added = np.array(standardised(given), dtype=np.float32)
        return np.asarray(scores + np.float32(weight) * added)

    def predict(self, pairs: Iterable[tuple[str, str]], show: bool = True) -> np.ndarray:
        """(pairs,) float32 scores of (query, document) texts, in their order; equal pairs are scored once.

        As `CrossEncoder.predict` of sentence-transformers for a list of pairs, without an activation. With `show`, a
        long call shows its progress. Raises TypeError if `pairs` is not a list of pairs, and UserError for a score that
        is not finite.
        """
        return self.scorer.score_pairs(self.scorer.tokenise_pairs(list_of_pairs(pairs)), show).scores

    def rerank(self, run: Run, collection: Collection, depth: int = 100) -> Run:
        """Scores the best `depth` documents of each query of a run, with the texts of the collection.

        Queries that are not in the collection are left out and logged. Raises UserError if all queries or a document
        are missing from the collection, and for a score that is not finite, and TypeError as `given_run` and for a
        collection that is not opened.
        """
        run = given_run(run)
        if not isinstance(collection, Collection):
            raise TypeError(
                f"collection: expected an opened one, got {collection!r:.80}; rerank.open_collection opens it"
            )
        given_count(depth, "depth")
        known = {query_id: collection.queries[query_id] for query_id in run if query_id in collection.queries}
        if unknown := [query_id for query_id in run if query_id not in known]:
            if not known:
                raise UserError(
                    f"{collection.source}: has none of the {len(run)} queries of the run, such as {unknown[0]}; "
                    "expected a run for this collection"
                )
            log.info(f"{len(unknown)} queries of the run are not in {collection.source}, such as {unknown[0]}: skipped")
        return self.rerank_texts(run, known, collection, depth)

    def rerank_texts(self, run: Run, queries: Mapping[str, str], documents: Documents, depth: int = 100) -> Run:
        """As `rerank`, with the texts of the queries by id; other queries of the run are left out."""
        keep_scores = self.model.first_stage_weight > 0
        candidates = [c for c in select_candidates(run, {}, depth, queries, keep_scores).values() if c.doc_ids]
        doc_ids = sorted({doc_id for c in candidates for doc_id in c.doc_ids})
        texts = (document.text for document in documents.get(doc_ids))
        found = self.scorer.scores(self.scorer.builder(dict(queries), doc_ids, texts), pairs_of(candidates))
        scored = {
            pair: score for chunk, (scores, _) in found for pair, score in zip(chunk, scores.tolist(), strict=True)
        }
        return make_run(candidates, scored, self.model.first_stage_weight)

    def transformer(self) -> "Transformer":
        """A PyTerrier transformer: `bm25 >> pt.text.get_text(dataset, "text") >> model.transformer()`.

        It reads the columns qid, query, docno and text, and replaces score and rank; the best document of a query has
        rank 0. It needs no Java. Raises ImportError if PyTerrier is not installed; the transformer raises the errors of
        `list_of_texts`, and PyTerrier's for a missing column.
        """
        return make_transformer(self.predict, self.model.first_stage_weight, repr(self))


def _pairs(query: str, documents: Sequence[str]) -> list[tuple[str, str]]:
    """The query with each of the documents."""
    check_text("query", query)
    return [(query, document) for document in documents]
