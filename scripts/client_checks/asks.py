"""What each client is asked: runs in the client's own virtual environment, without rerank.

A function for each client takes a question and yields its cases: what the client is asked as, a function that asks with
options of the client and gives the [index, score] of each document, and these options with what is expected.
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

KEY = "none"
TOP = 2
TOKENS = 2
EQUAL = "equal"
"""Expected: all documents, with the scores of `Reranker`."""
BEST = "best"
"""Expected: the best TOP documents."""
CUT = "cut"
"""Expected: the scores of documents that are cut at TOKENS."""
RAW = "raw"
"""Expected: scores without the sigmoid."""
REFUSED = "refused"
"""Expected: an error."""
Ask = Callable[..., list[Any]]
Options = list[tuple[dict[str, Any], str]]
Cases = Iterator[tuple[str, Ask, Options]]
PLAIN: Options = [({}, EQUAL)]
TOP_N: Options = [*PLAIN, ({"top_n": TOP}, BEST)]


class Question(NamedTuple):
    """The address of the server, a query and documents; `long` is a document that the server cuts."""

    address: str
    query: str
    documents: list[str]
    long: str


def cohere(asked: Question) -> Cases:
    import cohere

    def with_client(client: Any) -> Ask:
        def ask(documents: Any = asked.documents, **options: Any) -> list[Any]:
            answer = client.rerank(model="any", query=asked.query, documents=documents, **options)
            return [[found.index, found.relevance_score] for found in answer.results]

        return ask

    place = {"api_key": KEY, "base_url": asked.address}
    objects = [{"text": text, "title": "no"} for text in asked.documents]
    first: Options = [({"return_documents": True}, EQUAL), ({"documents": objects, "rank_fields": ["text"]}, EQUAL)]
    first += [({"documents": objects, "rank_fields": ["title"]}, REFUSED), ({"max_chunks_per_doc": 1}, REFUSED)]
    yield "v1", with_client(cohere.Client(**place)), TOP_N + first
    second: Options = [({"max_tokens_per_doc": TOKENS}, CUT), ({"priority": 1}, EQUAL)]
    yield "v2", with_client(cohere.ClientV2(**place)), TOP_N + second


def litellm(asked: Question) -> Cases:
    import litellm

    litellm.suppress_debug_info = True

    def with_provider(name: str, path: str = "") -> Ask:
        def ask(**options: Any) -> list[Any]:
            place = {"api_base": f"{asked.address}{path}", "api_key": KEY}
            answer = litellm.rerank(f"{name}/any", query=asked.query, documents=asked.documents, **place, **options)
            return [[found["index"], found["relevance_score"]] for found in answer.results]

        return ask

    echo: Options = [*TOP_N, ({"return_documents": True}, EQUAL)]
    cut: Options = [({"max_tokens_per_doc": TOKENS}, CUT)]
    chunks: Options = [({"max_chunks_per_doc": 1}, REFUSED), ({"rank_fields": ["title"]}, REFUSED)]
    vllm: Options = [({name: value}, REFUSED) for name, value in (("instruction", "rank"), ("truncation_side", "left"))]
    vllm += [({name: 2}, REFUSED) for name in ("truncate_prompt_tokens", "max_tokens_per_query")]
    tei: Options = [({"truncate": True, "truncation_direction": "Right"}, EQUAL)]
    tei += [({"truncation_direction": "Left"}, REFUSED)]
    yield "cohere", with_provider("cohere"), TOP_N + cut + chunks
    yield "jina_ai", with_provider("jina_ai"), echo
    yield "hosted_vllm", with_provider("hosted_vllm"), TOP_N + cut + vllm
    yield "together_ai", with_provider("together_ai", "/v1"), echo
    yield "infinity", with_provider("infinity", "/infinity"), echo
    yield "voyage", with_provider("voyage", "/voyage"), echo
    yield "huggingface", with_provider("huggingface"), echo + tei


def voyageai(asked: Question) -> Cases:
    import voyageai

    client = voyageai.Client(api_key=KEY, base_url=f"{asked.address}/voyage/v1")

    def ask(documents: Any = asked.documents, **options: Any) -> list[Any]:
        answer = client.rerank(asked.query, documents, "any", **options)
        return [[found.index, found.relevance_score] for found in answer.results]

    options: Options = [({"top_k": TOP}, BEST), ({"truncation": False}, EQUAL)]
    yield "rerank", ask, [*PLAIN, *options, ({"documents": [asked.long], "truncation": False}, REFUSED)]


def infinity(asked: Question) -> Cases:
    from infinity_client import Client
    from infinity_client.api.default import rerank
    from infinity_client.models import HTTPValidationError, RerankInput

    def ask(top: int | None = None, **options: Any) -> list[Any]:
        body = RerankInput(query=asked.query, documents=asked.documents, **options)
        body.additional_properties = {"top": top} if top else {}
        answer = rerank.sync(client=Client(base_url=f"{asked.address}/infinity"), body=body)
        if isinstance(answer, HTTPValidationError):
            raise ValueError(answer)
        return [[found.index, found.relevance_score] for found in answer.results]

    options: Options = [({"return_documents": True}, EQUAL), ({"raw_scores": True}, RAW)]
    yield "rerank", ask, [*TOP_N, *options, ({"top": TOP}, REFUSED)]


def together(asked: Question) -> Cases:
    from together import Together

    client = Together(api_key=KEY, base_url=asked.address)

    def ask(documents: Any = asked.documents, **options: Any) -> list[Any]:
        answer = client.rerank.create(model="any", query=asked.query, documents=documents, **options)
        return [[found.index, found.relevance_score] for found in answer.results]

    objects = [{"text": text, "title": "no"} for text in asked.documents]
    options: Options = [({"return_documents": True}, EQUAL)]
    yield "rerank.create", ask, TOP_N + options + [({"documents": objects, "rank_fields": ["title"]}, REFUSED)]


def xinference(asked: Question) -> Cases:
    from xinference_client.client.restful.restful_client import RESTfulRerankModelHandle

    model = RESTfulRerankModelHandle("any", asked.address, auth_headers={})

    def ask(**options: Any) -> list[Any]:
        answer = model.rerank(asked.documents, asked.query, **options)
        return [[found["index"], found["relevance_score"]] for found in answer["results"]]

    options: Options = [({"return_documents": True, "return_len": True}, EQUAL), ({"max_chunks_per_doc": 1}, REFUSED)]
    yield "RESTfulRerankModelHandle", ask, TOP_N + options


def openai(asked: Question) -> Cases:
    from openai import OpenAI

    client = OpenAI(api_key=KEY, base_url=f"{asked.address}/v1")

    def ask(**options: Any) -> list[Any]:
        (model,) = client.models.list()
        body = {"model": model.id, "text_1": asked.query, "text_2": asked.documents, **options}
        scores = [found["score"] for found in client.post("/score", body=body, cast_to=dict)["data"]]
        return [[place, scores[place]] for place in sorted(range(len(scores)), key=lambda place: -scores[place])]

    options: Options = [({"use_activation": False}, RAW), ({"max_tokens_per_doc": TOKENS}, CUT)]
    yield "models, post to /score", ask, [*PLAIN, *options, ({"truncate_prompt_tokens": 2}, REFUSED)]


def langchain(asked: Question) -> Cases:
    from infinity_client import Client
    from langchain_cohere import CohereRerank
    from langchain_community.document_compressors import InfinityRerank, jina_rerank
    from langchain_core.documents import Document
    from langchain_voyageai import VoyageAIRerank

    def with_class(make: Callable[..., Any]) -> Ask:
        def ask(**options: Any) -> list[Any]:
            texts = [Document(page_content=text, metadata={"place": n}) for n, text in enumerate(asked.documents)]
            answer = make(**options).compress_documents(texts, asked.query)
            return [[found.metadata["place"], found.metadata["relevance_score"]] for found in answer]

        return ask

    jina_rerank.JINA_API_URL = f"{asked.address}/v1/rerank"  # it has no parameter for it
    every, top = {"top_n": len(asked.documents)}, {"top_n": TOP}
    options: Options = [(every, EQUAL), (top, BEST)]

    def cohere(**options: Any) -> Any:
        return CohereRerank(cohere_api_key=KEY, base_url=asked.address, model="any", **options)

    def jina(**options: Any) -> Any:
        return jina_rerank.JinaRerank(jina_api_key=KEY, model="any", **options)

    def infinity(**options: Any) -> Any:
        return InfinityRerank(client=Client(base_url=f"{asked.address}/infinity"), model="any", **options)

    def voyage(**options: Any) -> Any:
        return VoyageAIRerank(voyage_api_key=KEY, base_url=f"{asked.address}/voyage/v1", model="any", **options)

    yield "InfinityRerank", with_class(infinity), options
    yield "VoyageAIRerank", with_class(voyage), [*PLAIN, ({"top_k": TOP}, BEST), ({"truncation": False}, EQUAL)]
    yield "CohereRerank", with_class(cohere), options
    yield "JinaRerank", with_class(jina), options


def llama_index(asked: Question) -> Cases:
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.cohere_rerank import CohereRerank
    from llama_index.postprocessor.jinaai_rerank import JinaRerank
    from llama_index.postprocessor.siliconflow_rerank import SiliconFlowRerank
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
    from llama_index.postprocessor.xinference_rerank import XinferenceRerank

    def with_class(kind: Callable[..., Any], **place: str) -> Ask:
        def ask(**options: Any) -> list[Any]:
            texts = enumerate(asked.documents)
            nodes = [NodeWithScore(node=TextNode(text=text, id_=str(number))) for number, text in texts]
            answer = kind(**place, **options).postprocess_nodes(nodes, query_str=asked.query)
            return [[int(found.node.node_id), found.score] for found in answer]

        return ask

    address, key = asked.address, {"api_key": KEY}
    every: Options = [({"top_n": len(asked.documents)}, EQUAL), ({"top_n": TOP}, BEST)]
    yield "CohereRerank", with_class(CohereRerank, base_url=address, model="any", **key), every
    yield "JinaRerank", with_class(JinaRerank, base_url=f"{address}/v1", **key), every
    yield "TextEmbeddingInference", with_class(TextEmbeddingInference, base_url=address), every
    yield "XinferenceRerank", with_class(XinferenceRerank, base_url=address), every
    chunks: Options = [({"max_chunks_per_doc": 1024, "overlap_tokens": 80}, REFUSED)]
    yield "SiliconFlowRerank", with_class(SiliconFlowRerank, base_url=f"{address}/v1/rerank", **key), chunks


def haystack(asked: Question) -> Cases:
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker
    from haystack_integrations.components.rankers.jina import JinaRanker
    from haystack_integrations.components.rankers.vllm import VLLMRanker

    def with_ranker(kind: Callable[..., Any], place: dict[str, str]) -> Ask:
        def ask(top_k: int = len(asked.documents), **options: Any) -> list[Any]:
            ranker = kind(model="any", api_key=Secret.from_token(KEY), **place, **options)
            texts = [Document(id=str(place), content=text) for place, text in enumerate(asked.documents)]
            answer = ranker.run(query=asked.query, documents=texts, top_k=top_k)
            return [[int(found.id), found.score] for found in answer["documents"]]

        return ask

    top: Options = [*PLAIN, ({"top_k": TOP}, BEST)]
    cut: Options = [({"max_tokens_per_doc": TOKENS}, CUT)]
    extra: Options = [({"extra_parameters": {"truncate_prompt_tokens": 2}}, REFUSED)]
    yield "CohereRanker", with_ranker(CohereRanker, {"api_base_url": asked.address}), top + cut
    yield "JinaRanker", with_ranker(JinaRanker, {"base_url": f"{asked.address}/v1/rerank"}), top
    yield "VLLMRanker", with_ranker(VLLMRanker, {"api_base_url": f"{asked.address}/v1"}), top + extra


def tei(asked: Question) -> Cases:
    from tei_client import HttpClient

    def ask(documents: Any = asked.documents, **options: Any) -> list[Any]:
        found = HttpClient(asked.address).rerank(asked.query, documents, **options).ranks
        return [[one.index, one.score] for one in found]

    yield "/rerank", ask, PLAIN


def rerankers(asked: Question) -> Cases:
    from rerankers import Reranker

    def with_api(name: str, path: str) -> Ask:
        def ask() -> list[Any]:
            model = Reranker("any", model_type=name, api_key=KEY, url=f"{asked.address}{path}", verbose=0)
            answer = model.rank(asked.query, asked.documents, doc_ids=list(range(len(asked.documents))))
            return [[found.document.doc_id, found.score] for found in answer.results]

        return ask

    for name in ("cohere", "jina"):
        yield name, with_api(name, "/v1/rerank"), PLAIN
    yield "text-embeddings-inference", with_api("text-embeddings-inference", "/rerank"), PLAIN


def _answer(ask: Ask, options: dict[str, Any]) -> Any:
    """The answer to a case; the line of an error that the client raises."""
    try:
        return ask(**options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _shown(options: dict[str, Any]) -> str:
    """The names of options, with values that are words."""
    shown = []
    for name, value in options.items():
        words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if name != "documents":
            shown.append(f"{name}={'/'.join(words)}" if words else name)
        elif len(value) == 1:
            shown.append("a long document")
    return " with ".join(shown)


if __name__ == "__main__":
    name, package = sys.argv[1:]
    cases = globals()[name](Question(**json.load(sys.stdin)))
    found = [
        [asked_as, _shown(options), expected, _answer(ask, options)]
        for asked_as, ask, listed in cases
        for options, expected in listed
    ]
    print(json.dumps([importlib.metadata.version(package), found]))
