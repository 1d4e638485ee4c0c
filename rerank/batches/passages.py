"""PassageBuilder: the encoder's inputs of (query, document) pairs, such as [CLS] query [SEP] passage [SEP]."""

from dataclasses import dataclass

import numpy as np
import torch

from rerank.batches.batch import Packed, Pairs
from rerank.batches.templates import PairTemplate, Tokens
from rerank.data.splitting import EVEN, Cut
from rerank.data.tokens import Tokenizer, TokenStore, tokenise_each
from rerank.utils.errors import UserError


@dataclass(frozen=True)
class PassageBuilder:
    """Builds the packed inputs of (query_id, doc_id) pairs.

    A document is cut as `cut` says, by default into as few passages as fit the encoder's `max_length` together with the
    query, of equal length to within one token. An empty document is one passage without document tokens. A query is
    truncated to half of a passage's tokens, or to what the tokens of `cut` leave.

    queries: query_id -> token ids, without special tokens; max_length: tokens of a passage, including special tokens.
    """

    queries: dict[str, list[int]]
    documents: TokenStore
    template: PairTemplate
    max_length: int
    cut: Cut = EVEN

    @classmethod
    def build(
        cls,
        queries: dict[str, str],
        documents: TokenStore,
        tokenizer: Tokenizer,
        template: PairTemplate,
        max_length: int,
        cut: Cut = EVEN,
    ) -> "PassageBuilder":
        """Tokenises `queries`, query_id -> text; the documents were tokenised with the same tokenizer and template.

        Raises UserError if the template leaves no tokens for query and document, or the passages none for a query.
        """
        texts = (template.query_lead + text for text in queries.values())
        tokens = dict(zip(queries, tokenise_each(texts, tokenizer), strict=True))
        builder = cls(tokens, documents, template, max_length, cut)
        if builder.max_tokens < 2:
            raise UserError(
                f"--encoder.template: its {max_length - builder.max_tokens} tokens leave no tokens for a query and a "
                f"document in the encoder's {max_length}; take a shorter template or another encoder"
            )
        if cut.tokens >= builder.max_tokens:
            raise UserError(
                f"--encoder.passage-tokens {cut.tokens}: the encoder takes {builder.max_tokens} tokens of query and "
                f"passage together; expected {builder.max_tokens - 1} or fewer"
            )
        return builder

    @property
    def max_tokens(self) -> int:
        """The tokens of a passage that are left for query and document."""
        return self.max_length - len(self.template.prefix) - len(self.template.middle) - len(self.template.suffix)

    @property
    def max_query_tokens(self) -> int:
        """The tokens that are kept of a query."""
        return min(self.max_tokens // 2, self.max_tokens - self.cut.tokens)

    def query(self, query_id: str) -> list[int]:
        """The query's token ids, truncated to `max_query_tokens`."""
        return self.queries[query_id][: self.max_query_tokens]

    def truncated_queries(self) -> int:
        """The number of queries that are truncated."""
        return sum(len(tokens) > self.max_query_tokens for tokens in self.queries.values())

    def sizes(self, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """The number of tokens of each pair's longest passage and of all its passages: (pairs,) int64 each."""
        _, queries, lengths, passages = self._plan(pairs)
        around = self.max_length - self.max_tokens + queries
        repeated = (passages - 1) * self.cut.overlap
        return self.cut.longest(lengths, passages) + around, lengths + repeated + passages * around

    def __call__(self, pairs: Pairs) -> Packed:
        """The passages of the pairs, in their order."""
        self.documents.release()  # frees the memory of earlier calls
        rows, _, tokens_of, passages = self._plan(pairs)
        documents = np.repeat(np.arange(len(pairs)), passages)
        number = np.arange(len(documents)) - (passages.cumsum() - passages)[documents]
        begins, ends = self.cut.bounds(tokens_of[documents], passages[documents], number)
        firsts = self.documents.offsets[rows][documents]
        queries = {query_id: np.array(self.query(query_id), np.int64) for query_id in dict(pairs)}
        tokens, pieces = self.documents.tokens, list[Tokens]()
        columns = (documents, firsts + begins, firsts + ends)
        for pair, begin, end in zip(*(column.tolist() for column in columns), strict=True):
            pieces += self.template.pieces(queries[pairs[pair][0]], tokens[begin:end])
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces)).reshape(-1, 5)
        lengths = sizes.sum(1)
        if not lengths.all():
            query_id, doc_id = pairs[documents[lengths.argmin()]]
            raise UserError(
                f"query {query_id}, document {doc_id}: both are empty, and the encoder's tokenizer adds no "
                "token; leave one of them out, or give a template with --encoder.template"
            )
        types = None
        if self.template.token_types is not None:
            types = torch.from_numpy(np.repeat(np.tile(self.template.token_types, len(documents)), sizes.ravel()))
        return Packed(
            torch.from_numpy(np.concatenate(pieces, dtype=np.int64)),
            types,
            torch.from_numpy(np.concatenate([[0], lengths.cumsum()])),
            torch.from_numpy(documents),
        )

    def _plan(self, pairs: Pairs) -> tuple[np.ndarray, ...]:
        """For each pair: row of the document, tokens of query and document, and passages, (pairs,) int64 each."""
        limit, count = self.max_query_tokens, len(pairs)
        rows = np.fromiter((self.documents.rows[doc_id] for _, doc_id in pairs), np.int64, count)
        queries = np.fromiter((len(self.queries[query_id]) for query_id, _ in pairs), np.int64, count).clip(max=limit)
        lengths = self.documents.offsets[rows + 1] - self.documents.offsets[rows]
        return rows, queries, lengths, self.cut.count(lengths, self.max_tokens - queries)
